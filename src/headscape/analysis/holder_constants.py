"""The constants of the Hoelder conditions in tree metrics (OA 2, arXiv 2506.15541)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.partition_tree import IntArray, PartitionTree

FloatArray64 = NDArray[np.float64]


def axis_constants(x: NDArray[Any], tree: PartitionTree, alpha: FloatArray64) -> FloatArray64:
    """Return the smallest constant of the Hoelder condition along the first axis, exactly, for every head.

        C = max over folders F of (max_F x - min_F x) / (|F| / n)^alpha                 (first line of OA 2)

    Parameters
    ----------
    x : (point, other, head) array
    tree
        A tree on the points of the first axis; the distance of two points is |smallest common folder| / n.
    alpha : (head,) array

    Returns
    -------
    (head,) array

    Notes
    -----
    The smallest common folder of the two extreme points of F lies in F, so the folders' ranges give the
    maximum over all pairs. O(size of x).

    Examples
    --------
    >>> axis_constants(np.array([0.0, 1.0, 5.0]).reshape(3, 1, 1), PartitionTree.trivial(3), np.array([0.5]))
    array([5.])
    """
    folders = tree.folders
    shape = (tree.n_folders, *x.shape[1:])
    low, high = np.empty(shape, dtype=x.dtype), np.empty(shape, dtype=x.dtype)
    low[tree.leaf_folders] = high[tree.leaf_folders] = x
    constant = np.zeros(x.shape[2])
    for index in np.flatnonzero(folders.size > 1)[::-1]:
        children = slice(folders.child_start[index], folders.child_stop[index])
        low[index], high[index] = low[children].min(axis=0), high[children].max(axis=0)
        width = (high[index] - low[index]).max(axis=0)
        constant = np.maximum(constant, width / (folders.size[index] / tree.n_points) ** alpha)
    return constant


def mixed_constants(
    x: NDArray[Any], query: PartitionTree, key: PartitionTree, alpha: FloatArray64, n_samples: int, seed: int
) -> FloatArray64:
    """Return a lower bound of the constant of the mixed Hoelder condition from sampled quadruples.

        max over sampled (a, b, c, d) of
        |f(b, d) - f(a, d) - f(b, c) + f(a, c)| / (dist(a, b) dist(c, d))^alpha            (last line of OA 2)

    Parameters
    ----------
    x : (query, key, head) array
    query, key
        Trees on the first two axes.
    alpha : (head,) array
    n_samples, seed
        How many quadruples, and their seed.

    Returns
    -------
    (head,) array

    Notes
    -----
    There are about 10^9 quadruples at 256 x 256, so they are sampled, all scales alike: a folder of each tree
    at random, then two of its children's points. More samples can only raise the bound.

    References
    ----------
    OA (arXiv 2506.15541), (2), last line.

    Examples
    --------
    >>> tree = PartitionTree.trivial(2)
    >>> mixed_constants(np.eye(2).reshape(2, 2, 1), tree, tree, np.array([0.5]), 10, 0)
    array([2.])
    """
    rng = np.random.default_rng(seed)
    best = np.zeros(x.shape[2])
    if query.n_points == 1 or key.n_points == 1:
        return best
    for size in _batches(n_samples, x.shape[2]):
        a, b, near = _point_pairs(query, size, rng)
        c, d, near_key = _point_pairs(key, size, rng)
        difference = np.abs(x[a, c] - x[a, d] - x[b, c] + x[b, d])
        distance = (near * near_key)[:, None] ** alpha
        best = np.maximum(best, (difference / distance).max(axis=0))
    return best


def _point_pairs(
    tree: PartitionTree, size: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray, FloatArray64]:
    """Draw pairs of points from different children of random folders, with their tree distances."""
    folders = tree.folders
    folder = rng.choice(np.flatnonzero(folders.size > 1), size=size)
    first_child = folders.child_start[folder]
    n_children = folders.child_stop[folder] - first_child
    one = rng.integers(n_children)
    other = (one + rng.integers(1, n_children)) % n_children
    a, b = (
        tree.order[rng.integers(folders.start[child], folders.stop[child])]
        for child in (first_child + one, first_child + other)
    )
    return a, b, folders.size[folder] / tree.n_points


def _batches(n_samples: int, n_heads: int) -> list[int]:
    """Split the samples so that a batch over all heads stays near 32 MB."""
    size = max(1, min(n_samples, (1 << 22) // n_heads))
    return [size] * (n_samples // size) + ([n_samples % size] if n_samples % size else [])
