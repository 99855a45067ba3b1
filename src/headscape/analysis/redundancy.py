"""Heads that others can stand for: an order of removal read off the tree of the heads and their EMD."""

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.data_order import data_order
from headscape.geometry.partition_tree import PartitionTree

FloatArray64 = NDArray[np.float64]


def redundancy_order(emd: FloatArray64, tree: PartitionTree) -> NDArray[np.int64]:
    """Return the points of a tree in an order of removal, the most redundant first.

    Level by level from the points to the root, every folder keeps one of the points that are left in it, its
    representative

        r(F) = argmin over i in F of sum over j in F of EMD(i, j)

    and the others go, those nearest to their representative first. The last one left is the root's.

    Parameters
    ----------
    emd : (n, n) array
        Distances between the points.
    tree
        On the same points.

    Returns
    -------
    (n,) array
        A permutation of the points.

    Notes
    -----
    O(n^2) a level. That two heads attend alike does not say that they write the same: this is a proposal to be
    tested, not a proof.

    Examples
    --------
    >>> tree = PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]]])
    >>> places = np.array([0.0, 1.0, 5.0, 5.5])
    >>> redundancy_order(np.abs(places[:, None] - places), tree).tolist()
    [3, 0, 2, 1]
    """
    n = tree.n_points
    if emd.shape != (n, n):
        raise InputError(f"emd must be ({n}, {n}) like the tree's points, but its shape is {emd.shape}.")
    # In data order, so that ties do not depend on how the points came.
    points = data_order(emd.sum(axis=1))
    emd = emd[np.ix_(points, points)]
    left = np.arange(n)
    order: list[int] = []
    for labels in tree.labels[::-1, points]:
        gone: list[tuple[float, int]] = []
        for folder in np.unique(labels[left]):
            members = left[labels[left] == folder]
            within = emd[np.ix_(members, members)]
            best = int(within.sum(axis=1).argmin())
            gone += [(float(within[i, best]), int(m)) for i, m in enumerate(members) if i != best]
        order += [point for _, point in sorted(gone)]
        left = np.setdiff1d(left, [point for _, point in gone])
    return points[[*order, *left]]
