"""The arguments of plain PyTorch modules: the same form for all of them, and back again for the forward pass.

Everything above works on batches whose tensors all have their rows on the first axis, with token ids under the name
``input_ids``. Modules differ: the first parameter has any name, torch's own modules may want the token axis first, and
their masks are shared by all rows, (query, key), or have one row per row and head.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from headscape.errors import InputError
from headscape.models.lazy_torch import torch
from headscape.models.plain_facts import is_plain

IDS = "input_ids"
_MASKS = ("mask", "attn_mask", "src_mask", "tgt_mask", "memory_mask")
_STATES = ("src", "tgt", "memory", "query", "key", "value")
_HINTS = {"is_causal": _MASKS, "src_is_causal": ("src_mask",), "tgt_is_causal": ("tgt_mask",)}
_OPTIONS = ("need_weights", "average_attn_weights")


def main_argument(model: torch.nn.Module) -> str:
    """Return the name of the first parameter of a module's forward."""
    names = [
        name for name, p in inspect.signature(model.forward).parameters.items() if p.kind != p.VAR_KEYWORD
    ]
    if not names:
        raise InputError(f"the forward of {type(model).__name__} takes no input.")
    return names[0]


def rows_first(model: torch.nn.Module, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the arguments of a plain module as tensors with their rows on the first axis."""
    own = _own_attention(model)
    given = {name: value for name, value in inputs.items() if value is not None}
    given = given if own is None else _without_hints(given)
    tensors = {}
    for name, value in given.items():
        if isinstance(value, (bool, int, float, str)):
            raise InputError(
                f"the inputs of a plain module are tensors with one row per window, but {name} is {value!r}: put "
                "constants into the module, or into one that wraps it."
            )
        tensors[name] = torch.as_tensor(value)
    if own is not None:
        return _of_torch_module(own, tensors)
    for name, value in tensors.items():
        if name in _MASKS and value.dim() == 2 and len(set(value.shape)) == 1:
            raise InputError(
                f"{name} {tuple(value.shape)} looks like a mask that all rows share, but the inputs of a plain module "
                "have one row per window: make it inside the module, or in one that wraps it."
            )
    main = main_argument(model)
    if main in tensors and IDS not in tensors and _is_ids(tensors[main]):
        tensors = {IDS if name == main else name: value for name, value in tensors.items()}
    return tensors


def as_called(model: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as a module's forward takes them; those of transformers stay as they are."""
    if not is_plain(model):
        return dict(arguments)
    own = _own_attention(model)
    if own is not None:
        return _for_torch_module(model, own, arguments)
    accepted = inspect.signature(model.forward).parameters
    rename = IDS in arguments and IDS not in accepted
    main = main_argument(model) if rename else IDS
    return {main if name == IDS else name: value for name, value in arguments.items()}


def plain_probe(model: torch.nn.Module, length: int, rows: int, seed: int) -> dict[str, torch.Tensor] | None:
    """Return arguments that a module can be tried with: random states, token ids or pixels; None if nobody can tell."""
    generator = torch.Generator().manual_seed(seed)
    own, example = _own_attention(model), getattr(model, "example_input_array", None)
    if own is not None:
        wanted = [name for name in inspect.signature(model.forward).parameters if name in _STATES]
        widths = {"key": own.kdim, "value": own.vdim}
        return {
            name: torch.randn(rows, length, widths.get(name, own.embed_dim), generator=generator)
            for name in wanted
        }
    if example is not None:  # the name that Lightning gives it
        named = example if isinstance(example, Mapping) else {main_argument(model): example}
        return {
            name: value[:1].repeat_interleave(rows, 0) for name, value in rows_first(model, named).items()
        }
    patches: Any = getattr(model, "patch_embed", None)
    size = getattr(patches, "img_size", None)
    if size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        channels = next((p.in_channels for p in patches.modules() if isinstance(p, torch.nn.Conv2d)), 3)
        return {main_argument(model): torch.randn(rows, channels, height, width, generator=generator)}
    tables = [part.num_embeddings for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    if tables:
        n = min(length, *tables)
        return {IDS: torch.randint(0, min(tables), (rows, n), generator=generator)}
    return None


def _is_ids(x: torch.Tensor) -> bool:
    return x.dim() == 2 and not x.is_floating_point() and x.dtype != torch.bool


def _own_attention(model: Any) -> Any:
    """Return the first attention module of one of torch's own transformer modules, None for other modules."""
    nn = torch.nn
    kinds: tuple[Any, ...] = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
    kinds += (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)
    # A subclass with a forward of its own takes what it likes.
    ours = isinstance(model, nn.MultiheadAttention) and type(model).__module__.startswith("headscape.")
    own: Any = type(model)
    if not ours and not any(isinstance(model, kind) and own.forward is kind.forward for kind in kinds):
        return None
    return next((part for part in model.modules() if isinstance(part, nn.MultiheadAttention)), None)


def _without_hints(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without what tells torch about the others."""
    for name, masks in _HINTS.items():
        if given.get(name) and not any(mask in given for mask in masks):
            raise InputError(
                f"{name}=True is a hint about the mask, but there is none: pass {' or '.join(masks)}."
            )
    return {name: value for name, value in given.items() if name not in _HINTS and name not in _OPTIONS}


def _of_torch_module(own: Any, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    states = {name: value for name, value in tensors.items() if name in _STATES}
    if not states:
        raise InputError(
            f"torch's transformer modules take {', '.join(_STATES)}, but got {', '.join(tensors)}."
        )
    found = {}
    batched = next(iter(states.values())).dim() == 3
    for name, value in tensors.items():
        if name in _STATES or not batched:
            swap = name in _STATES and batched and not own.batch_first
            found[name] = (
                value.transpose(0, 1)
                if swap
                else value[None]
                if not batched and name not in _MASKS
                else value
            )
    rows = len(found[next(iter(states))])
    for name, value in tensors.items():
        if name in _MASKS:
            per_row = value[None].expand(rows, -1, -1) if value.dim() == 2 else None
            found[name] = value.reshape(rows, -1, *value.shape[1:]) if per_row is None else per_row
        elif name not in found:
            found[name] = value
    return found


def _for_torch_module(model: Any, own: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in arguments.items():
        if name in _STATES and not own.batch_first:
            value = value.transpose(0, 1)
        elif name in _MASKS and value.dim() == 4:
            value = value.flatten(0, 1)
        elif name in _MASKS:
            same = bool((value == value[:1]).all())
            value = value[0] if same else value.repeat_interleave(own.num_heads, dim=0)
        found[name] = value
    if isinstance(model, torch.nn.MultiheadAttention):
        found.setdefault("key", found["query"])
        found.setdefault("value", found["key"])
    return found
