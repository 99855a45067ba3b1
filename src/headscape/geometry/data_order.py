"""The order in which algorithms see the points of an axis, set by the data: ties do not depend on the input order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.partition_tree import IntArray

# Sums over the same numbers in another order agree to far more than this many binary digits.
_DIGITS = 36


def data_order(totals: NDArray[np.float64], x: NDArray[Any] | None = None, axis: int = 0) -> IntArray:
    """Sort the points of an axis by data.

    By their total distance (or affinity) to all others, then by the norm of their slice, and by index only where
    both agree. An algorithm that breaks ties by index does so by data if it is given the points in this order.

    Parameters
    ----------
    totals : (n,) array
    x : (..., n, ...) array
        The tensor whose slices along ``axis`` the points are; read only if totals agree.

    Returns
    -------
    (n,) array
        The points, sorted.

    Examples
    --------
    >>> data_order(np.array([3.0, 1.0, 1.0]), np.array([[1.0], [2.0], [0.0]])).tolist()
    [2, 1, 0]
    """
    keys = _significant(totals)
    if x is None or len(np.unique(keys)) == len(keys):
        return np.argsort(keys, kind="stable")
    axes = list(range(x.ndim))
    squares = np.einsum(x, axes, x, axes, [axis], dtype=np.float64)
    return np.lexsort((_significant(squares), keys))


def _significant(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to a number of binary digits, so that equal numbers stay equal however they were summed up."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, _DIGITS)), exponent - _DIGITS))
