"""The order of leaves and children: optimal inside the tree, set by the data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import average, leaves_list, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from headscape.geometry.partition_tree import PartitionTree


def ordered_leaves(
    tree: PartitionTree, emd: NDArray[np.float64], coordinates: NDArray[np.float64]
) -> PartitionTree:
    """Return the same tree with the leaf order that keeps near points side by side.

    Among the orders that keep every folder together, the one with the smallest sum of distances between
    neighbors: children of a folder are first joined in pairs by average linkage, then the binary tree is
    ordered optimally. Of the two directions, the one that rises with the first coordinate is taken (with the
    next one if the first does not tell them apart). Because distances decide, the order travels with
    permutations of the points.

    Parameters
    ----------
    tree
    emd : (n, n) array
        Distances between the points.
    coordinates : (n, m) array
        Coordinates of the points, the leading one first, with fixed signs.

    Notes
    -----
    At most O(n^2 log n) typically, O(n^4) in the worst case (Bar-Joseph et al.).

    References
    ----------
    Bar-Joseph, Gifford, Jaakkola, Fast optimal leaf ordering for hierarchical clustering, ISMB 2001.
    """
    n = tree.n_points
    order: NDArray[np.integer[Any]] = np.arange(n)
    if n > 2:
        order = leaves_list(optimal_leaf_ordering(_binarized(tree, emd), squareform(emd, checks=False)))
    rank = np.arange(n) - (n - 1) / 2
    slopes = rank @ coordinates[order]
    # An outlier at either end gives the leading coordinate the slope 0 up to rounding.
    telling = np.flatnonzero(
        np.abs(slopes) > 1e-6 * np.linalg.norm(rank) * np.linalg.norm(coordinates, axis=0)
    )
    if len(telling) and slopes[telling[0]] < 0:
        order = order[::-1]
    return tree.reordered(order)


def _binarized(tree: PartitionTree, emd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the tree as a scipy linkage matrix; folders of several children become binary by average linkage."""
    folders = tree.folders
    n = tree.n_points
    steps: list[tuple[float, float, float, float]] = []
    # For each folder: the number of its joint in the linkage.
    joint = np.full(tree.n_folders, -1)
    joint[tree.leaf_folders] = np.arange(n)
    sizes = dict.fromkeys(range(n), 1)

    def join(a: int, b: int) -> int:
        number = n + len(steps)
        sizes[number] = sizes[a] + sizes[b]
        steps.append((float(a), float(b), float(len(steps) + 1), float(sizes[number])))
        return number

    for index in np.flatnonzero(folders.size > 1)[::-1]:
        children = range(int(folders.child_start[index]), int(folders.child_stop[index]))
        joints = [int(joint[child]) for child in children]
        if len(joints) > 2:
            between = _mean_distances(tree, emd, children)
            for a, b, *_ in average(squareform(between, checks=False)):
                joints.append(join(joints[int(a)], joints[int(b)]))
        else:
            joints.append(join(joints[0], joints[1]))
        joint[index] = joints[-1]
    return np.asarray(steps)


def _mean_distances(tree: PartitionTree, emd: NDArray[np.float64], children: range) -> NDArray[np.float64]:
    folders = tree.folders
    order = tree.order[folders.start[children[0]] : folders.stop[children[-1]]]
    cuts = folders.start[children.start : children.stop] - folders.start[children[0]]
    sums = np.add.reduceat(np.add.reduceat(emd[np.ix_(order, order)], cuts, axis=0), cuts, axis=1)
    size = folders.size[children.start : children.stop]
    means = sums / np.multiply.outer(size, size)
    np.fill_diagonal(means, 0.0)
    return np.asarray(means)
