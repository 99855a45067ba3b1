"""Watching the heads of a model while it trains: what they do, and when something goes wrong."""
