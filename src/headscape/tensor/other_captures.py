"""Captures from what other libraries keep: TransformerLens' cache, and the attentions that transformers returns.

Tensors of torch, proxies of nnsight (their value) and arrays are taken alike; torch itself is not needed.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscape.errors import InputError
from headscape.tensor.attention_record import (
    AttentionRecord,
    Float32Array,
    causal_visibility,
    full_visibility,
)
from headscape.tensor.capture import Capture
from headscape.tensor.checks import as_float_array
from headscape.tensor.fields import probs

logger = logging.getLogger(__name__)

_HOOK = re.compile(r"blocks\.(\d+)\.attn\.(hook_\w+)")
# Larger differences are another mask or a further term, not the rounding of half precision.
_AGREEMENT = 1e-2


def capture_from_attentions(
    attentions: Sequence[object], *, tokens: Sequence[str] | None = None, causal: bool | None = None
) -> Capture:
    """Build a capture from attention probabilities, one array per layer.

    Parameters
    ----------
    attentions : sequence of (batch, head, query, key) arrays
        What a transformers model returns with ``output_attentions=True`` (``attn_implementation="eager"``), what
        nnsight saved, or any list of arrays; (head, query, key) is a batch of one. Rows of the batch become windows,
        and must not be padded.
    tokens
        One string per query, the same for every window.
    causal
        Whether a query sees only the keys up to its own place; by default, if nothing else has a probability.

    Returns
    -------
    Capture
        Without queries and keys: measures that need them are left out. See :meth:`Capture.from_probabilities`.

    Examples
    --------
    >>> layer = np.tril(np.ones((1, 4, 6, 6))) / np.arange(1, 7)[:, None]
    >>> capture_from_attentions([layer, layer])
    Capture(1 window, 8 heads, 8 key-value heads, stack 'self')
    """
    if (
        isinstance(attentions, (str, bytes, Mapping))
        or not isinstance(attentions, Sequence)
        or not len(attentions)
    ):
        raise InputError(
            f"attentions must be one array per layer, such as outputs.attentions, but is {type(attentions).__name__}."
        )
    layers = []
    for number, layer in enumerate(attentions):
        if layer is None:
            raise InputError(
                f"layer {number} has no attentions: load the model with attn_implementation='eager' and call it with "
                "output_attentions=True."
            )
        array = _float32(layer, f"the attentions of layer {number}")
        if array.ndim not in (3, 4):
            raise InputError(
                f"the attentions of layer {number} must be ([batch,] head, query, key), but are {array.shape}."
            )
        layers.append(array[None] if array.ndim == 3 else array)
    shapes = {(len(array), *array.shape[2:]) for array in layers}
    if len(shapes) > 1:
        raise InputError(
            f"all layers must have the same batch, queries and keys, but they have {sorted(shapes)}: make one capture "
            "of each kind."
        )
    if len({array.shape[1] for array in layers}) == 1:
        return Capture.from_probabilities(np.stack(layers, axis=1), causal=causal, tokens=tokens)
    single = [Capture.from_probabilities(array[:, None], causal=causal, tokens=tokens) for array in layers]
    windows = [
        [part.record(window, 0).replace(layer=layer) for layer, part in enumerate(single)]
        for window in range(single[0].n_windows)
    ]
    labels = {"self": {"query": tuple(tokens)}} if tokens is not None else {}
    return Capture.from_records(windows, tokens=[labels] * len(windows))


def capture_from_cache(
    cache: Mapping[str, Any],
    *,
    scale: float | None = None,
    causal: bool | None = None,
    tokens: Sequence[str] | None = None,
) -> Capture:
    """Build a capture from an ``ActivationCache`` of TransformerLens.

    Parameters
    ----------
    cache
        What ``model.run_with_cache(...)`` returns, or a dict with the same names: ``blocks.0.attn.hook_q`` (batch,
        token, head, d) and ``hook_k``, with rotary positions ``hook_rot_q`` and ``hook_rot_k``, or ``hook_pattern``
        (batch, head, query, key). The axis of the batch may be missing.
    scale
        The factor of the dot product; by default what the model of the cache says, else d ** -1/2.
    causal
        Whether a query sees only the keys up to its own place; by default what the model of the cache says, else True.
    tokens
        One string per token, the same for every window.

    Returns
    -------
    Capture
        With queries and keys if they give the patterns of the cache, else (with a warning) with the patterns alone:
        positions by ALiBi, local attention or padding are not in queries and keys.

    Notes
    -----
    Where the cache has no patterns, nothing can be compared, and models that are known to add something else to their
    logits are refused: let ``names_filter`` keep ``hook_pattern`` too.
    """
    found = _hooks(cache)
    config = getattr(getattr(cache, "model", None), "cfg", None)
    causal = getattr(config, "attention_dir", "causal") == "causal" if causal is None else causal
    patterns = [_rows_first(layer["hook_pattern"], 4) for layer in found.values() if "hook_pattern" in layer]
    whole = len(patterns) == len(found)
    windows = [_products(number, layer, scale, causal, config) for number, layer in found.items()]
    if all(windows):
        records = [list(rows) for rows in zip(*windows, strict=True)]
        gap = _largest_gap(records, patterns) if whole else 0.0
        if not whole and (term := _further_term(config)):
            raise InputError(
                f"the attention of this model has {term}, which queries and keys do not show: keep hook_pattern in "
                "the cache too."
            )
        if gap <= _AGREEMENT:
            labels = {"self": {"query": tuple(tokens)}} if tokens is not None else {}
            return Capture.from_records(records, tokens=[labels] * len(records))
        logger.warning(
            "queries and keys of the cache do not give its patterns (they differ by up to %.2g), so that there is a "
            "mask or a term besides them: the capture holds the patterns alone",
            gap,
        )
    if not whole:
        raise InputError(
            "the cache must hold hook_q and hook_k (hook_rot_q and hook_rot_k with rotary positions), or hook_pattern, "
            f"of every layer, but layer {next(iter(found))} has {', '.join(sorted(next(iter(found.values()))))}."
        )
    return capture_from_attentions(patterns, tokens=tokens)


def _hooks(cache: Any) -> dict[int, dict[str, Float32Array]]:
    """Return the hooks of attention by layer."""
    if not hasattr(cache, "keys"):
        raise InputError(
            f"cache must be an ActivationCache of TransformerLens, or a dict, but is {type(cache).__name__}."
        )
    wanted = ("hook_q", "hook_k", "hook_rot_q", "hook_rot_k", "hook_pattern")
    found: dict[int, dict[str, Float32Array]] = {}
    for name in cache.keys():  # noqa: SIM118  an ActivationCache is no mapping
        match = _HOOK.fullmatch(str(name))
        if match and match[2] in wanted:
            found.setdefault(int(match[1]), {})[match[2]] = _float32(cache[name], str(name))
    if not found:
        raise InputError(
            "the cache has no attention: expected names such as blocks.0.attn.hook_q, hook_k or hook_pattern."
        )
    return dict(sorted(found.items()))


def _float32(x: object, name: str) -> Float32Array:
    return as_float_array(x, name).astype(np.float32, copy=False)


def _rows_first(x: Float32Array, axes: int) -> Float32Array:
    return x if x.ndim == axes else x[None]


def _products(
    number: int, layer: Mapping[str, Float32Array], scale: float | None, causal: bool, config: Any
) -> list[AttentionRecord]:
    """Return the records of one layer, one per window; none if the cache has no queries and keys."""
    names = ("hook_rot_q", "hook_rot_k") if "hook_rot_q" in layer else ("hook_q", "hook_k")
    if not layer.keys() >= {*names}:
        return []
    if names[0] == "hook_q" and getattr(config, "positional_embedding_type", "") == "rotary":
        raise InputError(
            f"layer {number} has rotary positions: keep hook_rot_q and hook_rot_k in the cache, which are after them."
        )
    queries, keys = (_rows_first(layer[name], 4).swapaxes(1, 2) for name in names)
    if scale is None and not getattr(config, "use_attn_scale", True):
        scale = 1.0
    divisor = float(getattr(config, "attn_scale", None) or -1.0)  # -1 stands for the root of d
    if scale is None:
        scale = 1.0 / divisor if divisor > 0 else queries.shape[-1] ** -0.5
    cap = getattr(config, "attn_scores_soft_cap", -1.0) or -1.0
    visible = (causal_visibility if causal else full_visibility)(queries.shape[2], keys.shape[2])
    return [
        AttentionRecord(
            number,
            np.ascontiguousarray(q),
            np.ascontiguousarray(k),
            float(scale),
            visible,
            module=f"blocks.{number}.attn",
            softcap=float(cap) if cap > 0 else None,
        )
        for q, k in zip(queries, keys, strict=True)
    ]


def _further_term(config: Any) -> str:
    """Say what a model of TransformerLens adds to its logits besides the causal mask; empty if nothing is known."""
    if getattr(config, "positional_embedding_type", "") in ("alibi", "relative_positional_bias"):
        return f"positions by {config.positional_embedding_type}"
    return "local attention" if getattr(config, "use_local_attn", False) else ""


def _largest_gap(records: Sequence[Sequence[AttentionRecord]], patterns: Sequence[Float32Array]) -> float:
    """Return the largest difference between recomputed probabilities and the patterns of a cache."""
    return max(
        float(np.abs(probs(record, head) - pattern[window, head]).max())
        for window, rows in enumerate(records)
        for record, pattern in zip(rows, patterns, strict=True)
        for head in range(record.n_heads)
    )
