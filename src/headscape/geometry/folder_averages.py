"""Averages over the folders of a tree (OA 16, arXiv 2506.15541)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.partition_tree import PartitionTree


def folder_averages(x: NDArray[Any], tree: PartitionTree, axis: int = 0) -> NDArray[Any]:
    """Average x over every distinct folder of a tree along one axis.

        m(x, F) = (1 / |F|) sum over p in F of x_p                                             (OA 16)

    Parameters
    ----------
    x : (..., n, ...) array
        Any number of other axes.
    tree
        A tree on the n points of ``axis``.
    axis
        The axis that is averaged.

    Returns
    -------
    (..., n_folders, ...) array
        In the order of ``tree.folders``, the root first; the dtype of x.

    Notes
    -----
    Each folder is summed from its children, so the cost is O(n_folders) rows, not O(n * depth), and rounding
    grows with the depth of the tree instead of the number of points.

    Examples
    --------
    >>> tree = PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]])
    >>> folder_averages(np.array([1.0, 3.0, 8.0]), tree).tolist()
    [4.0, 8.0, 2.0, 1.0, 3.0]
    """
    require_fit(x.shape[axis], tree, f"axis {axis}")
    sums = folder_sums(x, tree, axis)
    size = tree.folders.size.astype(sums.dtype)
    sums /= size.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return sums


def folder_sums(x: NDArray[Any], tree: PartitionTree, axis: int) -> NDArray[Any]:
    """Sum x over every distinct folder of a tree along one axis, each folder from its children."""
    shape = list(x.shape)
    shape[axis] = tree.n_folders
    out = np.empty(shape, dtype=x.dtype)
    view = np.moveaxis(out, axis, 0)
    view[tree.leaf_folders] = np.moveaxis(x, axis, 0)
    folders = tree.folders
    for index in np.flatnonzero(folders.size > 1)[::-1]:
        np.add.reduce(
            view[folders.child_start[index] : folders.child_stop[index]], axis=0, out=view[index, ...]
        )
    return out


def require_fit(n: int, tree: PartitionTree, what: str) -> None:
    """Raise unless a tree has as many points as the axis it is used on."""
    if tree.n_points != n:
        raise InputError(
            f"the tree for {what} must have {n} points, but has {tree.n_points}. Build it from the same array."
        )
