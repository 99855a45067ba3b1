"""The binary tree: balanced two-way splits from the root down."""

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.diffusion import FLAT_EIGENVALUE, markov_eigenpairs
from headscape.geometry.partition_tree import PartitionTree
from headscape.notices import TREE_CLOSED, Notice


def binary_tree(affinity: NDArray[np.float64]) -> tuple[PartitionTree, list[Notice]]:
    """Split every folder in two halves along the leading nontrivial eigenvector of its own affinity.

    Parameters
    ----------
    affinity : (n, n) array

    Returns
    -------
    tree, warnings
        Folders of one level differ by at most one point. Where a folder has no geometry (all its affinities
        are equal), the split follows the order of the points and a warning says so.

    Notes
    -----
    One eigendecomposition per folder: O(n^3) for the root, a quarter of that for each level below.

    Examples
    --------
    >>> near = np.exp(-np.abs(np.subtract.outer([0.0, 9.0, 1.0, 8.0], [0.0, 9.0, 1.0, 8.0])))
    >>> sorted(binary_tree(near)[0].levels()[1])
    [[0, 2], [1, 3]]
    """
    n = len(affinity)
    labels = [np.zeros(n, dtype=np.int64)]
    flat = 0
    folders = [np.arange(n)]
    while max(map(len, folders)) > 1:
        finer: list[NDArray[np.int64]] = []
        for folder in folders:
            if len(folder) == 1:
                finer.append(folder)
                continue
            order, shows = _order_along_leading(affinity[np.ix_(folder, folder)])
            flat += not shows
            half = (len(folder) + 1) // 2
            finer += [folder[order[:half]], folder[order[half:]]]
        folders = finer
        level = np.empty(n, dtype=np.int64)
        for number, folder in enumerate(folders):
            level[folder] = number
        labels.append(level)
    message = f"{flat} folders of equal points were split in the order of the points"
    return PartitionTree(np.stack(labels)), [Notice(TREE_CLOSED, message)] if flat else []


def _order_along_leading(affinity: NDArray[np.float64]) -> tuple[NDArray[np.int64], bool]:
    """Sort points along the leading nontrivial eigenvector; tell whether there is one to speak of."""
    if len(affinity) == 2:
        return np.arange(2), True
    pairs = markov_eigenpairs(affinity, 2)
    if pairs.values[1] <= FLAT_EIGENVALUE:
        return np.arange(len(affinity)), False
    return np.argsort(pairs.vectors[:, 1], kind="stable").astype(np.int64), True
