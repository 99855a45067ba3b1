"""Trees of particular shapes: uneven with many children, balanced, relabeled."""

import numpy as np

from headscape.geometry.partition_tree import PartitionTree


def uneven_tree(n: int, rng: np.random.Generator, most_children: int = 5) -> PartitionTree:
    """Return a tree on shuffled points whose folders have 2 to ``most_children`` children, unchanged ones too."""
    levels = [np.zeros(n, dtype=np.int64)]
    while len(np.unique(levels[-1])) < n:
        before, after, count = levels[-1], np.empty(n, dtype=np.int64), 0
        for folder in np.unique(before):
            points = np.flatnonzero(before == folder)
            m = len(points)
            # Now and then a folder stays as it is for a level.
            pieces = (
                1
                if m > 1 and rng.random() < 0.15
                else int(rng.integers(2, max(3, min(most_children, m) + 1)))
            )
            cuts = np.sort(rng.permutation(np.arange(1, m))[: min(pieces, m) - 1])
            for part in np.split(points, cuts):
                after[part] = count
                count += 1
        levels.append(after)
    return PartitionTree(np.array(levels)[:, rng.permutation(n)])


def balanced_tree(n: int) -> PartitionTree:
    """Return the binary tree that halves 0, ..., n - 1 (a power of two) in index order."""
    depth = int(np.log2(n))
    assert 2**depth == n
    return PartitionTree(np.stack([np.arange(n) >> shift for shift in range(depth, -1, -1)]))


def relabeled(tree: PartitionTree, permutation: np.ndarray) -> PartitionTree:
    """Return the tree of the points after x -> x[permutation]."""
    return PartitionTree(tree.labels[:, permutation])
