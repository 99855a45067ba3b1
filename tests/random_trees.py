"""Trees for tests: random, balanced, and as Hypothesis strategies."""

import numpy as np
from hypothesis import strategies as st

from headscape.geometry.partition_tree import PartitionTree


def random_tree(n: int, rng: np.random.Generator, most_children: int = 5) -> PartitionTree:
    """Return an uneven tree on shuffled points: folders with 2 to ``most_children`` children, unchanged ones too."""
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


@st.composite
def trees(draw: st.DrawFn, most_points: int = 24) -> PartitionTree:
    """Return a strategy for trees of 1 to ``most_points`` points."""
    n = draw(st.integers(1, most_points))
    return random_tree(n, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))
