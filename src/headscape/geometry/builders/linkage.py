"""The linkage tree: average linkage on the distances, cut into levels of given sizes."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import average
from scipy.spatial.distance import squareform

from headscape.geometry.partition_tree import PartitionTree

# Joints whose heights agree to this share of the highest are ties: a level keeps them all.
_EQUAL = 1e-9


def linkage_tree(distance: NDArray[np.float64], counts: Iterable[int]) -> PartitionTree:
    """Join the nearest folders by average linkage, and keep the partitions into given numbers of folders.

        d(F, G) = mean of d(x, y) over x in F, y in G

    Parameters
    ----------
    distance : (n, n) array
        Symmetric.
    counts
        The numbers of folders of the levels, in any order; root and single points are always there.

    Returns
    -------
    PartitionTree
        A level may have fewer folders than asked for: folders that are equally far apart join all at once, so
        duplicates stay together. Levels that come out equal are kept once.

    Notes
    -----
    O(n^2). A small change of the distances moves single joints; the greedy grouping of the flexible tree passes it
    on to all coarser levels. Joints of several equal distances follow the order of the points.

    Examples
    --------
    >>> places = np.array([0.0, 9.0, 1.0, 8.0])
    >>> linkage_tree(np.abs(places[:, None] - places), [2]).levels()[1]
    [[0, 2], [1, 3]]
    """
    n = len(distance)
    if n < 3:
        return PartitionTree.trivial(n)
    joints = average(squareform(0.5 * (distance + distance.T), checks=False))
    heights = joints[:, 2]
    tie = _EQUAL * heights[-1]
    # A level of k folders takes the first n - k joints, and further ones that are no higher.
    taken = {n - 1} | {
        int(np.searchsorted(heights, heights[n - k - 1] + tie, side="right")) for k in counts if 0 < k < n
    }
    labels = [_partition(joints[:, :2].astype(np.int64), steps) for steps in sorted(taken, reverse=True)]
    return PartitionTree(np.stack([*labels, np.arange(n)]))


def _partition(pairs: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Return the folder of every point after a number of joints."""
    n = len(pairs) + 1
    folder = np.arange(n + steps)
    for step in range(
        steps - 1, -1, -1
    ):  # a joint before its parts, so that the last name reaches the points
        folder[pairs[step]] = folder[n + step]
    return folder[:n]
