"""Queries and keys from real models: the one room that knows torch and transformers.

What the public names need to be fetched is free of both; they are loaded when a model is.
"""

from headscape.errors import MissingDependencyError


def require_models_extra() -> None:
    """Raise, with the command that helps, unless torch and transformers are installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"models need torch and transformers ({error}). Install them with: "
            'pip install "headscape[models]"'
        ) from error
