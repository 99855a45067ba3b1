"""The one attention function that headscape registers with transformers: it shows every call to observers.

A model is switched to it for the length of a ``with`` block. Inside, each call of an attention module is
shown to the block's observer, which may keep queries and keys (recording) or return a gate per head
(ablation, pruning). The output is made by sdpa, as without headscape, so no L x L matrix is formed unless
the model needs one (soft cap, sinks).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from headscape.errors import ModelError
from headscape.models.adapters.protocol import AttentionCall, Observer
from headscape.models.lazy_torch import torch
from headscape.models.quiet import quiet_transformers
from headscape.models.stacks import LayerNumbers

NAME = "headscape"

# A key this far below the others has probability 0 in every floating format, whatever the mask's dtype.
MASKED_BELOW = -9_999.0


class _Watch(NamedTuple):
    """Who watches a module, and by which name and number."""

    name: str
    numbers: LayerNumbers
    observer: Observer


_watched: WeakKeyDictionary[torch.nn.Module, list[_Watch]] = WeakKeyDictionary()


@contextmanager
def shown_calls(model: Any, observer: Observer) -> Iterator[None]:
    """Show every attention call of a model to an observer, and leave the model as it was afterwards.

    The attention implementation of the model and of all its parts is put back also after an exception. Blocks
    may be nested: all observers see the calls, and their gates multiply.
    """
    _register()
    before = [(config, config._attn_implementation_internal) for config in model_configs(model)]
    numbers = LayerNumbers()
    hook = model.register_forward_pre_hook(lambda *_: numbers.restart())
    try:
        with quiet_transformers():  # models that cannot switch warn; the caller raises instead
            model.set_attn_implementation(NAME)
        for name, module in model.named_modules():
            if name:
                _watched.setdefault(module, []).append(_Watch(name, numbers, observer))
        yield
    finally:
        hook.remove()
        for module in model.modules():
            entries = [watch for watch in _watched.get(module, ()) if watch.numbers is not numbers]
            if entries:
                _watched[module] = entries
            else:
                _watched.pop(module, None)
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Show a call to the module's observers and return the attention output (batch, query, head, d)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    _require_mask(module, query, attention_mask)
    terms = (attention_mask, position_bias, scale, softcap, s_aux)
    call = AttentionCall("", ("", "self"), 0, module, query, key, value, *terms)
    gates = []
    for name, numbers, observer in _watched.get(module, ()):
        group, layer = numbers.of(name)
        gates.append(observer.see(replace(call, name=name, group=group, layer=layer)))
    output = _sdpa(call, dropout) if softcap is None and s_aux is None else _explicit(call, dropout)
    for gate in (gate for gate in gates if gate is not None):
        output = output * gate.to(output)[..., None, :, None]
    return output, None


def own_probabilities(call: AttentionCall) -> torch.Tensor | None:
    """Return the probabilities (batch, head, query, key) that the model's own eager code gives, if it has such code."""
    if call.probs is not None:
        return call.probs
    eager = getattr(sys.modules[type(call.module).__module__], "eager_attention_forward", None)
    if eager is None:
        return None
    # Plain causal masks are kept in half precision here; the model's own code wants its own dtype.
    mask = None if call.mask is None else call.mask.to(call.queries.dtype)
    extra = {"softcap": call.softcap, "position_bias": call.bias, "s_aux": call.sinks}
    given = {name: value for name, value in extra.items() if value is not None}
    found: torch.Tensor | None = eager(
        call.module, call.queries, call.keys, call.values, mask, scaling=call.scale, dropout=0.0, **given
    )[1]
    return found


def _register() -> None:
    """Register the function and its mask, together: without a mask the model would see the future."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, explicit_mask)


def explicit_mask(*args: Any, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor | None:
    """Return the mask that eager attention gets: 0 where a key is visible, the lowest number where it is not.

    Unlike sdpa's, it is never left out for causal attention, so that what is visible can be read off it. A
    plain causal mask is made in half precision, because sdpa is told "causal" in its place: nothing reads it
    but us, and at 4,096 tokens it is the largest tensor of the forward pass.
    """
    from transformers.masking_utils import sdpa_mask

    visible = sdpa_mask(*args, **{**options, "allow_is_causal_skip": False})
    if visible is None:
        return None
    causal = is_plain_causal(visible)
    dtype = torch.float16 if causal else dtype or torch.float32
    zero = torch.zeros((), device=visible.device, dtype=dtype)
    mask: Any = torch.where(visible, zero, torch.finfo(dtype).min)
    if causal:
        mask._headscape_causal = True
    return mask  # type: ignore[no-any-return]


def _require_mask(module: torch.nn.Module, query: torch.Tensor, mask: torch.Tensor | None) -> None:
    if mask is None and getattr(module, "is_causal", False) and query.shape[2] > 1:
        raise ModelError(
            f"{type(module).__name__} is causal, but the model passed it no mask, so that it would see the "
            "future. This version of transformers is not supported: please report it with the model's name."
        )


def model_configs(model: torch.nn.Module) -> list[Any]:
    """Return every config object of the model, its parts and their sub-configs, each once."""
    waiting = [module.config for module in model.modules() if hasattr(module, "config")]
    found: dict[int, Any] = {}
    while waiting:
        config = waiting.pop()
        if id(config) in found or not hasattr(config, "_attn_implementation_internal"):
            continue
        found[id(config)] = config
        waiting += [
            getattr(config, name) for name in getattr(config, "sub_configs", {}) if hasattr(config, name)
        ]
    return list(found.values())


def is_plain_causal(mask: Any) -> bool:
    """Tell whether a mask (batch, 1, query, key) hides exactly the future, in every row of the batch.

    The mask is float, or True where a key is visible. It is looked at once, in blocks of rows: a model hands
    the same mask to all its layers.
    """
    if not hasattr(mask, "_headscape_causal"):
        mask._headscape_causal = _hides_the_future_only(mask)
    return bool(mask._headscape_causal)


def _hides_the_future_only(mask: torch.Tensor) -> bool:
    n_queries, n_keys = mask.shape[-2:]
    if n_queries != n_keys or mask.dim() != 4:
        return False
    keys = torch.arange(n_keys, device=mask.device)
    for start in range(0, n_queries, 256):
        rows = mask[..., start : start + 256, :]
        future = keys > torch.arange(start, start + rows.shape[-2], device=mask.device)[:, None]
        right = (
            rows != future
            if rows.dtype == torch.bool
            else torch.where(future, rows < MASKED_BELOW, rows == 0)
        )
        if not bool(right.all()):
            return False
    return True


def _sdpa(call: AttentionCall, dropout: float) -> torch.Tensor:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    causal = call.mask is not None and call.bias is None and is_plain_causal(call.mask)
    mask = None if causal or call.mask is None else call.mask.to(call.queries.dtype)
    how: Any = {"dropout": dropout, "scaling": call.scale, "is_causal": causal, "position_bias": call.bias}
    output: torch.Tensor
    output, _ = sdpa_attention_forward(call.module, call.queries, call.keys, call.values, mask, **how)
    return output


def _explicit(call: AttentionCall, dropout: float) -> torch.Tensor:
    """Return the output with a soft cap or sinks, which sdpa does not know, one key-value head at a time."""
    query, key, softcap = call.queries, call.keys, call.softcap
    groups = query.shape[1] // key.shape[1]
    outputs = []
    for kv_head in range(key.shape[1]):
        heads = slice(kv_head * groups, (kv_head + 1) * groups)
        scores = query[:, heads] @ key[:, kv_head, None].transpose(2, 3) * call.scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        for term in (call.mask, call.bias):
            if term is not None:
                scores = scores + (term if term.shape[1] == 1 else term[:, heads])
        if call.sinks is not None:
            column = call.sinks[heads].to(scores).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, column], dim=-1)
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim=-1, dtype=wide).to(query.dtype)[..., : key.shape[2]]
        weights = torch.nn.functional.dropout(weights, dropout)
        outputs.append(weights @ call.values[:, kv_head, None])
    return torch.cat(outputs, dim=1).transpose(1, 2).contiguous()
