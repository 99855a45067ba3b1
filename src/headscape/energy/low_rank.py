"""The energy field from its first components, and how far softmax moves with it (IS)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscape.energy.query_key import DoubleArray, as_double, centered_keys, require_query_key
from headscape.errors import InputError


@dataclass(frozen=True, eq=False)
class EnergyComponents:
    """The energy field as a short sum of products, E = sum_c left_c right_c^T, largest component first.

    Parameters
    ----------
    left : (query, n) array
        Left singular vectors times the singular values.
    right : (key, n) array
        Right singular vectors, orthonormal.
    """

    left: DoubleArray
    right: DoubleArray

    @property
    def variance_shares(self) -> DoubleArray:
        """Share of the variance that each component carries."""
        squares = (self.left**2).sum(axis=0)
        total = squares.sum()
        return squares / total if total > 0 else np.full_like(squares, np.nan)

    def field(self, k: int) -> DoubleArray:
        """Return the (query, key) field of the first k components: the closest one of that rank."""
        if not 0 <= k <= self.left.shape[1]:
            raise InputError(f"k must lie between 0 and {self.left.shape[1]} components, but is {k}.")
        return self.left[:, :k] @ self.right[:, :k].T


@dataclass(frozen=True, eq=False)
class LowRankSoftmax:
    """How far softmax moves when the energy field is cut to its first components.

    Parameters
    ----------
    components : (n,) integer array
        The numbers of components that were kept.
    variance : (n,) array
        Share of the variance they carry.
    divergence : (n, query) array
        KL(P || P_k) in nats per row: softmax of the whole field against that of its first k components.
    """

    components: NDArray[np.int64]
    variance: DoubleArray
    divergence: DoubleArray


def energy_components(queries: object, keys: object, scale: float) -> EnergyComponents:
    """Return the singular components of the fully centered energy field.

        E = U_Q (s R_Q R_K^T) U_K^T = sum_c sigma_c u_c v_c^T

    Parameters
    ----------
    queries : (query, d) array
    keys : (key, d) array
    scale
        The factor of the dot product.

    Returns
    -------
    EnergyComponents
        At most min(d, queries, keys) components. The pair ``left[:, :k]``, ``right[:, :k]`` is a head with
        head dimension k: the same attention from shorter queries and keys.

    Notes
    -----
    O(L d^2).

    References
    ----------
    IS, rank bound; Eckart and Young (1936): no field of rank k is closer.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> components = energy_components(*rng.normal(size=(2, 50, 3)), scale=1.0)
    >>> components.left.shape, components.field(1).shape
    ((50, 3), (50, 50))
    """
    query, key = require_query_key(queries, keys)
    q_basis, q_factor = np.linalg.qr(as_double(query))
    k_basis, k_factor = np.linalg.qr(centered_keys(as_double(key)))
    left, values, right = np.linalg.svd(scale * q_factor @ k_factor.T, full_matrices=False)
    return EnergyComponents(q_basis @ (left * values), k_basis @ right.T)


def low_rank_softmax(
    queries: object,
    keys: object,
    scale: float,
    components: Sequence[int],
    visible: NDArray[np.bool_] | None = None,
) -> LowRankSoftmax:
    """Return how far softmax moves when the energy field keeps only its first k components.

        KL_i(k) = sum over visible j of P_ij log(P_ij / P^k_ij),   P = softmax(E),  P^k = softmax(E_k)

    Parameters
    ----------
    queries : (query, d) array
    keys : (key, d) array
    scale
        The factor of the dot product.
    components
        The numbers k of components to keep.
    visible : (query, key) boolean array, optional
        Which keys each query sees; by default all.

    Returns
    -------
    LowRankSoftmax
        Rows without a visible key have divergence NaN.

    Notes
    -----
    O(L^2 k) for each k. A row constant drops out of softmax, so P is the head's own attention whatever the
    centering, as long as nothing but s q.k (no bias, soft-cap or sink) enters it.

    References
    ----------
    IS, consequences of the rank bound.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> moved = low_rank_softmax(*rng.normal(size=(2, 50, 3)), scale=1.0, components=[1, 2, 3])
    >>> moved.divergence.shape, bool(moved.divergence[2].max() < 1e-12)
    ((3, 50), True)
    """
    parts = energy_components(queries, keys, scale)
    shape = (len(parts.left), len(parts.right))
    seen = np.ones(shape, dtype=bool) if visible is None else np.asarray(visible, dtype=bool)
    if seen.shape != shape:
        raise InputError(f"visible must have the shape (query, key) = {shape}, but has {seen.shape}.")
    whole = _log_softmax(parts.field(parts.left.shape[1]), seen)
    p = np.exp(whole, where=seen, out=np.zeros(shape))
    empty = ~seen.any(axis=1)
    rows = []
    for k in components:
        gap = np.subtract(whole, _log_softmax(parts.field(k), seen), where=seen, out=np.zeros(shape))
        rows.append(np.where(empty, np.nan, np.maximum((p * gap).sum(axis=1), 0.0)))
    shares = np.concatenate([[0.0], np.cumsum(parts.variance_shares)])
    kept = np.asarray(components, dtype=np.int64)
    return LowRankSoftmax(kept, shares[kept], np.reshape(rows, (len(kept), shape[0])))


def _log_softmax(field: DoubleArray, seen: NDArray[np.bool_]) -> DoubleArray:
    """Return log softmax over the visible keys; masked entries hold no meaning."""
    top = np.max(field, axis=1, keepdims=True, where=seen, initial=-np.inf)
    shifted = field - np.where(np.isfinite(top), top, 0.0)
    weight = np.exp(shifted, where=seen, out=np.zeros(field.shape)).sum(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.where(weight > 0, weight, 1.0)))
