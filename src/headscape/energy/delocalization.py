"""Delocalization: over how many keys the variance of the energy field is spread (IS)."""

from dataclasses import dataclass

import numpy as np

from headscape.energy.query_key import (
    DoubleArray,
    KeyFactors,
    as_double,
    key_factors,
    require_query_key,
    triangular_factor,
)
from headscape.errors import InputError
from headscape.tensor.checks import as_float_array, require_finite


@dataclass(frozen=True, eq=False)
class Delocalization:
    """How the squares of a field are shared among the keys.

    Parameters
    ----------
    shares : (key,) array
        v_j, the share of key j; they sum to 1 (NaN for a zero field).
    bound
        What ``peak`` cannot exceed (see :func:`delocalization`); NaN where no bound is known.
    """

    shares: DoubleArray
    bound: float = float("nan")

    @property
    def participation(self) -> float:
        """Participation ratio 1 / (L sum v_j^2): 1 for a uniform field, 1/L for a single key."""
        return float(1 / (len(self.shares) * (self.shares**2).sum()))

    @property
    def peak(self) -> float:
        """L max v_j: 1 for a uniform field, L for a single key."""
        return len(self.shares) * float(self.shares.max())

    @property
    def peak_key(self) -> int:
        """The key with the largest share."""
        return int(self.shares.argmax())


def delocalization(queries: object, keys: object) -> Delocalization:
    """Return how the variance of the fully centered energy field is shared among the keys.

        v_j = sum_i E_ij^2 / sum_ij E_ij^2 = |R_Q (k_j - mean k)|^2 / sum of the same

    with the thin QR factor R_Q of the queries, and a bound that holds for every head,

        L max_j v_j <= L max_j |U_j|^2 / stable_rank(E),

    where U is an orthonormal basis of the range of the centered keys: with E = A U^T, column j of E is A U_j,
    no longer than the largest singular value times |U_j|.

    Parameters
    ----------
    queries : (query, d) array
    keys : (key, d) array
        After position encoding. The scale of the dot product cancels out.

    Returns
    -------
    Delocalization

    Notes
    -----
    O(L d^2); the field itself is never formed. The bound is for full centering only, and loose (3 to 25 times
    on real heads).

    References
    ----------
    IS, variance delocalization.

    Examples
    --------
    >>> result = delocalization(np.eye(2), [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> result.shares.tolist(), result.participation, result.peak
    ([0.5, 0.5, 0.0, 0.0], 0.5, 2.0)
    """
    query, key = require_query_key(queries, keys)
    factor, shared = triangular_factor(query), key_factors(key)
    return delocalization_of(factor, shared, float(np.linalg.norm(factor @ shared.factor.T, 2)))


def delocalization_of(query_factor: DoubleArray, keys: KeyFactors, largest: float) -> Delocalization:
    """Return the shares from R_Q, the factors of the keys, and the largest singular value of R_Q R_K^T."""
    # R_Q keeps all inner products of queries, so these short rows are as long as the columns of E.
    squares = ((keys.centered @ query_factor.T) ** 2).sum(axis=1)
    total = squares.sum()
    if total == 0:
        return Delocalization(np.full(len(squares), np.nan))
    stable_rank = total / largest**2
    return Delocalization(squares / total, bound=float(len(squares) * keys.leverage.max() / stable_rank))


def field_delocalization(field: object) -> Delocalization:
    """Return how the squares of any field, such as probabilities, are shared among the keys.

    Parameters
    ----------
    field : (query, key) array

    Notes
    -----
    O(L^2), one pass; no bound is known here.

    Examples
    --------
    >>> field_delocalization(np.ones((3, 4))).participation
    1.0
    """
    array = as_float_array(field, "the field")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"the field must be a matrix (query, key), but its shape is {array.shape}.")
    require_finite(array, "the field")
    squares = (as_double(array) ** 2).sum(axis=0)
    total = squares.sum()
    return Delocalization(squares / total if total > 0 else np.full(len(squares), np.nan))
