"""Attention sinks: keys that take a large share of the attention of many heads, and the probabilities without them.

The sink score of key k in a head with probabilities P is the mean attention that k gets (Gu et al. 2024,
arXiv 2410.10781):

    s_k = mean of P_ik over the queries i that see k

A key is a sink of a head if s_k > 0.3, and a sink of the network if that holds in at least 5 % of the heads. The
field "probs_without_sinks" leaves these keys out, in self-attention also their own queries, and divides every row by
what is left of it:

    P'_ij = P_ij / (sum over the keys l that are kept of P_il)

Rows that keep less than 1e-6 are zero, as those of a query that sees no key: what the query says about other keys
would be read off rounding errors.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.tensor.checks import FloatArray, require_probabilities
from headscape.tensor.network_tensor import WITHOUT_SINKS, NetworkTensor

SINK_SCORE, SHARE_OF_HEADS = 0.3, 0.05
FEWEST_QUERIES = 10
"""Fewer queries say nothing: uniform causal attention over nine keys already gives the first one 0.31."""
FAINT_ROW = 1e-6
LEFT_OUT = "left_out"
"""Where the provenance of a tensor without sinks names the queries and keys that are missing."""


def sink_scores(x: NetworkTensor) -> NDArray[np.float64]:
    """Return the mean attention that every key gets from the queries that see it, in every head.

    Parameters
    ----------
    x
        Probabilities, query x key x head.

    Returns
    -------
    (key, head) array
        Between 0 and 1; 0 for keys that fewer than 10 queries see.

    Notes
    -----
    O(L^2 H). A tensor has no mask: a square one that is 0 above its diagonal in all heads is taken for causal, in
    others every query sees every key. Queries without any attention (padding) are not counted.

    Examples
    --------
    >>> p = np.zeros((16, 16, 1))
    >>> p[:, 0] = 1.0
    >>> sink_scores(NetworkTensor(p, field="probs"))[:2, 0].tolist()
    [1.0, 0.0]
    """
    p = _probs(x)
    some = p.max(axis=2) > 0
    seen = np.broadcast_to(some.any(axis=1, keepdims=True), some.shape)
    if some.shape[0] == some.shape[1] and not np.triu(some, 1).any():
        seen = np.tril(seen)
    count = seen.sum(axis=0)
    scores: NDArray[np.float64] = p.sum(axis=0, dtype=np.float64) / np.maximum(count, 1)[:, np.newaxis]
    scores[count < FEWEST_QUERIES] = 0.0
    return scores


def sink_keys(x: NetworkTensor) -> tuple[int, ...]:
    """Return the keys that are sinks: a score above 0.3 in at least 5 % of the heads, and in one at least.

    Parameters
    ----------
    x
        Probabilities, query x key x head.

    Examples
    --------
    >>> p = np.full((16, 16, 2), 1 / 16)
    >>> p[:, :, 1], p[:, 4, 1] = 0.0, 1.0
    >>> sink_keys(NetworkTensor(p, field="probs"))
    (4,)
    """
    scores = sink_scores(x)
    fewest = max(1, math.ceil(SHARE_OF_HEADS * scores.shape[1]))
    return tuple(int(key) for key in np.flatnonzero((scores > SINK_SCORE).sum(axis=1) >= fewest))


def without_sinks(x: NetworkTensor, keys: Iterable[int] | None = None) -> NetworkTensor:
    """Return the probabilities with sinks left out and rows renormalized: the field "probs_without_sinks".

    Parameters
    ----------
    x
        Probabilities, query x key x head.
    keys
        The keys to leave out; by default those that :func:`sink_keys` finds, and without any the tensor stays as it is.

    Returns
    -------
    NetworkTensor
        Its provenance names the missing points under "left_out". In cross-attention (other queries than keys) all
        queries stay.

    Examples
    --------
    >>> p = np.tri(3) / np.arange(1, 4)[:, np.newaxis]
    >>> without_sinks(NetworkTensor(p, field="probs"), [0]).data.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    _probs(x)
    left = sorted({int(key) for key in (sink_keys(x) if keys is None else keys)})
    if any(not 0 <= key < x.shape[1] for key in left):
        raise InputError(f"keys must be from 0 to {x.shape[1] - 1}, but are {left}.")
    if len(left) == x.shape[1]:
        raise InputError(f"all {len(left)} keys are sinks: nothing is left without them.")
    left_out = {"query": left if _is_self_attention(x) else [], "key": left}
    kept = _without(x, left_out, WITHOUT_SINKS)
    if left:
        total = kept.data.sum(axis=1, keepdims=True, dtype=np.float64)
        factor = np.divide(1.0, total, out=np.zeros_like(total), where=total >= FAINT_ROW)
        kept.data[...] *= factor.astype(kept.data.dtype)
    return kept


def at_points_of(x: NetworkTensor, other: NetworkTensor) -> NetworkTensor:
    """Return a tensor of the same window without the queries and keys that another one leaves out."""
    left_out = other.provenance.get(LEFT_OUT)
    return x if left_out is None else _without(x, left_out, x.field)


def _without(x: NetworkTensor, left_out: dict[str, list[int]], field: str) -> NetworkTensor:
    """Return a copy of a tensor without some queries and keys."""
    rows, columns = (
        np.setdiff1d(np.arange(n), left_out[axis])
        for n, axis in zip(x.shape[:2], ("query", "key"), strict=True)
    )
    # As in a capture the head axis is the slowest in memory: each head is read in one run.
    heads_first = np.moveaxis(_three_axes(x), 2, 0)
    data: FloatArray = np.moveaxis(np.ascontiguousarray(heads_first[:, rows][:, :, columns]), 0, 2)
    return NetworkTensor(
        data if x.data.ndim == 3 else data[:, :, 0],
        heads=x.heads,
        tokens=None if x.tokens is None else [x.tokens[i] for i in rows],
        key_tokens=None if x.key_tokens is None else [x.key_tokens[i] for i in columns],
        field=field,
        provenance={**x.provenance, LEFT_OUT: left_out},
    )


def _is_self_attention(x: NetworkTensor) -> bool:
    cross = str(x.provenance.get("stack", "")).endswith("cross")
    return x.shape[0] == x.shape[1] and x.tokens == x.key_tokens and not cross


def _three_axes(x: NetworkTensor) -> FloatArray:
    return x.data if x.data.ndim == 3 else x.data[:, :, np.newaxis]


def _probs(x: NetworkTensor) -> FloatArray:
    """Return the numbers of a tensor with a head axis, or raise unless they are probabilities."""
    if x.field not in ("probs", "unknown"):
        raise InputError(
            f"sinks are found in probabilities, but the tensor holds {x.field!r}: use the field 'probs'."
        )
    require_probabilities(x.data)
    return _three_axes(x)
