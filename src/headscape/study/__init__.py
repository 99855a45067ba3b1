"""Ties the stages together."""
