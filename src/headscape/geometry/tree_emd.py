"""The earth mover's distance of slices with respect to trees on the other axes (OA 15, arXiv 2506.15541)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.arranged import Arranged, Arrangements
from headscape.geometry.folder_averages import folder_sums, require_fit
from headscape.geometry.l1_kernel import SMALL_WORK, distances_of_minima, l1_distances, minima_array
from headscape.geometry.partition_tree import PartitionTree, trees_of
from headscape.tensor.checks import as_float_array, finite_bounds
from headscape.tensor.network_tensor import axis_names

if TYPE_CHECKING:
    from headscape.geometry.organization import Organization

DEFAULT_MAX_BYTES = 1 << 30
_MIN_BLOCKS = 16
_BLOCK_WORK = 2.0e7  # fewer differences are not worth a block of their own


def tree_emd(
    x: Any,
    trees: "Mapping[str, PartitionTree] | Organization",
    axis: str,
    alpha: float = 0.0,
    beta: float = 1.0,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    engine: Engine | None = None,
    progress: Progress = no_progress,
    arrangements: Arrangements | None = None,
) -> NDArray[np.float64]:
    """Return the tree EMD between all slices of a tensor along one axis.

        EMD(A_p, A_j) = sum over F in T_a, G in T_b, ... of w(F) w(G) ... |m(A_p - A_j, F x G x ...)|
        w(F) = (|F| / n)^beta * 2^(-alpha level(F)),  root: level 0                              (OA 15)

    Parameters
    ----------
    x : (query, key[, head]) array or NetworkTensor
        Finite numbers; zeros are data. The kernel computes in the dtype of x (float32 or float64).
    trees
        The trees of the other axes by name, or an organization; one for ``axis`` itself is not used.
    axis
        "query", "key" or "head".
    alpha, beta
        How the weight of a folder falls with its level, and grows with its size.
    max_bytes
        Bound on the memory of the averages that are held at a time. At least one folder of the outer tree
        with all of the others is held, whatever the bound.
    engine
        How the blocks of folders are spread; by default over local threads. The result does not depend on
        the number of threads.
    progress
        Called with ("EMD of AXIS", blocks done, blocks).
    arrangements
        Those of x, if several EMDs of it are computed: what they share is then computed once, and x is taken to be
        finite.

    Returns
    -------
    (n, n) float64 array
        Symmetric, zero diagonal.

    Notes
    -----
    O(n^2 / 2 * folders of T_a * folders of T_b). The sum is additive over folders, so it is computed block by
    block of the folders of the first of the other axes. Zeros are left out where a whole block of features is zero:
    causal attention takes half of the time. It is a distance: symmetric, with the triangle
    inequality, and zero only for equal slices, because single points are folders. For one tree and slices of
    equal sums it is exactly the transport cost W1 on the tree whose edge from F to its parent has length
    w(F)/|F|; for two trees it is at most the W1 of the ground metric "EMD of unit masses".

    Examples
    --------
    >>> tree = PartitionTree.trivial(2)
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> tree_emd(x, {"key": tree}, axis="query").tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    array = as_float_array(x, "x")
    if arrangements is None:
        arrangements = Arrangements(array, 0, finite_bounds(array, "x"), engine or LocalEngine())
    plan = _plan(arrangements, trees_of(trees), axis, alpha, beta, max_bytes)
    total = np.zeros(())
    stage = f"EMD of {axis}"
    for done, part in enumerate((engine or LocalEngine()).map(plan.contribution, plan.blocks())):
        total = part if done == 0 else np.add(total, part, out=total)
        progress(stage, done + 1, plan.n_blocks)
    return plan.emd(total)


@dataclass(frozen=True)
class _Plan:
    """What all blocks share: the trees of the other axes and the weights of their folders, per point of a folder."""

    outer: PartitionTree
    outer_weight: NDArray[np.float64]
    inner: tuple[PartitionTree, ...]
    inner_weight: NDArray[np.float64]
    unit: float
    block: int

    @property
    def n_blocks(self) -> int:
        return -(-self.outer.n_folders // self.block)

    def blocks(self) -> Iterator[range]:
        """Yield the blocks of outer folders; they do not depend on the number of threads."""
        for start in range(0, self.outer.n_folders, self.block):
            yield range(start, min(start + self.block, self.outer.n_folders))

    def contribution(self, block: range) -> NDArray[np.float64]:
        """Return what one block of outer folders contributes to the EMDs."""
        raise NotImplementedError

    def emd(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the EMDs from the sum over all blocks."""
        return total * self.unit


@dataclass(frozen=True)
class _PlainPlan(_Plan):
    """Small tensors, and those of four and more axes: averages by numpy. ``rows`` is (outer, point, inner ...)."""

    rows: NDArray[Any]
    small: bool

    def contribution(self, block: range) -> NDArray[np.float64]:
        sums = np.stack([self.rows[self.outer.folder(f)].sum(axis=0) for f in block], axis=1)
        for number, tree in enumerate(self.inner):
            sums = folder_sums(sums, tree, axis=2 + number)
        weight = np.multiply.outer(self.outer_weight[block.start : block.stop], self.inner_weight)
        features = np.asarray(sums * weight.astype(sums.dtype)).reshape(len(sums), -1)
        return l1_distances(features, small=self.small)


@dataclass(frozen=True)
class _CompiledPlan(_Plan):
    """All other tensors: averages and distances by the compiled kernel, one outer folder at a time.

    ``coarse`` holds the sums over the outer folders of several points; ``place`` tells for every outer folder where
    its sums are: row p of the arranged tensor, or row -1 - p of ``coarse``.
    """

    arranged: Arranged
    coarse: NDArray[Any]
    place: NDArray[np.int64]
    signed: bool

    def contribution(self, block: range) -> NDArray[np.float64]:
        from headscape.geometry._l1_numba import add_folder_minima

        (tree,) = self.inner
        rows = self.arranged.rows
        out = minima_array(rows.shape[2])
        add_folder_minima(
            rows,
            self.coarse,
            self.place[block.start : block.stop],
            self.outer_weight[block.start : block.stop].astype(rows.dtype),
            tree.leaf_folders,
            tree.folders.parent,
            self.inner_weight.astype(rows.dtype),
            self.signed,
            out,
        )
        return out

    def emd(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        distances = distances_of_minima(total, len(self.arranged.order))
        return self.arranged.restored(distances) * self.unit


def _plan(
    arrangements: Arrangements,
    trees: Mapping[str, PartitionTree],
    axis: str,
    alpha: float,
    beta: float,
    max_bytes: int,
) -> _Plan:
    x = arrangements.x
    names = axis_names(x.ndim)
    if x.ndim < 2 or 0 in x.shape:
        raise InputError(f"x must have at least 2 axes and none of them empty, but its shape is {x.shape}.")
    if axis not in names:
        raise InputError(f"axis must be one of {', '.join(names)}, but is {axis!r}.")
    if max_bytes < 1:
        raise InputError(f"max_bytes must be positive, but is {max_bytes}.")
    others = [name for name in names if name != axis]
    missing = [name for name in others if name not in trees]
    if missing:
        raise InputError(
            f"the EMD along {axis} needs trees of the axes {', '.join(others)}, but there is none for "
            f"{', '.join(missing)}."
        )
    for name in others:
        require_fit(x.shape[names.index(name)], trees[name], f"the axis {name}")
    outer, *inner = (trees[name] for name in others)
    # A matrix is a tensor with one more axis of a single point, whose folder weighs 1.
    inner = inner or [PartitionTree.trivial(1)]
    inner_weight = np.ones(())
    for tree in inner:
        own = tree.weights(alpha, beta) if len(others) > 1 else np.ones(1)
        inner_weight = np.multiply.outer(inner_weight, own / tree.folders.size)
    n = x.shape[names.index(axis)]
    work = 0.5 * n * n * outer.n_folders * inner_weight.size
    small = work < SMALL_WORK
    wanted = max_bytes // (8 * max(1, inner_weight.size * n * x.itemsize))
    n_blocks = min(_MIN_BLOCKS, 1 + int(work / _BLOCK_WORK)) if small else _MIN_BLOCKS
    block = max(1, min(wanted, -(-outer.n_folders // n_blocks)))
    common = (outer, outer.weights(alpha, beta) / outer.folders.size, tuple(inner), inner_weight)
    if small or len(inner) > 1:
        # The first of the other axes outside: it is cut into blocks.
        rows = arrangements.scaled.transpose([names.index(name) for name in [others[0], axis, *others[1:]]])
        rows = rows[:, :, None] if x.ndim == 2 else rows
        return _PlainPlan(*common, arrangements.unit, block, rows, small)
    arranged, coarse = arrangements.laid_out(names.index(axis), outer)
    kernel = (arranged, coarse, _places(outer), arrangements.signed)
    return _CompiledPlan(*common, arrangements.unit, block, *kernel)


def _places(tree: PartitionTree) -> NDArray[np.int64]:
    """Return for every folder its point, or -1 - its number among the folders of several points."""
    several = tree.folders.size > 1
    number = np.cumsum(several.astype(np.int64))
    return np.where(several, -number, tree.order[tree.folders.start])
