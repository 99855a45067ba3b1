"""What is known of a plain PyTorch module without a config of transformers: read off the module itself."""

from __future__ import annotations

from typing import Any

from headscape.models.lazy_torch import torch


def is_plain(model: Any) -> bool:
    """Tell whether a model is a module of PyTorch, and not one of transformers."""
    return not hasattr(model, "set_attn_implementation")


def config_of(model: Any) -> Any:
    """Return the config of a model of transformers; of a plain module, one that knows only its record of removal.

    Plain modules may have a ``config`` too, but what it says is their own affair.
    """
    return _PlainConfig(model) if is_plain(model) else model.config


def vocabulary(model: torch.nn.Module) -> int | None:
    """Return how many token ids a plain module takes at least: the rows of its smallest embedding, None without one."""
    sizes = [part.num_embeddings for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    return min(sizes, default=None)


class _PlainConfig:
    """Stands where the config of a model of transformers would: what is set goes to the module, and is found there."""

    model_type = "pytorch"

    def __init__(self, model: torch.nn.Module) -> None:
        self.__dict__["_module"] = model

    def get_text_config(self) -> _PlainConfig:
        return self

    def to_dict(self) -> dict[str, Any]:
        return {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("headscape_") and name in vars(self._module):
            return vars(self._module)[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("headscape_"):
            vars(self._module)[name] = value
