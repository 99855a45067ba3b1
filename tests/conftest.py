"""Makes this folder importable, so that tests can share builders such as ``random_trees``."""
