"""The binary tree: balanced two-way splits from the root down."""

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.diffusion import FLAT_EIGENVALUE, connected_pieces, markov_eigenpairs
from headscape.geometry.partition_tree import PartitionTree
from headscape.notices import TREE_CLOSED, Notice

# Entries of an eigenvector that agree to so many decimals are equal: the rest is rounding.
_DECIMALS = 9


def binary_tree(affinity: NDArray[np.float64]) -> tuple[PartitionTree, list[Notice]]:
    """Split every folder in two halves along the leading nontrivial eigenvector of its own affinity.

    Parameters
    ----------
    affinity : (n, n) array

    Returns
    -------
    tree, warnings
        Folders of one level differ by at most one point. Ties follow the next eigenvector, then the order of
        the points. Where a folder has no geometry (all its affinities are equal), only that order is left and
        a warning says so.

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
            finer += [np.sort(folder[order[:half]]), np.sort(folder[order[half:]])]
        folders = finer
        level = np.empty(n, dtype=np.int64)
        for number, folder in enumerate(folders):
            level[folder] = number
        labels.append(level)
    message = f"{flat} folders of equally distant points were halved arbitrarily"
    return PartitionTree(np.stack(labels)), [Notice(TREE_CLOSED, message)] if flat else []


def _order_along_leading(affinity: NDArray[np.float64]) -> tuple[NDArray[np.int64], bool]:
    """Sort points along the leading nontrivial eigenvector; tell whether there is one to speak of."""
    if len(affinity) == 2:
        return np.arange(2), True
    # Where the affinity falls apart, the leading vectors are constant on its pieces and the next one sorts inside.
    pairs = markov_eigenpairs(affinity, int(connected_pieces(affinity).max()) + 2)
    if pairs.values[1] <= FLAT_EIGENVALUE:
        return np.arange(len(affinity)), False
    leading = pairs.vectors[:, 1:]
    keys = np.round(leading / np.abs(leading).max(axis=0), _DECIMALS)
    return np.lexsort(keys[:, ::-1].T), True
