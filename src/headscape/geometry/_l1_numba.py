"""The compiled L1 kernel, in a module of its own because importing numba alone takes a noticeable time."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

FEATURES = 1024  # float32 partial sums stay within this many terms
ROWS = 32  # two such row blocks of FEATURES float32 stay in a second-level cache


# fastmath lets the compiler keep one partial sum per vector lane; contiguous slices (instead of x[i, k]) let it
# see that nothing aliases. The 4 x 2 block keeps 8 sums and 6 operands in 16 vector registers.
@njit(nogil=True, fastmath=True, cache=True)
def _add_block(x, i, j, begin, end, out):  # type: ignore[no-untyped-def]
    a0 = x[i, begin:end]
    a1 = x[i + 1, begin:end]
    a2 = x[i + 2, begin:end]
    a3 = x[i + 3, begin:end]
    b0 = x[j, begin:end]
    b1 = x[j + 1, begin:end]
    zero = x.dtype.type(0)
    s00 = zero
    s01 = zero
    s10 = zero
    s11 = zero
    s20 = zero
    s21 = zero
    s30 = zero
    s31 = zero
    for k in range(end - begin):
        p = b0[k]
        q = b1[k]
        s00 += abs(a0[k] - p)
        s01 += abs(a0[k] - q)
        s10 += abs(a1[k] - p)
        s11 += abs(a1[k] - q)
        s20 += abs(a2[k] - p)
        s21 += abs(a2[k] - q)
        s30 += abs(a3[k] - p)
        s31 += abs(a3[k] - q)
    out[i, j] += s00
    out[i, j + 1] += s01
    out[i + 1, j] += s10
    out[i + 1, j + 1] += s11
    out[i + 2, j] += s20
    out[i + 2, j + 1] += s21
    out[i + 3, j] += s30
    out[i + 3, j + 1] += s31


@njit(nogil=True, cache=True)
def add_l1_distances(x: NDArray[np.floating], out: NDArray[np.float64]) -> None:
    """Add the L1 distances between the rows of x (a multiple of 4 of them) to the upper triangle of out."""
    n, features = x.shape
    for rows in range(0, n, ROWS):
        for columns in range(rows, n, ROWS):
            for begin in range(0, features, FEATURES):
                end = min(begin + FEATURES, features)
                for i in range(rows, min(rows + ROWS, n), 4):
                    for j in range(max(i, columns), min(columns + ROWS, n), 2):
                        _add_block(x, i, j, begin, end, out)


# The layout puts the features of a point side by side, so each (folder, point) is one short contiguous write
# that stays in the first-level cache while the tree is summed over it. Adding every folder to its parent, last
# to first, has no inner loop of unpredictable length.
@njit(nogil=True, fastmath=True, cache=True)
def write_weighted_folder_sums(rows, coarse, place, outer_weight, leaf, parent, weight, out):  # type: ignore[no-untyped-def]
    """Write the weighted sums over a block of outer folders and all inner folders, one row of out per point.

    ``place`` says where the sums over an outer folder are: row p of ``rows`` (outer, point, inner) for p >= 0,
    row -1 - p of ``coarse`` otherwise. ``out`` (point, features) is zero before.
    """
    points, inner = rows.shape[1], rows.shape[2]
    folders = len(weight)
    for f in range(len(place)):
        source = rows[place[f]] if place[f] >= 0 else coarse[-1 - place[f]]
        factor = outer_weight[f]
        for p in range(points):
            row = source[p]
            target = out[p, f * folders : (f + 1) * folders]
            for k in range(inner):
                target[leaf[k]] = row[k]
            for folder in range(folders - 1, 0, -1):
                target[parent[folder]] += target[folder]
            for folder in range(folders):
                target[folder] *= factor * weight[folder]
