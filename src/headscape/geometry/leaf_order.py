"""The order of leaves and children: optimal inside the tree, set by the data."""

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import average
from scipy.spatial.distance import squareform

from headscape.geometry.l1_kernel import kernels_are_loaded
from headscape.geometry.partition_tree import IntArray, PartitionTree

FloatArray64 = NDArray[np.float64]

# Path lengths that agree to this relative precision are equal, and the order of the tree decides.
_EQUAL = 1e-12
# Up to this many sums, one array of all of them is faster than a loop over slices.
_AT_ONCE = 1 << 15


def ordered_leaves(tree: PartitionTree, emd: FloatArray64, coordinates: FloatArray64) -> PartitionTree:
    """Return the same tree with the leaf order that keeps near points side by side.

    Among the orders that keep every folder together, the one with the smallest sum of distances between
    neighbors: children of a folder are first joined in pairs by average linkage, then the binary tree is
    ordered optimally. Of the two directions, the one that rises with the first coordinate is taken (with the
    next one if the first does not tell them apart). Equally short orders are told apart by the leaf order of the
    given tree.

    Parameters
    ----------
    tree
    emd : (n, n) array
        Distances between the points.
    coordinates : (n, m) array
        Coordinates of the points, the leading one first, with fixed signs.

    Notes
    -----
    O(n^3) at most: see :func:`optimal_leaf_order`.
    """
    n = tree.n_points
    order = tree.order
    if n > 2:
        order = optimal_leaf_order(_binarized(tree, emd), emd)
    rank = np.arange(n) - (n - 1) / 2
    slopes = rank @ coordinates[order]
    # An outlier at either end gives the leading coordinate the slope 0 up to rounding.
    telling = np.flatnonzero(
        np.abs(slopes) > 1e-6 * np.linalg.norm(rank) * np.linalg.norm(coordinates, axis=0)
    )
    if len(telling) and slopes[telling[0]] < 0:
        order = order[::-1]
    return tree.reordered(order)


def optimal_leaf_order(joints: IntArray, distance: FloatArray64) -> IntArray:
    """Return the shortest path through all leaves of a binary tree that keeps every subtree together.

        B(u, w) = min over m, k of B(u, m) + d(m, k) + B(k, w)

    is the shortest path through the leaves of a joint that starts at u in its one part and ends at w in the
    other; it crosses over from m to k, where m is in the half of u's part that u is not in, k likewise.

    Parameters
    ----------
    joints : (n - 1, 2) integers
        The two parts of every joint, as in a scipy linkage: 0, ..., n - 1 are the leaves, n + i is joint i.
    distance : (n, n) array
        Symmetric.

    Returns
    -------
    (n,) array
        The leaves from one end of the path to the other.

    Notes
    -----
    O(n^3) additions at most (n^3 / 8 for balanced trees), two (n, n) arrays. Minimizing over m first and over k
    then is what saves the fourth power. ``scipy.cluster.hierarchy.optimal_leaf_ordering`` is not optimal for most
    trees (scipy issue 11227).

    References
    ----------
    Bar-Joseph, Gifford, Jaakkola, Fast optimal leaf ordering for hierarchical clustering, ISMB 2001.

    Examples
    --------
    >>> places = np.array([0.0, 3.0, 1.0, 2.0])
    >>> optimal_leaf_order(np.array([[0, 2], [1, 3], [4, 5]]), np.abs(places[:, None] - places)).tolist()
    [0, 2, 3, 1]
    """
    if kernels_are_loaded():
        return _compiled_order(joints, distance)
    leaves, parts = _ranges(joints)
    d = distance[np.ix_(leaves, leaves)]
    best = np.zeros_like(d)
    for left, right in parts:
        a, b, c = left[0], right[0], right[-1]
        crossed = np.empty((b - a, c - b))
        for near, far in _halves(left):
            crossed[near.start - a : near.stop - a] = _shortest(best[near, far], d[far, b:c])
        for near, far in _halves(right):
            best[a:b, far] = _shortest(crossed[:, near.start - b : near.stop - b], best[near, far])
        best[b:c, a:b] = best[a:b, b:c].T
    return leaves[_shortest_path(parts, d, best)]


def _compiled_order(joints: IntArray, distance: FloatArray64) -> IntArray:
    """Return the same by the compiled function, at a tenth of the time; loading it takes longer than small trees."""
    from headscape.geometry._leaf_order_numba import write_leaf_order

    order = np.empty(len(joints) + 1, dtype=np.int64)
    write_leaf_order(np.asarray(joints, dtype=np.int64), np.ascontiguousarray(distance), _EQUAL, order)
    return order


Part = tuple[int, ...]  # where a part begins, where its two halves meet (unless it is a leaf), where it stops


def _ranges(joints: IntArray) -> tuple[IntArray, list[tuple[Part, Part]]]:
    """Return the leaves from left to right, and the two parts of every joint as ranges of them."""
    n = len(joints) + 1
    size = np.ones(2 * n - 1, dtype=np.int64)
    for i, pair in enumerate(joints):
        size[n + i] = size[pair].sum()
    start = np.zeros(2 * n - 1, dtype=np.int64)
    for i in range(n - 2, -1, -1):
        left, right = joints[i]
        start[left] = start[n + i]
        start[right] = start[n + i] + size[left]

    def part(number: int) -> Part:
        ends = (int(start[number]), int(start[number] + size[number]))
        return ends if number < n else (ends[0], int(start[joints[number - n, 1]]), ends[1])

    return np.argsort(start[:n]), [(part(left), part(right)) for left, right in joints]


def _halves(part: Part) -> list[tuple[slice, slice]]:
    """Return the pairs (half with one end of a path, half with the other end); a leaf is both ends."""
    if len(part) == 2:
        return [(slice(*part), slice(*part))]
    start, middle, stop = part
    return [(slice(start, middle), slice(middle, stop)), (slice(middle, stop), slice(start, middle))]


def _shortest(a: FloatArray64, b: FloatArray64) -> FloatArray64:
    """Return the min-plus product, min over m of a[i, m] + b[m, j]."""
    if a.size * b.shape[1] <= _AT_ONCE:
        return np.asarray((a[:, :, None] + b).min(axis=1))
    out: FloatArray64 = a[:, :1] + b[0]
    spare = np.empty_like(out)
    for m in range(1, len(b)):
        np.add.outer(a[:, m], b[m], out=spare)
        np.minimum(out, spare, out=out)
    return out


def _shortest_path(parts: list[tuple[Part, Part]], d: FloatArray64, best: FloatArray64) -> list[int]:
    """Follow the shortest path from the root down: split every joint between known ends where it crosses over."""
    inside = {(left[0], right[-1]): (left, right) for left, right in parts}
    left, right = parts[-1]
    ends = _first_smallest(best[left[0] : left[-1], right[0] : right[-1]])
    stack = [((left[0], right[-1]), left[0] + ends[0], right[0] + ends[1])]
    path: list[int] = []
    while stack:
        bounds, u, w = stack.pop()
        if u == w:
            path.append(u)
            continue
        left, right = inside[bounds] if u < w else inside[bounds][::-1]
        before, after = _other_half(left, u), _other_half(right, w)
        crossing = best[u, before, None] + d[before, after] + best[after, w]
        m, k = _first_smallest(crossing)
        stack.append(((right[0], right[-1]), after.start + k, w))
        stack.append(((left[0], left[-1]), u, before.start + m))
    return path


def _other_half(part: Part, end: int) -> slice:
    """Return the half of a part that the given end is not in."""
    return next(far for near, far in _halves(part) if near.start <= end < near.stop)


def _first_smallest(cost: FloatArray64) -> tuple[int, int]:
    """Return the place of the smallest entry, the first of equal ones."""
    row, column = np.unravel_index(int(np.argmax(cost <= cost.min() * (1 + _EQUAL))), cost.shape)
    return int(row), int(column)


def _binarized(tree: PartitionTree, emd: FloatArray64) -> IntArray:
    """Return the tree as joints of two; folders of several children become binary by average linkage."""
    folders = tree.folders
    n = tree.n_points
    joints: list[tuple[int, int]] = []
    # For each folder: its leaf, or n + the number of its joint.
    number = np.full(tree.n_folders, -1)
    number[tree.leaf_folders] = np.arange(n)
    for index in np.flatnonzero(folders.size > 1)[::-1]:
        children = range(int(folders.child_start[index]), int(folders.child_stop[index]))
        parts = [int(number[child]) for child in children]
        pairs = np.array([[0, 1]])
        if len(parts) > 2:
            pairs = average(squareform(_mean_distances(tree, emd, children), checks=False))[:, :2].astype(int)
        for a, b in pairs:
            joints.append((parts[a], parts[b]))
            parts.append(n + len(joints) - 1)
        number[index] = parts[-1]
    return np.asarray(joints)


def _mean_distances(tree: PartitionTree, emd: FloatArray64, children: range) -> FloatArray64:
    """Return the mean distances between the points of children of a folder."""
    folders = tree.folders
    order = tree.order[folders.start[children[0]] : folders.stop[children[-1]]]
    cuts = folders.start[children.start : children.stop] - folders.start[children[0]]
    sums = np.add.reduceat(np.add.reduceat(emd[np.ix_(order, order)], cuts, axis=0), cuts, axis=1)
    size = folders.size[children.start : children.stop]
    means = sums / np.multiply.outer(size, size)
    np.fill_diagonal(means, 0.0)
    return np.asarray(means)
