"""Comparing networks: distances between head geometries, correspondence of heads, and what is more than noise."""
