"""Which folders of a tree can be relied on: how often they come back, as bootstrap support in phylogenetics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.head_geometry import mean_emd
from headscape.geometry.partition_tree import PartitionTree

FloatArray64 = NDArray[np.float64]
Grow = Callable[[FloatArray64], PartitionTree]

SAME_FOLDER = 0.8
"""Two folders are the same if their Jaccard index is at least this."""

SUPPORTED = 0.5
"""Folders that come back less often are faded in pictures, and no sentence is built on them."""


@dataclass(frozen=True, eq=False)
class TreeSupport:
    """How often each distinct folder of a head tree comes back, as shares of repetitions.

    Attributes
    ----------
    windows : (folder,) array
        In the trees of the single windows.
    noise : (folder,) array
        In the trees of the same mean EMDs with noise.
    both : (folder,) array
        In the trees of means over windows drawn with replacement, with noise: what another sample of windows
        would do. With one window the same as ``noise``.
    """

    windows: FloatArray64
    noise: FloatArray64
    both: FloatArray64


def tree_support(
    tree: PartitionTree,
    emds: Sequence[FloatArray64],
    window_trees: Sequence[PartitionTree],
    grow: Grow,
    *,
    noise: float = 0.001,
    draws: int = 20,
    seed: int = 0,
) -> TreeSupport:
    """Measure how often the folders of the tree of the mean EMDs come back.

    Parameters
    ----------
    tree
        Of the mean EMDs.
    emds, window_trees
        EMDs of every window, and the trees on them.
    grow
        Makes a tree of EMDs.
    noise, draws, seed
        Relative size of the noise, number of draws of each kind, and the seed of both.
    """
    rng = np.random.default_rng(seed)
    mean = mean_emd(emds)
    by_noise = folder_support(tree, [grow(noisy_emd(mean, noise, rng)) for _ in range(draws)])
    by_windows = folder_support(tree, window_trees)
    if len(emds) == 1:
        return TreeSupport(by_windows, by_noise, by_noise)
    means = (mean_emd([emds[i] for i in rng.integers(len(emds), size=len(emds))]) for _ in range(draws))
    both = folder_support(tree, [grow(noisy_emd(emd, noise, rng)) for emd in means])
    return TreeSupport(by_windows, by_noise, both)


def noisy_emd(emd: FloatArray64, size: float, rng: np.random.Generator) -> FloatArray64:
    """Return symmetric distances with independent normal relative noise of a given size."""
    upper = np.triu(rng.normal(size=emd.shape), k=1)
    return np.asarray(np.maximum(emd * (1 + size * (upper + upper.T)), 0.0))


def folder_support(
    tree: PartitionTree, trees: Sequence[PartitionTree], same: float = SAME_FOLDER
) -> FloatArray64:
    """Return for each distinct folder of a tree the share of other trees that have it.

    Parameters
    ----------
    tree, trees
        On the same points.
    same
        The Jaccard index |F n G| / |F u G| from which two folders are the same.

    Returns
    -------
    (folder,) array
        1 for the root and for single points, which every tree has. The root of another tree counts for the root
        only: it would vouch for any folder of most points.

    Notes
    -----
    One product of the 0/1 matrices (folder x point) of two trees each, O(folders^2 points).

    Examples
    --------
    >>> a, b = ([[[0, 1, 2, 3]], two, [[0], [1], [2], [3]]] for two in ([[0, 1], [2, 3]], [[0, 1], [2], [3]]))
    >>> folder_support(PartitionTree.from_levels(a), [PartitionTree.from_levels(b)]).tolist()
    [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    """
    support = np.ones(tree.n_folders)
    chosen = proper_folders(tree)
    if len(chosen) and len(trees):
        own = membership(tree, chosen)
        found = [_largest_jaccard(own, membership(other, proper_folders(other))) >= same for other in trees]
        support[chosen] = np.mean(found, axis=0)
    return support


def consensus_tree(trees: Sequence[PartitionTree], same: float = SAME_FOLDER) -> PartitionTree:
    """Return the tree of the folders that more than half of the trees have (majority rule).

    Folders are taken by how many trees have them, larger ones first among equals; one that is the same as, or
    overlaps, a folder taken before is left out. What is in no folder hangs from its parent as single points.

    Parameters
    ----------
    trees
        On the same points, at least one.
    same
        The Jaccard index from which two folders are the same; 1 gives the majority rule of phylogenetics to the
        letter, in which no two folders can overlap.

    References
    ----------
    Margush and McMorris, Consensus n-trees, Bulletin of Mathematical Biology 43 (1981).

    Examples
    --------
    >>> levels = [[[0, 1], [2, 3]], [[0, 1], [2], [3]], [[0, 1], [2, 3]]]
    >>> trees = [PartitionTree.from_levels([[[0, 1, 2, 3]], two, [[0], [1], [2], [3]]]) for two in levels]
    >>> consensus_tree(trees).levels()[1]
    [[0, 1], [2, 3]]
    """
    if len(trees) == 1:
        return trees[0]
    found = [(membership(tree, chosen := proper_folders(tree)), tree, chosen) for tree in trees]
    share = np.concatenate([folder_support(tree, trees, same)[chosen] for _, tree, chosen in found])
    folders = np.concatenate([rows for rows, _, _ in found])
    size = folders.sum(axis=1)
    taken: list[int] = []
    for i in np.lexsort((-size, -share)):
        if share[i] <= 0.5:
            break
        common = folders[taken] @ folders[i]
        apart = (common == 0) | (common == size[i]) | (common == size[taken])
        if apart.all() and (common < same * (size[i] + size[taken] - common)).all():
            taken.append(int(i))
    return _tree_of_folders(folders[taken] > 0)


def proper_folders(tree: PartitionTree) -> NDArray[np.int64]:
    """Return the distinct folders that are neither the root nor single points."""
    size = tree.folders.size
    return np.flatnonzero((size > 1) & (size < tree.n_points))


def membership(tree: PartitionTree, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the 0/1 matrix (folder x point) of some distinct folders of a tree."""
    place = tree.labels[-1]  # every folder is a range of the leaf order
    start, stop = tree.folders.start[chosen, None], tree.folders.stop[chosen, None]
    return np.asarray((place >= start) & (place < stop), dtype=np.float32)


def _largest_jaccard(own: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return for each row the largest Jaccard index with a row of the others; 0 if there are none."""
    common = own @ others.T
    union = own.sum(axis=1)[:, None] + others.sum(axis=1) - common
    return np.asarray((common / union).max(axis=1, initial=0.0))


def _tree_of_folders(folders: NDArray[np.bool_]) -> PartitionTree:
    """Return the tree of folders (folder x point) that are nested or disjoint, each a level below the one around it."""
    n = folders.shape[1]
    size = folders.sum(axis=1)
    inside = (folders.astype(np.int64) @ folders.T == size[:, None]) & (size[:, None] < size)
    depth = 1 + inside.sum(axis=1)
    labels = [np.zeros(n, dtype=np.int64)]
    for level in range(1, int(depth.max(initial=0)) + 1):
        row = len(folders) + np.arange(n)  # a point that no folder of this level holds stands alone
        for i in np.flatnonzero(depth == level):
            row[folders[i]] = i
        labels.append(row)
    return PartitionTree(np.stack([*labels, np.arange(n)]) if n > 1 else labels[0][None])
