"""The questionnaire: organizes the axes of a tensor by each other (OA Algorithm 1, arXiv 2506.15541)."""

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.engine.blas import one_blas_thread
from headscape.errors import InputError
from headscape.geometry.affinity import INITIAL_AFFINITIES, emd_affinity
from headscape.geometry.arranged import local
from headscape.geometry.builders.grown import TREE_KINDS, TreeKind, grown_tree
from headscape.geometry.diagnosis import closed_tree, disconnected_affinity, flat_geometry, unsettled_emd
from headscape.geometry.diffusion import ONE_THREAD_LIMIT, Eigenpairs
from headscape.geometry.leaf_order import ordered_leaves
from headscape.geometry.median import median
from headscape.geometry.partition_tree import IntArray, PartitionTree
from headscape.geometry.slices import ArraySlices, Slices
from headscape.geometry.tree_emd import DEFAULT_MAX_BYTES
from headscape.notices import Notice
from headscape.tensor.checks import as_float_array, finite_bounds, require_integer, require_number
from headscape.tensor.network_tensor import with_axes

logger = logging.getLogger(__name__)

_KINDS = "'flexible', 'binary' or 'linkage'"
MAX_ITERATIONS, MAX_EIGENPAIRS = 1000, 10_000


@dataclass(frozen=True)
class Iteration:
    """What one iteration did to one axis.

    ``emd_change`` is the relative change of the median-scaled EMD against the iteration before,
    ``folder_jaccard`` the share of common folders; both NaN in the first.
    """

    tree: PartitionTree
    emd_change: float
    folder_jaccard: float


@dataclass
class Questionnaire:
    """Builds trees on all axes of a tensor, each from the EMD with respect to the trees of the others.

    Parameters
    ----------
    n_iter
        Number of iterations, from 1 to 1000.
    alpha, beta
        Folder weights of the EMD: 0, 1 for a network tensor (3-way), 1, 0 for one matrix (2-way).
    init
        Initial affinity of the axes: "cosine" or "gaussian".
    tree
        "flexible", "binary" or "linkage" (average linkage on the EMD, cut into levels of the flexible tree's sizes:
        steadier under noise), one word for all axes or a dict by axis.
    head_trees
        Which query and key trees the head axis sees: the "latest", or always the "initial" ones, as
        Algorithm 1 reads to the letter and the published numbers were made.
    eps_scale
        The scale of the affinity in medians of the EMD.
    tree_constant
        Larger values make the folders of flexible trees smaller.
    n_eigs
        Number of eigenpairs, the trivial one included.
    max_bytes
        Bound on the working memory of the EMDs.
    engine, progress
        How work is distributed; progress callback.

    Attributes
    ----------
    trees_, emd_, affinities_, eigenpairs_, history_
        Results by axis, after :meth:`fit`. Trees carry the optimal leaf order.
    initial_trees_
        The trees the first iteration started from (none for the last axis).
    warnings_
        Named states in which the geometry says little.

    Examples
    --------
    >>> x = np.add.outer(np.arange(6.0), np.arange(5.0))
    >>> q = Questionnaire(alpha=1.0, beta=0.0).fit(x)
    >>> sorted(q.trees_), q.trees_["key"].n_points
    (['key', 'query'], 5)
    """

    n_iter: int = 3
    alpha: float = 0.0
    beta: float = 1.0
    init: str = "cosine"
    tree: TreeKind | Mapping[str, TreeKind] = "flexible"
    head_trees: str = "latest"
    eps_scale: float = 1.0
    tree_constant: float = 1.0
    n_eigs: int = 12
    max_bytes: int = DEFAULT_MAX_BYTES
    engine: Engine = field(default_factory=LocalEngine, repr=False)
    progress: Progress = field(default=no_progress, repr=False)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that decide the result (not how it is computed), as plain values."""
        names = (
            "n_iter",
            "alpha",
            "beta",
            "init",
            "tree",
            "head_trees",
            "eps_scale",
            "tree_constant",
            "n_eigs",
        )
        values = {name: getattr(self, name) for name in names}
        return values | {"tree": self.tree if isinstance(self.tree, str) else dict(self.tree)}

    def fit(self, x: Any, axes: str | None = None) -> Self:
        """Organize a tensor of two or more axes.

        Parameters
        ----------
        x : NetworkTensor or array
            A plain array is (query, key[, head]).
        axes
            The axes of an array that is not: "layer,head,query,key", say, or "query,key,head,axis3" for a tensor
            of four axes that are organized by each other.
        """
        array = as_float_array(with_axes(x, axes), "x")
        if array.ndim < 2 or 0 in array.shape:
            raise InputError(
                f"x must have at least 2 axes and none of them empty, but its shape is {array.shape}."
            )
        bounds = finite_bounds(array, "x")
        # Threads of BLAS that found nothing to do on short axes would wait on the cores that the engine's threads need.
        short = max(array.shape) <= ONE_THREAD_LIMIT
        with one_blas_thread() if short else nullcontext():
            return self.fit_slices(ArraySlices(array, bounds, self.max_bytes, self.engine))

    def fit_slices(self, slices: Slices) -> Self:
        """Organize a tensor of which only the slices are known: how they are computed is their own matter."""
        names = slices.axes
        self.check(names)
        *others, last = names
        trees: dict[str, PartitionTree] = {}
        for axis in others:
            affinity = slices.initial_affinity(axis, self.init, self._stage(f"{axis}: "))
            order = slices.data_order(affinity.sum(axis=1), axis)
            trees[axis] = self._grow(affinity, 1.0 - affinity, axis, order)[0]
            if axis == others[0]:
                slices.prepare(last, trees)
        self.initial_trees_ = dict(trees)
        self.history_: dict[str, list[Iteration]] = {axis: [] for axis in names}
        self.emd_: dict[str, NDArray[np.float64]] = {}
        self.affinities_: dict[str, NDArray[np.float64]] = {}
        self.eigenpairs_: dict[str, Eigenpairs] = {}
        closed: dict[str, list[Notice]] = {}
        ordered: dict[str, Callable[[], PartitionTree]] = {}
        turn = (last, *others)
        # What the last tree changed is found out while the next one grows, which keeps one core busy.
        compare: Callable[[], None] = _nothing
        for iteration in range(self.n_iter):
            stage = self._stage(f"iteration {iteration + 1}/{self.n_iter}: ")
            for axis, following in zip(turn, (*others, last), strict=True):
                emd = slices.emd(axis, self._seen(axis, trees), self.alpha, self.beta, stage)
                if following != last or iteration + 1 < self.n_iter:
                    known = self._seen(following, trees)
                    growing = trees.get(axis)
                    slices.prepare(
                        following, {name: tree for name, tree in known.items() if tree is not growing}
                    )
                affinity = emd_affinity(emd, self.eps_scale)
                order = slices.data_order(emd.sum(axis=1), axis)
                compared = local(self.engine).begin(compare)
                trees[axis], pairs, closed[axis] = self._grow(affinity, emd, axis, order)
                compared()
                compare = partial(self._compare, axis, trees[axis], emd, self.emd_.get(axis))
                self.emd_[axis], self.affinities_[axis], self.eigenpairs_[axis] = emd, affinity, pairs
                if iteration + 1 == self.n_iter:
                    ordered[axis] = local(self.engine).begin(partial(self._ordered, trees[axis], axis))
        compare()
        self.warnings_: list[Notice] = [
            notice for axis in names for notice in self._notices(axis, closed[axis])
        ]
        self.trees_: dict[str, PartitionTree] = {}
        for done, axis in enumerate(names):
            self.progress("leaf order", done, len(names))
            self.trees_[axis] = ordered[axis]()
        for notice in self.warnings_:
            logger.info("%s", notice)  # the result carries it
        return self

    def _seen(self, axis: str, trees: Mapping[str, PartitionTree]) -> Mapping[str, PartitionTree]:
        """Return the trees that the EMD along an axis is computed with."""
        return self.initial_trees_ if axis == "head" and self.head_trees == "initial" else trees

    def _notices(self, axis: str, closed: list[Notice]) -> list[Notice]:
        return [
            *(closed_tree(axis, notice) for notice in closed),
            *flat_geometry(axis, self.emd_[axis], self.eigenpairs_[axis]),
            *disconnected_affinity(axis, self.affinities_[axis]),
            *unsettled_emd(axis, self.history_[axis][-1].emd_change, self.n_iter),
        ]

    def check(self, axes: tuple[str, ...] = ("query", "key", "head")) -> None:
        """Raise unless every parameter is of the right kind and within its bounds."""
        require_integer(self.n_iter, "n_iter", 1, MAX_ITERATIONS)
        require_integer(self.n_eigs, "n_eigs", 2, MAX_EIGENPAIRS)
        # Beyond these bounds the weights of small folders over- or underflow.
        for name in ("alpha", "beta"):
            require_number(getattr(self, name), name, -16, 16)
        for name in ("eps_scale", "tree_constant"):
            require_number(getattr(self, name), name, 1e-6, 1e6)
        if self.init not in tuple(INITIAL_AFFINITIES):
            raise InputError(f"init must be one of {', '.join(INITIAL_AFFINITIES)}, but is {self.init!r}.")
        if self.head_trees not in ("latest", "initial"):
            raise InputError(f"head_trees must be 'latest' or 'initial', but is {self.head_trees!r}.")
        if not isinstance(self.tree, str | Mapping):
            raise InputError(f"tree must be {_KINDS}, or a dict by axis, but is {self.tree!r}.")
        kinds = {"all axes": self.tree} if isinstance(self.tree, str) else dict(self.tree)
        for axis, kind in kinds.items():
            if kind not in TREE_KINDS or axis not in ("all axes", *axes):
                raise InputError(
                    f"tree must be {_KINDS}, or a dict from the axes {', '.join(axes)} to these, but says {kind!r} for "
                    f"{axis}."
                )

    def _grow(
        self, affinity: NDArray[np.float64], distance: NDArray[np.float64], axis: str, order: IntArray
    ) -> tuple[PartitionTree, Eigenpairs, list[Notice]]:
        kind = self.tree if isinstance(self.tree, str) else self.tree.get(axis, "flexible")
        return grown_tree(
            affinity, distance, order, kind=kind, tree_constant=self.tree_constant, n_eigs=self.n_eigs
        )

    def _compare(
        self, axis: str, tree: PartitionTree, emd: NDArray[np.float64], before: NDArray[np.float64] | None
    ) -> None:
        self.history_[axis].append(_iteration(tree, emd, before, self.history_[axis]))

    def _ordered(self, tree: PartitionTree, axis: str) -> PartitionTree:
        return ordered_leaves(tree, self.emd_[axis], self.eigenpairs_[axis].vectors[:, 1:])

    def _stage(self, prefix: str) -> Progress:
        def tell(stage: str, done: float, total: float) -> None:
            self.progress(prefix + stage, done, total)

        return tell if self.progress is not no_progress else no_progress


def _nothing() -> None:
    """Do nothing."""


def folder_jaccard(a: PartitionTree, b: PartitionTree) -> float:
    """Return the share of folders two trees have in common; root and single points count, as all folders do."""
    first, second = set(_members(a)), set(_members(b))
    return len(first & second) / len(first | second)


def _members(tree: PartitionTree) -> list[int]:
    """Return the points of every folder as the bits of a number, each folder from its children."""
    found = [0] * tree.n_folders
    for point, leaf in enumerate(tree.leaf_folders.tolist()):
        found[leaf] = 1 << point
    parents = tree.folders.parent.tolist()
    for folder in range(tree.n_folders - 1, 0, -1):
        found[parents[folder]] |= found[folder]
    return found


def _iteration(
    tree: PartitionTree,
    emd: NDArray[np.float64],
    before: NDArray[np.float64] | None,
    history: list[Iteration],
) -> Iteration:
    if before is None:
        return Iteration(tree, float("nan"), float("nan"))
    old, new = (e / (m if (m := median(e)) > 0 else 1.0) for e in (before, emd))
    size = float(np.linalg.norm(old))
    change = float(np.linalg.norm(new - old)) / size if size > 0 else float(np.any(new))
    return Iteration(tree, change, folder_jaccard(history[-1].tree, tree))
