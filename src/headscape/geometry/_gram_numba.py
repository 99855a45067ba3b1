"""The compiled kernel of inner products, in a module of its own because importing numba takes a noticeable time."""

import numpy as np
from numba import njit

from headscape.geometry._l1_tile import TILE_POINTS, VECTOR_BYTES, add_products_tile
from headscape.geometry.arranged import PANEL

_LANES = VECTOR_BYTES // 8


@njit(nogil=True, cache=True)
def add_inner_products(rows, first, step, out):  # type: ignore[no-untyped-def]
    """Add inner products over the outer slices first, first + step, ... to the upper triangle of out, in float64.

    ``rows`` (outer, inner, point) are as :class:`headscape.geometry.arranged.Arranged` has them. Panels of points
    that are zero in a slice are left out.
    """
    inner, panels = rows.shape[1], rows.shape[2] // PANEL
    x = np.empty((panels, inner, PANEL), np.float64)
    filled = np.zeros(panels, np.bool_)
    for a in range(first, len(rows), step):
        for p in range(panels):
            some = rows.dtype.type(0)
            for b in range(inner):
                for lane in range(PANEL):
                    value = rows[a, b, p * PANEL + lane]
                    x[p, b, lane] = value
                    some = max(some, abs(value))
            filled[p] = some > 0
        for q in range(panels):
            for p in range(q + 1):
                if filled[p] and filled[q]:
                    for j in range(0, PANEL, _LANES):
                        for i in range(0, PANEL, TILE_POINTS):
                            add_products_tile(x, p, i, q, j, 0, inner, out)
