"""One forward pass of a model: its arguments, its mode, and one clear error if it fails."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headscape.errors import HeadscapeError, InputError, ModelError
from headscape.models.lazy_torch import torch
from headscape.models.linear_layers import fast_linear_layers
from headscape.models.plain_arguments import as_called

MEMORY = "memory_ids"
"""Tokens before those of a window, which a model with a memory has read."""

_FLASH = (
    " The model computes attention with a flash-attention kernel, which needs a GPU and its own package: load it with "
    "attn_implementation='eager'."
)


def arguments_for(model: torch.nn.Module, arguments: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the arguments of a forward pass on the model's device, floating ones in its precision.

    ``memory_ids`` (batch, token) become the memory that the model, as it is now, has of them.
    """
    weight = next(model.parameters(), torch.zeros(()))
    given = {
        name: value.to(device=weight.device, dtype=weight.dtype if value.is_floating_point() else None)
        for name, value in arguments.items()
    }
    if MEMORY in given:
        given["mems"] = _memory(model, given.pop(MEMORY))
    return given


def _memory(model: Any, ids: torch.Tensor) -> torch.Tensor:
    if not hasattr(model, "remember"):
        raise InputError(
            f"{MEMORY} needs a model with a memory, such as Transformer-XL, but {type(model).__name__} has none: put "
            "the tokens before the others in input_ids."
        )
    with evaluating(model):
        memory: torch.Tensor = model.remember(ids)
    return memory


def without_extras(model: torch.nn.Module) -> dict[str, Any]:
    """Return the arguments that keep a pass small: no cache of keys, and logits of the last token only."""
    accepted = inspect.signature(model.forward).parameters
    return {n: v for n, v in (("use_cache", False), ("logits_to_keep", 1)) if n in accepted}


def forward(model: torch.nn.Module, arguments: Mapping[str, Any], what: str) -> Any:
    """Run a forward pass, or raise one clear error if the model cannot take what it is given."""
    try:
        with fast_linear_layers(model):
            return model(**as_called(model, arguments))
    except HeadscapeError:
        raise
    except Exception as error:  # whatever a model's own code raises on inputs it was not made for
        hint = _FLASH if "flash" in str(error).lower() else ""
        raise ModelError(
            f"the forward pass of {type(model).__name__} failed on {what} ({type(error).__name__}: {error}). It "
            f"was given {', '.join(arguments)}.{hint}"
        ) from error


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Switch dropout off, and put every part of the model back into its own mode afterwards."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        yield
    finally:
        for module in training:
            module.training = True
