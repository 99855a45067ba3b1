"""Finding the attention modules of a model before it trains, without leaving a trace in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscape.errors import InputError, ModelError
from headscape.models.anatomy import AttentionModule, attention_modules, require_known_heads
from headscape.models.lazy_torch import torch


def plain_module(model: Any) -> torch.nn.Module:
    """Return the module inside wrappers: ``torch.compile`` and those of data-parallel training."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        else:
            found: torch.nn.Module = model
            return found


def probed_modules(
    model: Any,
    inputs: Mapping[str, Any] | None,
    layers: Sequence[int] | None,
    heads: Sequence[tuple[int, int]] | None,
) -> tuple[AttentionModule, ...]:
    """Return the attention modules to be watched: all, or those of some layers or heads.

    The forward pass that finds them runs in evaluation mode without gradients, and random states are put back.
    Raises a :class:`ModelError` if the model cannot be observed.
    """
    with torch.random.fork_rng(), torch.compiler.set_stance("force_eager"):
        modules = attention_modules(plain_module(model), inputs, watch=True)
    if any(module.head_dim == 0 for module in modules):
        raise ModelError(
            "the monitor measures queries and keys, but this model's code shows only its finished logits: hs.analyze "
            "works with those."
        )
    if heads is not None:
        pairs = require_known_heads(heads, modules)
        layers = sorted({layer for layer, _ in pairs})
    if layers is None:
        return modules
    known = {module.layer for module in modules}
    if not layers or not set(layers) <= known:
        raise InputError(
            f"layers must be some of the model's layers, {min(known)} to {max(known)}, but are {list(layers)}."
        )
    return tuple(module for module in modules if module.layer in set(layers))
