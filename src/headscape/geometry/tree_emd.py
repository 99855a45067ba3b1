"""The earth mover's distance of slices with respect to trees on the other axes (OA 15, arXiv 2506.15541)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.folder_averages import folder_sums, require_fit
from headscape.geometry.l1_kernel import ROW_BLOCK, SMALL_WORK, l1_distances, symmetric, upper_l1_distances
from headscape.geometry.partition_tree import PartitionTree, trees_of
from headscape.tensor.checks import as_float_array, require_finite
from headscape.tensor.network_tensor import axis_names

if TYPE_CHECKING:
    from headscape.geometry.organization import Organization

DEFAULT_MAX_BYTES = 1 << 30
_MAX_BLOCK_BYTES = 1 << 24
_MIN_BLOCKS = 16


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

    Returns
    -------
    (n, n) float64 array
        Symmetric, zero diagonal.

    Notes
    -----
    O(n^2 / 2 * folders of T_a * folders of T_b). The sum is additive over folders, so it is computed block by
    block of the folders of the axis with most folders. It is a distance: symmetric, with the triangle
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
    require_finite(array, "x")
    plan = _plan(array, trees_of(trees), axis, alpha, beta, max_bytes)
    engine = engine or LocalEngine()
    n = plan.rows.shape[1]
    total = np.zeros(())
    stage = f"EMD of {axis}"
    for done, part in enumerate(engine.map(plan.distances, plan.blocks())):
        total = total + part
        progress(stage, done + 1, plan.n_blocks)
    return symmetric(total[:n, :n]) * plan.unit


@dataclass(frozen=True)
class _Plan:
    """What the tasks share: the tensor with its axes as (outer, points, inner ...), and the trees.

    ``rows`` holds the slices of the outer axis, ``coarse`` the sums over its folders of several points;
    ``place`` tells for every outer folder where its sums are: row p of ``rows``, or row -1 - p of ``coarse``.
    """

    rows: NDArray[Any]
    coarse: NDArray[Any]
    place: NDArray[np.int64]
    outer: PartitionTree
    outer_weight: NDArray[np.float64]
    inner: tuple[PartitionTree, ...]
    inner_weight: NDArray[np.float64]
    unit: float
    block: int
    small: bool

    @property
    def n_blocks(self) -> int:
        return -(-self.outer.n_folders // self.block)

    def blocks(self) -> Iterator[range]:
        """Yield the blocks of outer folders; they do not depend on the number of threads."""
        for start in range(0, self.outer.n_folders, self.block):
            yield range(start, min(start + self.block, self.outer.n_folders))

    def distances(self, block: range) -> NDArray[np.float64]:
        """Return what one block of outer folders contributes to the upper triangle of the EMDs."""
        compiled = not self.small and len(self.inner) == 1
        features = self._compiled_features(block) if compiled else self._features(block)
        # Only the compiled features come padded to whole row blocks.
        return (
            upper_l1_distances(features, small=False)
            if compiled
            else l1_distances(features, small=self.small)
        )

    def _features(self, block: range) -> NDArray[Any]:
        """Return the (points, features) weighted averages over a block of outer and all inner folders."""
        places = self.place[block.start : block.stop]
        sums = np.stack([self.rows[p] if p >= 0 else self.coarse[-1 - p] for p in places], axis=1)
        for number, tree in enumerate(self.inner):
            sums = folder_sums(sums, tree, axis=2 + number)
        weight = np.multiply.outer(self.outer_weight[block.start : block.stop], self.inner_weight)
        return np.asarray(sums * weight.astype(sums.dtype)).reshape(len(sums), -1)

    def _compiled_features(self, block: range) -> NDArray[Any]:
        """Return the same through the compiled kernel, padded to whole row blocks."""
        from headscape.geometry._l1_numba import write_weighted_folder_sums

        (tree,) = self.inner
        points = self.rows.shape[1]
        out = np.zeros((points + -points % ROW_BLOCK, len(block) * tree.n_folders), dtype=self.rows.dtype)
        write_weighted_folder_sums(
            self.rows,
            self.coarse,
            self.place[block.start : block.stop],
            self.outer_weight[block.start : block.stop].astype(out.dtype),
            tree.leaf_folders,
            tree.folders.parent,
            self.inner_weight.astype(out.dtype),
            out,
        )
        return out


def _plan(
    x: NDArray[Any], trees: Mapping[str, PartitionTree], axis: str, alpha: float, beta: float, max_bytes: int
) -> _Plan:
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
    # The first of the other axes outside: it is cut into blocks, and rows are then nearly in the order of x.
    rows = np.ascontiguousarray(x.transpose([names.index(name) for name in [others[0], axis, *others[1:]]]))
    rows, unit = _scaled(rows)
    outer, *inner = (trees[name] for name in others)
    if not inner:
        # A matrix is a tensor with one more axis of a single point.
        rows, inner = rows[:, :, None], [PartitionTree.trivial(1)]
    inner_weight = np.ones(())
    for tree in inner:
        own = tree.weights(alpha, beta) if tree.n_points > 1 or len(others) > 1 else np.ones(1)
        inner_weight = np.multiply.outer(inner_weight, own / tree.folders.size)
    n = x.shape[names.index(axis)]
    folder_bytes = max(1, inner_weight.size * n * rows.itemsize)
    wanted = min(max_bytes // 8, _MAX_BLOCK_BYTES) // folder_bytes
    block = max(1, min(wanted, -(-outer.n_folders // _MIN_BLOCKS)))
    return _Plan(
        rows=rows,
        coarse=_coarse_sums(rows, outer),
        place=_places(outer),
        outer=outer,
        outer_weight=outer.weights(alpha, beta) / outer.folders.size,
        inner=tuple(inner),
        inner_weight=inner_weight,
        unit=unit,
        block=block,
        small=0.5 * n * n * outer.n_folders * inner_weight.size < SMALL_WORK,
    )


def _scaled(x: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Bring extreme scales near 1 by a power of two, which is exact, so that sums cannot overflow."""
    largest = max(abs(float(x.max())), abs(float(x.min())))
    if largest == 0.0 or 1e-12 < largest < 1e12:
        return x, 1.0
    exponent = int(np.frexp(largest)[1])
    return np.ldexp(x, -exponent), float(np.ldexp(1.0, exponent))


def _places(tree: PartitionTree) -> NDArray[np.int64]:
    """Return for every folder its point, or -1 - its number among the folders of several points."""
    several = tree.folders.size > 1
    number = np.cumsum(several.astype(np.int64))
    return np.where(several, -number, tree.order[tree.folders.start])


def _coarse_sums(rows: NDArray[Any], tree: PartitionTree) -> NDArray[Any]:
    """Sum the rows over the folders of several points: about half as large as the rows themselves."""
    folders = tree.folders
    several = np.flatnonzero(folders.size > 1)
    rank = np.cumsum(folders.size > 1) - 1
    out = np.empty((len(several), *rows.shape[1:]), dtype=rows.dtype)
    for index in several[::-1]:
        children = np.arange(folders.child_start[index], folders.child_stop[index])
        single = folders.size[children] == 1
        target = out[rank[index]]
        target[...] = 0
        for point in tree.order[folders.start[children[single]]]:
            target += rows[point]
        for child in rank[children[~single]]:
            target += out[child]
    return out
