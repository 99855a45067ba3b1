"""Queries and keys from real models: the one room that knows torch and transformers."""

from importlib import util

from headscape.errors import MissingPartError

if any(util.find_spec(package) is None for package in ("torch", "transformers")):
    raise MissingPartError(
        "models need torch and transformers, which are not installed. Install them with: "
        'pip install "headscape[models]"'
    )
