"""Smaller models: heads cut out for real, with a manifest, and files that load again."""
