"""The config of a pruned model: edited where that is enough for transformers to build the right shapes.

Every layer must keep the same number of heads and of key-value heads, and the family must take the head
dimension from the config (Llama and its like, ViT) instead of dividing the width by the number of heads (GPT-2,
BERT, ...). Whether it does is not looked up but tried: the class is built from the edited config, without
memory, and must have the same shapes and the same numbers in its attention modules.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from headscape.models.adapters.slicing import shared_config
from headscape.models.anatomy import AttentionModule
from headscape.models.lazy_torch import torch
from headscape.models.plain_facts import is_plain

_COUNTS = ("num_attention_heads", "num_key_value_heads", "head_dim")


def head_counts(module: torch.nn.Module) -> dict[str, int]:
    """Return what the config of an attention module says about its heads; what it does not say is left out."""
    config = None if not hasattr(module, "config") else shared_config(module)
    return {name: getattr(config, name) for name in _COUNTS if getattr(config, name, None) is not None}


def settle_config(modules: Sequence[AttentionModule], original: Mapping[str, int]) -> bool:
    """Edit the config of a pruned model if that describes it, else put the original counts back.

    Returns whether plain ``from_pretrained`` now builds the right model.
    """
    if is_plain(modules[0].model):
        return False
    config = shared_config(modules[0].module)
    counts = {(module.n_heads, module.n_kv_heads) for module in modules}
    if len(counts) == 1:
        [(heads, kv_heads)] = counts
        edited = dict(zip(_COUNTS, (heads, kv_heads, modules[0].output.head_dim), strict=True))
        _write(config, {n: value for n, value in edited.items() if n in original or n == "head_dim"})
        if _describes(modules):
            return True
    _write(config, original)
    return False


def _write(config: Any, counts: Mapping[str, int]) -> None:
    for name in _COUNTS:
        if name in counts:
            setattr(config, name, counts[name])
        elif name in vars(config):
            delattr(config, name)


def _describes(modules: Sequence[AttentionModule]) -> bool:
    """Tell whether a model that is built from this model's config is this model, but for its weights."""
    model = modules[0].model
    config: Any = model.config
    kind: Any = type(model)
    try:
        # Through a dict, because configs are checked when they are read, not when they are changed.
        again = type(config).from_dict(copy.deepcopy(config.to_dict()))
        with torch.device("meta"):
            built = kind(again)
    except Exception:  # configs and models refuse numbers they cannot take with all kinds of exceptions
        return False
    shapes, wanted = ({n: w.shape for n, w in m.state_dict().items()} for m in (built, model))
    return shapes == wanted and all(
        _numbers(built.get_submodule(module.name)) == _numbers(module.module) for module in modules
    )


def _numbers(module: torch.nn.Module) -> dict[str, float]:
    """Return the numbers that the forward may read: head dimension, scale, counts."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, (int, float)) and name != "training" and not name.startswith("_")
    }
