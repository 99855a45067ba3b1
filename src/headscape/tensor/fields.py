"""The fields of a head, from its queries and keys: logits, probabilities, energy, log-ratio.

With queries Q, keys K (after position encoding) and scale s, and with the soft cap c, the bias B and the
sink logit b where a model has them:

    logits   S = s Q K^T,  or c tanh(s Q K^T / c);  + B                              unmasked
    probs    P_ij = exp(S_ij) / (sum over visible j of exp(S_ij) [+ exp(b)])         0 where masked
    energy   E_ij = s q_i . k_j - mean over visible j of s q_i . k_j                 0 where masked
    log_ratio  E'_ij = log P_ij - mean over visible j of log P_ij                    0 where masked

The energy is of the raw scaled products: soft cap, bias and sinks are no part of it, because they break the
bound rank(E) <= d that it is made for. The log-ratio (Aitchison 1986; the invariants paper, arXiv 2605.02907, appendix
A) is the same field of the finished logits S, so that both are equal where a model has no such terms. It is what is
left of the energy where a record holds logits or probabilities without queries and keys.
"""

from collections.abc import Callable

import numpy as np

from headscape.errors import InputError
from headscape.tensor.attention_record import AttentionRecord, BoolArray, Float32Array


def logits(record: AttentionRecord, head: int) -> Float32Array:
    """Return the logits of one head, before the mask.

    Parameters
    ----------
    record
        One attention module in one window.
    head
        Number of the query head in its layer.

    Returns
    -------
    (query, key) float32

    Notes
    -----
    O(L^2 d). Entries that no query may see are logits like the others; ``record.visible`` tells them apart. Of a record
    without queries and keys they are 0, and where it holds probabilities alone the logits are their logarithms, which
    differ from those of the model by a constant in each row.

    Examples
    --------
    >>> q = np.array([[[1.0], [2.0]]], np.float32)
    >>> record = AttentionRecord(0, q, q, 0.5, np.ones((2, 2), bool), softcap=1.0)
    >>> logits(record.replace(softcap=None), 0).tolist()
    [[0.5, 1.0], [1.0, 2.0]]
    >>> bool(np.all(logits(record, 0) == np.tanh(logits(record.replace(softcap=None), 0))))
    True
    """
    if not record.has_products:
        return _finished_logits(record, head)
    scaled = record.queries[head] * np.float32(record.scale)
    values: Float32Array = scaled @ record.keys[record.kv_head(head)].T
    if record.softcap is not None:
        cap = np.float32(record.softcap)
        values = np.tanh(values / cap) * cap
    if record.bias is not None:
        values = values + record.bias[head]
    return values


def probs(record: AttentionRecord, head: int) -> Float32Array:
    """Return the attention probabilities of one head: softmax over the visible keys, 0 where masked.

    Returns
    -------
    (query, key) float32
        Rows sum to 1. With sinks they sum to less: the sink takes the rest. Rows of queries that see no key
        are zero.

    Notes
    -----
    O(L^2 d). The row's largest visible logit is subtracted first, so nothing overflows.

    Examples
    --------
    >>> record = AttentionRecord(0, np.zeros((1, 2, 1), np.float32), np.zeros((1, 2, 1), np.float32), 1.0,
    ...     np.tri(2, dtype=bool))
    >>> probs(record, 0).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    >>> probs(record.replace(sinks=np.zeros(1, np.float32)), 0).sum(axis=1).round(2)
    array([0.5 , 0.67], dtype=float32)
    """
    visible = record.visible_to(head)
    if not record.has_products and record.probs is not None:
        return np.where(visible, record.probs[head], np.float32(0.0))
    values = logits(record, head)
    np.copyto(values, np.float32(-np.inf), where=~visible)
    top = values.max(axis=1, keepdims=True)
    sink = None if record.sinks is None else np.float32(record.sinks[head])
    if sink is not None:
        top = np.maximum(top, sink)
    top[~np.isfinite(top)] = 0.0
    values -= top
    np.exp(values, out=values)
    total = values.sum(axis=1, keepdims=True)
    if sink is not None:
        total += np.exp(sink - top)
    total[total == 0.0] = 1.0
    values /= total
    return values


def energy(record: AttentionRecord, head: int) -> Float32Array:
    """Return the energy field of one head: scaled products, centered over the visible keys (IS).

    Returns
    -------
    (query, key) float32
        Every row sums to 0 over its visible keys, up to rounding.

    Notes
    -----
    O(L^2 d). All keys are shifted by their mean first. That changes nothing in exact arithmetic, but takes
    out the part that the centering cancels, which on real heads is far larger than the field itself.

    Examples
    --------
    >>> q = np.array([[[1.0], [2.0]]], np.float32)
    >>> energy(AttentionRecord(0, q, q, 1.0, np.tri(2, dtype=bool)), 0).tolist()
    [[0.0, 0.0], [-1.0, 1.0]]
    """
    if not record.has_products:
        raise InputError(
            f"the energy of layer {record.layer} needs queries and keys, but only logits or probabilities are known: "
            "use the field 'log_ratio', which is the energy of the finished logits."
        )
    keys = record.keys[record.kv_head(head)]
    shifted = keys - keys.mean(axis=0, dtype=np.float64).astype(np.float32)
    values: Float32Array = (record.queries[head] * np.float32(record.scale)) @ shifted.T
    return _centered(values, record.visible_to(head))


def log_ratio(record: AttentionRecord, head: int) -> Float32Array:
    """Return the centered log-ratio of the probabilities of one head: the energy by the log-ratio route.

    Returns
    -------
    (query, key) float32
        Every row sums to 0 over its visible keys, up to rounding.

    Notes
    -----
    O(L^2 d). Taken from the finished logits where they are known: log P_ij = S_ij - log sum_j exp S_ij, and the
    centering cancels the sum. From probabilities alone it needs every visible one above 0; float16 flushes most of a
    head to zero, and an :class:`InputError` says so.

    Examples
    --------
    >>> q = np.array([[[1.0], [2.0]]], np.float32)
    >>> record = AttentionRecord(0, q, q, 1.0, np.tri(2, dtype=bool))
    >>> log_ratio(record, 0).tolist() == energy(record, 0).tolist()
    True
    """
    return _centered(np.array(logits(record, head)), record.visible_to(head))


def _centered(values: Float32Array, visible: BoolArray) -> Float32Array:
    """Subtract from each row its mean over the visible keys, in place; what is hidden becomes 0."""
    count = np.maximum(visible.sum(axis=1, keepdims=True), 1)
    mean = values.sum(axis=1, keepdims=True, where=visible, dtype=np.float64) / count
    values -= mean.astype(np.float32)
    values[~visible] = 0.0
    return values


def _finished_logits(record: AttentionRecord, head: int) -> Float32Array:
    """Return the logits of a record without queries and keys, 0 where they are hidden."""
    visible = record.visible_to(head)
    if record.scores is not None:
        return np.where(visible, record.scores[head], np.float32(0.0))
    assert record.probs is not None  # the record requires one of the two
    p = record.probs[head]
    lost = int((visible & (p <= 0)).sum())
    if lost:
        raise InputError(
            f"logits of layer {record.layer}, head {head}, are logarithms of its probabilities, but {lost} of "
            f"{int(visible.sum())} visible ones are not above 0: rounded to zero, or hidden by a mask. Give the mask "
            "as visible=, save probabilities as float32, or use the field 'probs'."
        )
    logs: Float32Array = np.log(p, where=visible, out=np.zeros_like(p))
    return logs


FIELD_OF_HEAD: dict[str, Callable[[AttentionRecord, int], Float32Array]] = {
    "probs": probs,
    "logits": logits,
    "energy": energy,
    "log_ratio": log_ratio,
}


def field_of_head(record: AttentionRecord, head: int, field: str) -> Float32Array:
    """Return one field of one head by its name, "probs", "logits", "energy" or "log_ratio"."""
    if field not in FIELD_OF_HEAD:
        raise InputError(f"field must be one of {', '.join(FIELD_OF_HEAD)}, but is {field!r}.")
    return FIELD_OF_HEAD[field](record, head)
