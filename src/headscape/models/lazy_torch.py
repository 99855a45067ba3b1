"""torch, loaded when it is first used: it takes seconds, and models are an optional part of headscape."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscape.errors import MissingDependencyError

if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch:
        """Stands for the module until something of it is needed."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(_loaded(), name)

    torch = _Torch()


def _loaded() -> Any:
    """Return torch, or raise with the command that helps unless it and transformers are installed."""
    try:
        import_module("transformers")
        return import_module("torch")
    except ImportError as error:
        raise MissingDependencyError(
            f"models need torch and transformers ({error}). Install them with: "
            'pip install "headscape[models]"'
        ) from error
