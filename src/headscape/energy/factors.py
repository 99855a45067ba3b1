"""The factors that all energy measures of a module start from, for all its heads at once."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from headscape.energy.delocalization import Delocalization, delocalization_of
from headscape.energy.query_key import DoubleArray, KeyFactors, as_double, key_factors, require_keys
from headscape.energy.spectrum import FIELD_SUBJECT, Spectrum
from headscape.tensor.attention_record import AttentionRecord


@dataclass(frozen=True, eq=False)
class ModuleFactors:
    """Factors of the fully centered energy fields E = U_Q (s R_Q R_K^T) U_K^T of the heads of one module.

    Parameters
    ----------
    queries : (head, min(query, d), d) array
        R_Q of every head.
    keys
        The factors of every key-value head.
    kv_head_of_heads : (head,) integers
        Which of them each head reads.
    singular_values : (head, n) array
        Those of the energy fields, largest first.
    scale, rank_bound, eps
        The factor of the dot product, the rank that no field exceeds, the rounding unit of the data.
    """

    queries: DoubleArray
    keys: tuple[KeyFactors, ...]
    kv_head_of_heads: NDArray[np.int64]
    singular_values: DoubleArray
    scale: float
    rank_bound: int
    eps: float

    def spectrum(self, head: int) -> Spectrum:
        """Return the spectrum of the energy field of a head."""
        return Spectrum(self.singular_values[head], self.rank_bound, FIELD_SUBJECT, self.eps)

    def delocalization(self, head: int) -> Delocalization:
        """Return how the variance of the energy field of a head is shared among the keys."""
        largest = float(self.singular_values[head, 0]) / abs(self.scale)
        return delocalization_of(self.queries[head], self.keys[self.kv_head_of_heads[head]], largest)


# A record is measured by more than one stage; its factors are kept as long as the record is.
_KEPT: "WeakKeyDictionary[AttentionRecord, ModuleFactors]" = WeakKeyDictionary()


def module_factors(
    record: AttentionRecord,
    n_queries: int | None = None,
    n_keys: int | None = None,
    shorter: ModuleFactors | None = None,
    shorter_queries: int = 0,
) -> ModuleFactors:
    """Factor the first queries and keys of all heads of a module; by default all.

    Parameters
    ----------
    record
        One attention module in one window.
    n_queries, n_keys
        How many of them.
    shorter, shorter_queries
        The factors of fewer queries, if they are known: only the queries beyond these are factored anew.

    Notes
    -----
    O(L d^2) per head, in batches over heads. Keys that heads share are factored once, and factors of whole windows
    are kept with the record.
    """
    most_queries, most_keys = record.queries.shape[1], record.keys.shape[1]
    n_queries, n_keys = min(n_queries or most_queries, most_queries), n_keys or most_keys
    whole = (n_queries, n_keys) == (most_queries, most_keys)
    if whole and record in _KEPT:
        return _KEPT[record]
    rows = as_double(record.queries[:, shorter_queries:n_queries])
    if shorter is not None:
        rows = np.concatenate([shorter.queries, rows], axis=1)
    queries: DoubleArray = np.asarray(np.linalg.qr(rows, mode="r"), dtype=np.float64)
    keys = tuple(key_factors(require_keys(of_head[:n_keys])) for of_head in record.keys)
    kv_heads = np.array([record.kv_head(head) for head in range(record.n_heads)])
    small = record.scale * queries @ np.stack([keys[kv_head].factor.T for kv_head in kv_heads])
    found = ModuleFactors(
        queries=queries,
        keys=keys,
        kv_head_of_heads=kv_heads,
        singular_values=np.linalg.svd(small, compute_uv=False),
        scale=record.scale,
        rank_bound=min(record.head_dim, n_queries, n_keys - 1),
        eps=float(np.finfo(record.queries.dtype).eps),
    )
    if whole:
        _KEPT[record] = found
    return found
