"""Pairwise L1 distances between rows: the kernel under the tree EMD.

Large inputs go through a numba kernel that sums up minima, two operations a feature and pair of rows:

    D_ij = M_ii + M_jj - 2 M_ij,   M_ij = sum over f of min(x_if, x_jf)

The sums for 16 x 16 pairs of rows stay in vector registers: float32 input is summed in float32 over at most 128 terms
and in float64 beyond, float64 input in float64 throughout. Features are counted from a value in their middle where
that costs no zeros, so that little is lost in the difference; equal rows have distance 0. Small inputs go through
scipy, so that a small run never waits for a compiler.
"""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from headscape.geometry.arranged import PANEL

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[[NDArray[Any], NDArray[np.float64]], None]

# Below this many absolute differences scipy needs less than a few tenths of a second.
SMALL_WORK = 2.0e8
_COPIED = 1024  # features that are brought into the layout of the kernel at a time


def l1_distances(rows: NDArray[Any], *, small: bool | None = None) -> NDArray[np.float64]:
    """Return the matrix of L1 distances between the rows of an array.

        D_ij = sum over f of | x_if - x_jf |

    Parameters
    ----------
    rows : (n, features) float32 or float64 array
    small
        Take the path without a compiled kernel; by default decided by the amount of work.

    Returns
    -------
    (n, n) float64 array
        Symmetric with a zero diagonal.

    Notes
    -----
    O(n^2 features / 2) absolute differences.

    Examples
    --------
    >>> l1_distances(np.array([[0.0, 1.0], [2.0, 5.0]])).tolist()
    [[0.0, 6.0], [6.0, 0.0]]
    """
    n, features = rows.shape
    if small is None:
        small = 0.5 * n * n * features < SMALL_WORK
    if small:
        return np.asarray(squareform(pdist(rows, "cityblock"), checks=False))
    return distances_of_minima(_minima(rows), n)


def minima_array(n: int) -> NDArray[np.float64]:
    """Return zeros for the sums of minima of n points, whose number is a multiple of PANEL.

    Rows are a little longer than n: at distances of 4 kB they would push each other out of the cache.
    """
    return np.zeros((n, n + PANEL // 2))


def distances_of_minima(minima: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return the L1 distances between the first n points, given the sums of minima on and above the diagonal."""
    from headscape.geometry._l1_numba import write_distances

    out = np.empty((n, n))
    write_distances(minima, out)
    return out


def _minima(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return an array whose entries on and above the diagonal are sums of minima; the others mean nothing."""
    n, features = rows.shape
    out = minima_array(n + -n % PANEL)
    # In blocks of features, so that no second copy of the rows is made.
    for begin in range(0, features, _COPIED):
        block = rows[:, begin : begin + _COPIED]
        panels = np.zeros((len(out) // PANEL, block.shape[1], PANEL), dtype=rows.dtype)
        middle = block.mean(axis=0, dtype=rows.dtype)
        for first in range(0, n, PANEL):
            panels[first // PANEL, :, : min(PANEL, n - first)] = (block[first : first + PANEL] - middle).T
        compiled_kernel()(panels, out)
    return out


def symmetric(upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric array with a zero diagonal that has these entries above the diagonal."""
    above = np.triu(upper, 1)
    return above + above.T


def kernels_are_loaded() -> bool:
    """Tell whether this process has loaded compiled kernels, so that others cost it no wait worth mentioning."""
    return "headscape.geometry._l1_numba" in sys.modules


@cache
def compiled_kernel() -> "Kernel":
    """Compile the kernel, or load it from numba's cache on disk."""
    from headscape.geometry._l1_numba import add_minima

    return add_minima
