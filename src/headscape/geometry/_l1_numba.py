"""The compiled kernels of the tree EMD, in a module of its own because importing numba takes a noticeable time."""

import numpy as np
from numba import njit

from headscape.geometry._l1_tile import (
    TILE_POINTS,
    VECTOR_BYTES,
    add_minima_tile,
    add_points,
    any_point,
    copy_points,
    scale_points,
    transpose_points,
)
from headscape.geometry.arranged import PANEL

FEATURES = 1024  # a lane sums at most so many terms in float32, and in float64 beyond


@njit(nogil=True, cache=True)
def _add_panels(x, p, q, features, out):  # type: ignore[no-untyped-def]
    """Add the sums of minima of the points of two panels."""
    lanes = VECTOR_BYTES // x.itemsize
    for begin in range(0, features, FEATURES):
        end = min(begin + FEATURES, features)
        for j in range(0, PANEL, lanes):
            for i in range(0, PANEL, TILE_POINTS):
                add_minima_tile(x, p, i, q, j, begin, end, out)


@njit(nogil=True, cache=True)
def add_minima(x, out):  # type: ignore[no-untyped-def]
    """Add the sums of minima of the points of all panels (panel, feature, PANEL) to the upper triangle of out."""
    features = x.shape[1]
    for q in range(len(x)):
        for p in range(q + 1):
            _add_panels(x, p, q, features, out)


@njit(nogil=True, cache=True)
def write_distances(minima, out):  # type: ignore[no-untyped-def]
    """Write the symmetric array of distances, given the sums of minima on and above the diagonal."""
    n = len(out)
    for first in range(0, n, PANEL):
        for j in range(n):
            for i in range(first, min(first + PANEL, j + 1)):
                # Rounding may leave less than nothing between points that are nearly equal.
                distance = max(minima[i, i] + minima[j, j] - 2.0 * minima[i, j], 0.0)
                out[i, j] = distance
                out[j, i] = distance


@njit(nogil=True, cache=True)
def _find_filled(source, leaf, parent, filled, kept):  # type: ignore[no-untyped-def]
    """Tell which panels differ from zero, write the inner folders that do for any point, and return how many do."""
    width = source.shape[1]
    some = np.zeros(len(parent), np.bool_)
    filled[:] = False
    for k in range(len(leaf)):
        for p in range(len(filled)):
            if any_point(source, k * width + p * PANEL):
                some[leaf[k]] = filled[p] = True
    for folder in range(len(parent) - 1, 0, -1):
        some[parent[folder]] |= some[folder]
    n = 0
    for folder in range(len(parent)):
        if some[folder]:
            kept[n] = folder
            n += 1
    return n


# Folders are summed for a panel of points at a time. Adding every folder to its parent, last to first, has no inner
# loop of unpredictable length.
@njit(nogil=True, cache=True)
def _write_sums(source, p, leaf, parent, kept, n, x):  # type: ignore[no-untyped-def]
    """Write the sums over the inner folders that are kept, and over single points, for the points of one panel."""
    width = source.shape[1]
    first = p * len(parent) * PANEL
    for new in range(n):
        x[p, kept[new]] = 0
    for k in range(len(leaf)):
        copy_points(x, first + leaf[k] * PANEL, source, k * width + p * PANEL)
    for new in range(n - 1, 0, -1):
        folder = kept[new]
        add_points(x, first + parent[folder] * PANEL, x, first + folder * PANEL)


@njit(nogil=True, cache=True)
def _write_features(x, p, kept, n, weight, shift):  # type: ignore[no-untyped-def]
    """Turn the sums of one panel into features: those that are kept side by side, weighted, less a shift."""
    first = p * x.shape[1] * PANEL
    for new in range(n):
        scale_points(x, first + new * PANEL, x, first + kept[new] * PANEL, weight[kept[new]], shift[new])


@njit(nogil=True, cache=True)
def _write_shift(panel, kept, n, weight, shift):  # type: ignore[no-untyped-def]
    """Write the means of the features over the points of a panel of sums."""
    for new in range(n):
        total = panel[kept[new], 0]
        for lane in range(1, PANEL):
            total += panel[kept[new], lane]
        shift[new] = total / np.float32(PANEL) * weight[kept[new]]


@njit(nogil=True, fastmath=True, cache=True)
def _negatives(panel, n, size):  # type: ignore[no-untyped-def]
    """Write the sums of the negative ones of the first n features of a panel: of their minima with 0."""
    size[:] = 0
    for new in range(n):
        for lane in range(PANEL):
            size[lane] += min(panel[new, lane], panel.dtype.type(0))


@njit(nogil=True, cache=True)
def add_folder_minima(  # type: ignore[no-untyped-def]
    rows, coarse, place, outer_weight, leaf, parent, inner_weight, signed, out
):
    """Add what a block of outer folders and all inner folders contribute to the upper triangle of the sums of minima.

    ``place`` says where the sums over an outer folder are: row p of ``rows`` (outer, inner, point) for p >= 0,
    row -1 - p of ``coarse`` otherwise. The number of points is a multiple of PANEL.

    Inner folders that are zero for all points are left out, and so are pairs of panels of which one is zero: their
    minima are the negative entries of the other, if there are any (``signed``). Where no panel is zero, features are
    counted from their means over some points: that changes no distance, and sums of minima stay as small as the
    differences.
    """
    panels, folders = rows.shape[2] // PANEL, len(parent)
    x = np.empty((panels, folders, PANEL), rows.dtype)
    size = np.zeros((panels, PANEL), np.float64)
    filled = np.zeros(panels, np.bool_)
    kept = np.empty(folders, np.int64)
    shift = np.empty(folders, rows.dtype)
    for f in range(len(place)):
        source = rows[place[f]] if place[f] >= 0 else coarse[-1 - place[f]]
        n = _find_filled(source, leaf, parent, filled, kept)
        weight = outer_weight[f] * inner_weight
        for p in range(panels):
            if filled[p]:
                _write_sums(source, p, leaf, parent, kept, n, x)
        shift[:] = 0
        if filled.all():
            _write_shift(x[(panels - 1) // 2], kept, n, weight, shift)
        for p in range(panels):
            if filled[p]:
                _write_features(x, p, kept, n, weight, shift)
        mixed = signed and not filled.all()
        if mixed:
            for p in range(panels):
                if filled[p]:
                    _negatives(x[p], n, size[p])
        for q in range(panels):
            for p in range(q + 1):
                if filled[p] and filled[q]:
                    _add_panels(x, p, q, n, out)
                elif mixed and filled[p]:
                    out[p * PANEL : (p + 1) * PANEL, q * PANEL : (q + 1) * PANEL] += size[p].reshape(-1, 1)
                elif mixed and filled[q]:
                    out[p * PANEL : (p + 1) * PANEL, q * PANEL : (q + 1) * PANEL] += size[q]


@njit(nogil=True, cache=True)
def _count_filled(rows, filled, count):  # type: ignore[no-untyped-def]
    """Set what lies beyond the points to zero, and count the entries of every point that are not zero."""
    points = len(count)
    filled[:] = 0
    for b in range(len(rows)):
        row = rows[b]
        row[points:] = 0
        for c in range(points):
            filled[c] += np.int32(row[c] != 0)
    for c in range(points):
        count[c] += filled[c]


@njit(nogil=True, cache=True)
def write_arranged(x, start, stop, out, count):  # type: ignore[no-untyped-def]
    """Write outer slices of x (outer, inner, point), whatever its strides, with the points side by side.

    The entries of every point that are not zero are counted.
    """
    inner, points = x.shape[1], x.shape[2]
    filled = np.empty(points, np.int32)
    for a in range(start, stop):
        for b in range(inner):
            out[a, b, :points] = x[a, b]
        _count_filled(out[a], filled, count)


@njit(nogil=True, cache=True)
def write_transposed(x, steps, of_outer, start, stop, out, count):  # type: ignore[no-untyped-def]
    """Do the same for an x whose neighbors in memory are outer (``of_outer``) or inner entries, PANEL at least.

    ``steps`` are the entries of memory from one (outer, inner, point) to the next. Squares over the points and the
    neighbors are transposed in registers; the last ones overlap those before.
    """
    inner, width, points = out.shape[1], out.shape[2], len(count)
    deep, wide = (PANEL, 1) if of_outer else (1, PANEL)
    next_row = inner * width if of_outer else width
    filled = np.empty(points, np.int32)
    for a0 in range(start, stop, deep):
        a = min(a0, stop - deep)
        for c0 in range(0, points, PANEL):
            c = min(c0, points - PANEL)
            for b0 in range(0, inner, wide):
                b = min(b0, inner - wide)
                at = a * steps[0] + b * steps[1] + c * steps[2]
                transpose_points(x, at, steps[2], out, (a * inner + b) * width + c, next_row)
    for a in range(start, stop):
        _count_filled(out[a], filled, count)


@njit(nogil=True, cache=True)
def write_coarse_sums(rows, leaf, parent, rank, start, stop, out):  # type: ignore[no-untyped-def]
    """Sum the rows (outer, inner, point) over the outer folders of several points, for inner slices start to stop.

    ``rank`` numbers the folders of several points. One inner slice at a time stays in the cache.
    """
    width = rows.shape[2]
    for k in range(start, stop):
        out[:, k, :] = 0
        for point in range(len(leaf)):
            target, row = out[rank[parent[leaf[point]]], k], rows[point, k]
            for c in range(width):
                target[c] += row[c]
        for folder in range(len(parent) - 1, 0, -1):
            if rank[folder] >= 0:
                target, row = out[rank[parent[folder]], k], out[rank[folder], k]
                for c in range(width):
                    target[c] += row[c]
