"""States in which the geometry of an axis says little: what was seen, what it means for the heads, what to do."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.diffusion import FLAT_EIGENVALUE, Eigenpairs, connected_pieces
from headscape.notices import DISCONNECTED_AFFINITY, EMD_NOT_SETTLED, FLAT_GEOMETRY, Notice

SETTLED = {"head": 0.03}
SETTLED_ELSEWHERE = 0.05
MORE_ITERATIONS = 2
"""Relative change of the median-scaled EMD below which an axis counts as settled."""

# Independent noise gives EMDs that agree within a few per cent and eigenvalues without a gap.
FLAT_SPREAD = 0.1
FLAT_GAP = 0.5
# A few isolated points only put a split of their own at the top of a tree.
FEW_ISOLATED = 0.1


def flat_geometry(axis: str, emd: NDArray[np.float64], pairs: Eigenpairs) -> list[Notice]:
    """Name an axis whose points are all alike or all equally far apart."""
    n = len(emd)
    if n <= 2:
        return []
    distances = emd[~np.eye(n, dtype=bool)]
    if distances.max() == 0:
        message = f"all {n} {plural(axis)} are identical (every EMD is 0), so there is nothing to organize"
        return [Notice(FLAT_GEOMETRY, message, axis)]
    quarter, median, three = np.quantile(distances, [0.25, 0.5, 0.75])
    spread = (three - quarter) / median if median > 0 else np.inf
    values = pairs.values[1:]
    gap = values[-1] / values[0] if values[0] > FLAT_EIGENVALUE else 1.0
    if spread >= FLAT_SPREAD or gap <= FLAT_GAP:
        return []
    meaning = (
        "so their tree and map show noise"
        if axis == "head"
        else "so their tree shows noise, and the Haar entropies of the heads rest on it"
    )
    message = (
        f"the {plural(axis)} are nearly equally far apart (interquartile range {100 * spread:.1f} % of the median EMD, "
        f"eigenvalue {len(values)} is {gap:.2f} of the first), {meaning}; try another field or longer windows"
    )
    return [Notice(FLAT_GEOMETRY, message, axis)]


def disconnected_affinity(axis: str, affinity: NDArray[np.float64]) -> list[Notice]:
    """Name an axis whose affinity falls into pieces."""
    sizes = np.bincount(connected_pieces(affinity))
    if len(sizes) == 1:
        return []
    n, apart = len(affinity), len(affinity) - int(sizes.max())
    seen = f"{apart} of {n} {plural(axis)} {'is' if apart == 1 else 'are'} isolated from the rest"
    harmless = axis != "head" and apart <= FEW_ISOLATED * n
    if harmless:
        meaning = "as attention sinks often are; the geometry of the heads is not affected, no action needed"
    elif axis == "head":
        meaning = (
            "so the coarsest levels of the head tree only split these off; read groups from the finer levels"
        )
    else:
        meaning = (
            f"so the coarsest levels of the {axis} tree only split these off, and the Haar entropies of the heads "
            "rest on it; compare with a larger eps_scale or the field without sinks"
        )
    return [Notice(DISCONNECTED_AFFINITY, f"{seen}, {meaning}", axis, affects_heads=not harmless)]


def unsettled_emd(axis: str, change: float, n_iter: int) -> list[Notice]:
    """Name an axis whose EMDs still changed in the last iteration."""
    limit = SETTLED.get(axis, SETTLED_ELSEWHERE)
    if not change > limit:
        return []
    meaning = (
        "The map and the tree of the heads may still change a little; repeat with more iterations (--n-iter "
        f"{n_iter + MORE_ITERATIONS})."
        if axis == "head"
        else f"The {axis} tree may still change; this matters for the heads only if their own distances still change."
    )
    message = (
        f"the distances between {plural(axis)} (earth mover's distances, EMDs) still changed by {100 * change:.1f} % "
        f"in the last of {n_iter} iterations; they count as settled below {100 * limit:.0f} %. {meaning}"
    )
    return [Notice(EMD_NOT_SETTLED, message, axis, affects_heads=axis == "head")]


def closed_tree(axis: str, notice: Notice) -> Notice:
    """Return what a builder says about its tree, with what it means for the heads."""
    meaning = (
        "read groups from the finer levels of the head tree"
        if axis == "head"
        else "heads are still compared on its finer levels, no action needed"
    )
    return replace(notice, message=f"{notice.message}; {meaning}", axis=axis, affects_heads=axis == "head")


def plural(axis: str) -> str:
    """Return the points of an axis in words."""
    return {"query": "queries", "key": "keys", "head": "heads"}.get(axis, f"points of {axis}")
