"""Queries and keys for the page, so small that the fields of every head fit in: it computes them when a head is chosen.

The heads that share keys are packed together. The scaled products of their queries Q (all heads, one below the other)
with the keys K, less the mean key, have the singular value decomposition s Q K^T = U S V^T; U S^1/2 and V S^1/2 take
the place of queries and keys. Both are rounded to whole numbers of steps, one step for all channels: where a channel
adds little to the products its numbers are small, and Deflate makes them short. A step that is right for one head is
too coarse for a sharper one, so every group has its own, chosen so that no probability is off by more than
``TOLERANCE``.

The mean key moves the logits of a query all alike, which softmax and energy do not see; a soft cap and sinks do, and
with these the keys stay as they are.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscape.tensor.attention_record import AttentionRecord, Float32Array
from headscape.tensor.fields import probs

TOLERANCE = 0.05
FIRST_ERROR, LEAST_ERROR, MOST_ERROR = 0.04, 0.002, 0.08
"""Standard deviations of the logits' error: of the first trial, and the bounds of what is chosen after it."""
MOST_SHARE = 0.05
"""The same as a share of what the products of a query spread."""
LARGEST = 32_000
# Small blocks: each channel has its own spread, and Deflate learns one code per block.
_DEFLATE_MEMORY = 5


@dataclass(frozen=True, eq=False)
class PackedGroup:
    """The packed queries and keys of the heads that share one key-value head.

    ``queries`` has one packed array per head, ``keys`` is one; ``rank`` channels each, in units of ``query_step``
    and ``key_step``. ``differences`` are the largest and the mean difference of every head's probabilities.
    """

    queries: tuple[bytes, ...]
    keys: bytes
    rank: int
    query_step: float
    key_step: float
    differences: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.keys) + sum(map(len, self.queries))


def pack_group(record: AttentionRecord, kv_head: int, heads: Sequence[int]) -> PackedGroup:
    """Pack the heads of a layer that read one key-value head."""
    queries, keys = _balanced(record, kv_head, heads)
    exact = [probs(record, head) for head in heads]

    def trial(error: float) -> tuple[NDArray[np.int64], NDArray[np.int64], float, float, NDArray[np.float64]]:
        query_step, key_step = _steps(queries, keys, error)
        q, k = np.rint(queries / query_step), np.rint(keys / key_step)
        used = np.maximum(1, np.max(np.flatnonzero(q.any(axis=(0, 1)) & k.any(axis=0)), initial=0) + 1)
        q, k = q[..., :used], k[..., :used]
        rounded = _rounded(record, heads, q * query_step, k * key_step)
        off = [np.abs(probs(rounded, i) - true) for i, true in enumerate(exact)]
        differences = np.array([[d.max(), d.mean()] for d in off])
        return q.astype(np.int64), k.astype(np.int64), query_step, key_step, differences

    # The difference grows with the error: one trial says which error is good.
    found = trial(FIRST_ERROR)
    wanted = FIRST_ERROR * 0.9 * TOLERANCE / max(found[4][:, 0].max(), 1e-9)
    # Where attention is nearly even, probabilities forgive much; the energy shall be seen there too.
    products = float(np.sqrt(np.mean((queries @ keys.T).var(axis=-1))))
    error = float(np.clip(wanted, LEAST_ERROR, min(MOST_ERROR, max(MOST_SHARE * products, LEAST_ERROR))))
    found = trial(error)
    while found[4][:, 0].max() > TOLERANCE and error > LEAST_ERROR:
        error = max(error / 1.5, LEAST_ERROR)
        found = trial(error)
    q, k, query_step, key_step, differences = found
    packed = tuple(pack_integers(of_head) for of_head in q)
    return PackedGroup(packed, pack_integers(k), q.shape[-1], query_step, key_step, differences)


def groups_of(record: AttentionRecord, heads: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield every key-value head that some of these heads read, with those heads."""
    for kv_head in sorted({record.kv_head(head) for head in heads}):
        yield kv_head, [head for head in heads if record.kv_head(head) == kv_head]


def pack_integers(values: NDArray[np.int64]) -> bytes:
    """Return (point, channel) integers channel by channel: first all low bytes, then all high bytes, deflated.

    The number v is stored as 2 v, or as -2 v - 1 if it is negative: small numbers have an empty high byte.

    Examples
    --------
    >>> list(zlib.decompress(pack_integers(np.array([[0, -1], [1, 300]]))))
    [0, 2, 1, 88, 0, 0, 0, 2]
    """
    folded = np.where(values < 0, -2 * values - 1, 2 * values).T
    planes = [(folded & 255).astype(np.uint8).tobytes(), (folded >> 8).astype(np.uint8).tobytes()]
    deflate = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, _DEFLATE_MEMORY)
    return deflate.compress(b"".join(planes)) + deflate.flush()


def bias_line(record: AttentionRecord, head: int) -> Float32Array | None:
    """Return the bias by key minus query, from 1 - queries to keys - 1, or None if it depends on more than that.

    Examples
    --------
    >>> q = np.zeros((1, 2, 1), np.float32)
    >>> bias = np.array([[[0.0, 1.0], [-1.0, 0.0]]], np.float32)
    >>> bias_line(AttentionRecord(0, q, q, 1.0, np.ones((2, 2), bool), bias=bias), 0).tolist()
    [-1.0, 0.0, 1.0]
    """
    assert record.bias is not None
    bias, visible = record.bias[head], record.visible_to(head)
    rows, columns = bias.shape
    place = np.arange(columns)[None, :] - np.arange(rows)[:, None] + rows - 1
    line = np.zeros(rows + columns - 1, dtype=np.float32)
    line[place[visible]] = bias[visible]
    return line if np.allclose(line[place[visible]], bias[visible], rtol=0, atol=1e-4) else None


def _balanced(
    record: AttentionRecord, kv_head: int, heads: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return queries (head, query, channel) and keys (key, channel) in the basis of the products' singular vectors."""
    keys = record.keys[kv_head].astype(np.float64)
    if record.softcap is None and record.sinks is None:
        keys = keys - keys.mean(axis=0)
    queries = record.queries[list(heads)].astype(np.float64) * record.scale
    q_basis, q_small = np.linalg.qr(queries.reshape(-1, queries.shape[-1]))
    k_basis, k_small = np.linalg.qr(keys)
    left, values, right = np.linalg.svd(q_small @ k_small.T, full_matrices=False)
    root = np.sqrt(values)
    shape = (len(heads), queries.shape[1], len(values))
    return (q_basis @ left * root).reshape(shape), k_basis @ right.T * root


def _steps(queries: NDArray[np.float64], keys: NDArray[np.float64], error: float) -> tuple[float, float]:
    """Return the steps of queries and keys at which their products are off by ``error``, as a standard deviation.

    Rounding to a step a has the variance a^2 / 12. Fewest bits are needed if each head's queries cause as much of the
    error as the keys, which are stored once for all of them.
    """
    share = len(queries) / (len(queries) + 1)
    found = []
    for of_it, own, other in ((share, queries, keys), (1 - share, keys, queries)):
        power = float((other**2).sum(axis=-1).mean())
        step = error * np.sqrt(12 * of_it / power) if power > 0 else 1.0
        found.append(max(step, float(np.abs(own).max(initial=0.0)) / LARGEST, 1e-30))
    return found[0], found[1]


def _rounded(
    record: AttentionRecord, heads: Sequence[int], queries: NDArray[np.float64], keys: NDArray[np.float64]
) -> AttentionRecord:
    """Return the record of these heads with the rounded queries and keys."""
    chosen = list(heads)
    return record.replace(
        queries=queries.astype(np.float32),
        keys=keys.astype(np.float32)[None],
        scale=1.0,
        visible=record.visible if record.visible.ndim == 2 else record.visible[chosen],
        bias=None if record.bias is None else record.bias[chosen],
        sinks=None if record.sinks is None else record.sinks[chosen],
        probs=None,
    )
