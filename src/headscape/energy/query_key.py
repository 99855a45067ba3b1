"""Checks on the queries and keys of one head, and the centering of keys that every measure starts from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.tensor.checks import FloatArray, as_float_array, require_finite

DoubleArray = NDArray[np.float64]


def require_keys(keys: object, name: str = "keys") -> FloatArray:
    """Return keys as a (key, d) array of at least two finite keys, or raise."""
    array = as_float_array(keys, name)
    if array.ndim != 2:
        raise InputError(
            f"{name} must be the matrix (key, d) of one head, but its shape is {array.shape}. Give one head "
            "at a time, such as keys[0]."
        )
    length, d = array.shape
    if d == 0:
        raise InputError(f"{name} must have a head dimension of at least 1, but its shape is {array.shape}.")
    if length < 2:
        raise InputError(
            f"{name} must hold at least 2 keys, but there is {length}: with fewer the energy field is zero. "
            "Give a longer context."
        )
    require_finite(array, name)
    return array


def require_query_key(queries: object, keys: object) -> tuple[FloatArray, FloatArray]:
    """Return queries (query, d) and keys (key, d) of one head in their common dtype, or raise."""
    key = require_keys(keys)
    query = as_float_array(queries, "queries")
    if query.ndim != 2 or query.shape[0] == 0:
        raise InputError(
            f"queries must be the matrix (query, d) of one head, but the shape is {query.shape}. Give one "
            "head at a time, such as queries[0]."
        )
    if query.shape[1] != key.shape[1]:
        raise InputError(
            f"queries and keys must have the same head dimension, but queries have {query.shape[1]} and keys "
            f"{key.shape[1]}."
        )
    require_finite(query, "queries")
    dtype = np.result_type(query, key)
    return query.astype(dtype, copy=False), key.astype(dtype, copy=False)


def centered_keys(keys: FloatArray) -> FloatArray:
    """Subtract the mean key.

    Twice, because keys with a mean much larger than their spread lose digits in the first subtraction, and
    the rows of the energy field would no longer sum to zero at rounding level.
    """
    centered: FloatArray = keys - keys.mean(axis=0)
    centered -= centered.mean(axis=0)
    # Equal keys leave rounding dust of the mean behind, which would be read as structure.
    dust = 8 * np.finfo(keys.dtype).eps * np.abs(keys).max(axis=0)
    if bool((np.abs(centered) <= dust).all()):
        centered[:] = 0
    return centered


@dataclass(frozen=True, eq=False)
class KeyFactors:
    """What the measures of all heads that share some keys have in common.

    Parameters
    ----------
    centered : (key, d) array
        The keys minus their mean, in float64.
    factor : (min(key, d), d) array
        R of the thin QR of ``centered``.
    leverage : (key,) array
        Squared rows of an orthonormal basis of its column space.
    """

    centered: DoubleArray
    factor: DoubleArray
    leverage: DoubleArray


def key_factors(keys: FloatArray) -> KeyFactors:
    """Center keys and factor them, once for all heads that read them."""
    centered = as_double(centered_keys(as_double(keys)))
    basis, factor = _factored(centered)
    return KeyFactors(centered, factor, (basis**2).sum(axis=1))


def triangular_factor(rows: FloatArray) -> DoubleArray:
    """Return the R of a thin QR factorization in float64: all that products of singular values need."""
    return np.asarray(np.linalg.qr(as_double(rows), mode="r"), dtype=np.float64)


def leverage_scores(rows: DoubleArray) -> tuple[DoubleArray, int]:
    """Return |U_j|^2 for every row j of an orthonormal basis U of the column space, and its dimension."""
    basis = range_basis(rows)
    return (basis**2).sum(axis=1), basis.shape[1]


def range_basis(rows: DoubleArray) -> DoubleArray:
    """Return an orthonormal basis (n, rank) of the column space of an (n, d) matrix.

    By QR where the columns are independent, which is the rule and three times cheaper, else by an SVD.
    """
    return _factored(rows)[0]


def _factored(rows: DoubleArray) -> tuple[DoubleArray, DoubleArray]:
    """Return that basis, and the R of a thin QR factorization, computed once for both."""
    basis, factor = np.linalg.qr(rows)
    if rows.shape[0] > rows.shape[1]:
        pivots = np.abs(np.diagonal(factor))
        if pivots.min() > max(rows.shape) * np.finfo(np.float64).eps * pivots.max():
            return basis, factor
    left, values, _ = np.linalg.svd(rows, full_matrices=False)
    level = max(rows.shape) * np.finfo(np.float64).eps * values[0]
    return np.asarray(left[:, values > level], dtype=np.float64), factor


def as_double(array: FloatArray) -> DoubleArray:
    """Return an array in float64, without a copy if it is that already."""
    return array.astype(np.float64, copy=False)
