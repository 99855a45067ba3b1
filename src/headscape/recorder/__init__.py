"""Queries and keys out of real models: the only room that knows torch."""
