"""What several tests use: random trees, smooth tensors, the reference cases, the law of permutations."""

import json
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import headscape as hs
from headscape import PartitionTree

DATA = Path(__file__).parent / "data"
AXIS = {"row": "query", "col": "key", "chan": "head"}
WEIGHTS = {"a0b1": (0.0, 1.0), "a1b0": (1.0, 0.0)}


@cache
def reference(case: str) -> tuple[dict[str, np.ndarray], dict]:
    with np.load(DATA / f"case_{case}.npz") as arrays:
        return dict(arrays), json.loads((DATA / f"case_{case}.json").read_text())


def random_tree(n: int, rng: np.random.Generator) -> PartitionTree:
    """A tree of random depth and folder sizes, with shuffled points; some folders stay unchanged over levels."""
    labels = [np.arange(n)]
    while labels[-1].max() > 0:
        m = labels[-1].max() + 1
        groups = rng.integers(0, max(1, m // 2), size=m)
        _, groups = np.unique(groups, return_inverse=True)
        labels.append(groups[labels[-1]])
    stack = np.stack(labels[::-1])
    return PartitionTree(stack[:, rng.permutation(n)])


@st.composite
def trees(draw: st.DrawFn, min_points: int = 1, max_points: int = 24) -> PartitionTree:
    n = draw(st.integers(min_points, max_points))
    return random_tree(n, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))


def smooth_tensor(shape: tuple[int, ...], seed: int = 0, noise: float = 0.02) -> np.ndarray:
    """Smooth in one hidden coordinate per axis, generic enough to have no ties."""
    rng = np.random.default_rng(seed)
    hidden = [rng.random(n) for n in shape]
    grid = np.meshgrid(*hidden, indexing="ij")
    x = np.cos(sum((i + 1.3) * g for i, g in enumerate(grid))) + np.sin(2.1 * grid[0] * grid[-1])
    return x + noise * rng.standard_normal(shape)


def same_folders(tree: PartitionTree, levels: list[list[list[int]]]) -> bool:
    """Compare level by level, whatever the order of the folders."""
    mine = [sorted(map(sorted, level)) for level in tree.levels()]
    return mine == [sorted(map(sorted, level)) for level in levels]


def roughness(x: np.ndarray, order: np.ndarray, axis: int) -> float:
    return float(np.abs(np.diff(np.take(x, order, axis), axis=axis)).mean())


def require_equivariance(x, seed, *, same_order=True, **options):
    """Organize x plain and shuffled: the same folders, leaf orders, EMDs and entropies, carried over."""
    rng = np.random.default_rng(seed)
    shuffles = [rng.permutation(n) for n in x.shape]
    shuffled = x[np.ix_(*shuffles)]
    plain, moved = hs.organize(x, **options), hs.organize(shuffled, **options)
    for axis, shuffle in zip(plain.axes, shuffles, strict=True):
        # Point i of the shuffled tensor is point shuffle[i] of the plain one.
        if same_order:
            np.testing.assert_array_equal(shuffle[moved.order[axis]], plain.order[axis])
        carried = [sorted(sorted(shuffle[f].tolist()) for f in level) for level in moved.trees[axis].levels()]
        assert carried == [sorted(level) for level in plain.trees[axis].levels()]
        np.testing.assert_allclose(
            moved.emd[axis], plain.emd[axis][np.ix_(shuffle, shuffle)], rtol=1e-9, atol=1e-12
        )
    before, after = hs.head_entropy(x, plain.trees, 0.5), hs.head_entropy(shuffled, moved.trees, 0.5)
    np.testing.assert_allclose(after, before[shuffles[2]] if x.ndim == 3 else before, rtol=1e-9)
    return plain
