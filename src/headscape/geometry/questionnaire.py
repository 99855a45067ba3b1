"""The questionnaire: organizes the axes of a tensor by each other (OA Algorithm 1)."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.affinity import AFFINITY_FLOOR, INITIAL_AFFINITIES, emd_affinity
from headscape.geometry.builders.binary import binary_tree
from headscape.geometry.builders.flexible import flexible_tree
from headscape.geometry.diffusion import FLAT_EIGENVALUE, Eigenpairs, markov_eigenpairs
from headscape.geometry.leaf_order import ordered_leaves
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.tree_emd import DEFAULT_MAX_BYTES, tree_emd
from headscape.notices import DISCONNECTED_AFFINITY, EMD_NOT_SETTLED, FLAT_GEOMETRY, Notice
from headscape.tensor.checks import as_float_array, require_finite
from headscape.tensor.network_tensor import axis_names

logger = logging.getLogger(__name__)

TreeKind = Literal["flexible", "binary"]

SETTLED = {"head": 0.03}
SETTLED_ELSEWHERE = 0.05
"""Relative change of the median-scaled EMD below which an axis counts as settled."""

# Independent noise gives EMDs that agree within a few per cent and eigenvalues without a gap.
FLAT_SPREAD = 0.1
FLAT_GAP = 0.5


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
        Number of iterations.
    alpha, beta
        Folder weights of the EMD: 0, 1 for a network tensor (3-way), 1, 0 for one matrix (2-way).
    init
        Initial affinity of the axes: "cosine" or "gaussian".
    tree
        "flexible" or "binary", one word for all axes or a dict by axis.
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
        How work is spread, and who is told how far it is.

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

    def fit(self, x: Any) -> Self:
        """Organize a tensor of two or more axes; a plain array is (query, key[, head])."""
        array = as_float_array(x, "x")
        if array.ndim < 2 or 0 in array.shape:
            raise InputError(
                f"x must have at least 2 axes and none of them empty, but its shape is {array.shape}."
            )
        require_finite(array, "x")
        axes = axis_names(array.ndim)
        self._check(axes)
        *others, last = axes
        self.warnings_: list[Notice] = []
        initial = INITIAL_AFFINITIES[self.init]
        trees: dict[str, PartitionTree] = {}
        for place, axis in enumerate(others):
            trees[axis], _ = self._grow(initial(array, place, self._stage(f"{axis}: ")), axis, None)
        self.initial_trees_ = dict(trees)
        self.history_: dict[str, list[Iteration]] = {axis: [] for axis in axes}
        self.emd_: dict[str, NDArray[np.float64]] = {}
        self.affinities_: dict[str, NDArray[np.float64]] = {}
        self.eigenpairs_: dict[str, Eigenpairs] = {}
        closed: dict[str, list[Notice]] = {}
        for iteration in range(self.n_iter):
            for axis in (last, *others):
                seen = self.initial_trees_ if axis == "head" and self.head_trees == "initial" else trees
                emd = tree_emd(
                    array,
                    seen,
                    axis,
                    self.alpha,
                    self.beta,
                    max_bytes=self.max_bytes,
                    engine=self.engine,
                    progress=self._stage(f"iteration {iteration + 1}/{self.n_iter}: "),
                )
                affinity = emd_affinity(emd, self.eps_scale)
                pairs = markov_eigenpairs(affinity, self.n_eigs)
                trees[axis], closed[axis] = self._grow(affinity, axis, pairs)
                before = self.emd_.get(axis)
                self.history_[axis].append(_iteration(trees[axis], emd, before, self.history_[axis]))
                self.emd_[axis], self.affinities_[axis], self.eigenpairs_[axis] = emd, affinity, pairs
        self.trees_: dict[str, PartitionTree] = {}
        for done, axis in enumerate(axes):
            self.progress("leaf order", done, len(axes))
            self.trees_[axis] = self._ordered(trees[axis], axis)
        self.warnings_ = [w for axis in axes for w in (*closed[axis], *self._states(axis))]
        for warning in self.warnings_:
            logger.warning("%s", warning)
        return self

    def _check(self, axes: tuple[str, ...]) -> None:
        if self.n_iter < 1:
            raise InputError(f"n_iter must be at least 1, but is {self.n_iter}.")
        if self.init not in INITIAL_AFFINITIES:
            raise InputError(f"init must be one of {', '.join(INITIAL_AFFINITIES)}, but is {self.init!r}.")
        if self.head_trees not in ("latest", "initial"):
            raise InputError(f"head_trees must be 'latest' or 'initial', but is {self.head_trees!r}.")
        if not np.isfinite([self.alpha, self.beta]).all():
            raise InputError(f"alpha and beta must be finite, but are {self.alpha}, {self.beta}.")
        kinds = {"all axes": self.tree} if isinstance(self.tree, str) else dict(self.tree)
        for axis, kind in kinds.items():
            if kind not in ("flexible", "binary") or axis not in ("all axes", *axes):
                raise InputError(
                    f"tree must be 'flexible' or 'binary', or a dict from the axes {', '.join(axes)} to these, but "
                    f"says {kind!r} for {axis}."
                )

    def _grow(
        self, affinity: NDArray[np.float64], axis: str, pairs: Eigenpairs | None
    ) -> tuple[PartitionTree, list[Notice]]:
        kind = self.tree if isinstance(self.tree, str) else self.tree.get(axis, "flexible")
        if kind == "binary":
            tree, found = binary_tree(affinity)
        else:
            tree, found = flexible_tree(
                affinity, tree_constant=self.tree_constant, n_eigs=self.n_eigs, eigenpairs=pairs
            )
        return tree, [Notice(w.name, w.message, axis) for w in found]

    def _ordered(self, tree: PartitionTree, axis: str) -> PartitionTree:
        return ordered_leaves(tree, self.emd_[axis], self.eigenpairs_[axis].vectors[:, 1:])

    def _stage(self, prefix: str) -> Progress:
        def tell(stage: str, done: float, total: float) -> None:
            self.progress(prefix + stage, done, total)

        return tell if self.progress is not no_progress else no_progress

    def _states(self, axis: str) -> list[Notice]:
        emd, affinity, values = self.emd_[axis], self.affinities_[axis], self.eigenpairs_[axis].values[1:]
        n = len(emd)
        found = []
        if n > 2:
            distances = emd[~np.eye(n, dtype=bool)]
            quarter, median, three = np.quantile(distances, [0.25, 0.5, 0.75])
            spread = (three - quarter) / median if median > 0 else np.inf
            gap = values[-1] / values[0] if values[0] > FLAT_EIGENVALUE else 1.0
            if distances.max() == 0:
                found.append(Notice(FLAT_GEOMETRY, "all points are equal: every EMD is zero", axis))
            elif spread < FLAT_SPREAD and gap > FLAT_GAP:
                found.append(
                    Notice(
                        FLAT_GEOMETRY,
                        f"the points are nearly equally far apart (interquartile range {spread:.1%} of the median "
                        f"EMD, eigenvalue {len(values)} is {gap:.2f} of the first): what the tree shows is noise",
                        axis,
                    )
                )
        pieces, piece = connected_components(affinity >= AFFINITY_FLOOR, directed=False)
        if pieces > 1:
            apart = n - int(np.bincount(piece).max())
            found.append(
                Notice(
                    DISCONNECTED_AFFINITY,
                    f"the affinity falls into {pieces} pieces; {apart} of {n} points lie outside the largest",
                    axis,
                )
            )
        change, limit = self.history_[axis][-1].emd_change, SETTLED.get(axis, SETTLED_ELSEWHERE)
        if change > limit:
            found.append(
                Notice(
                    EMD_NOT_SETTLED,
                    f"the EMDs still changed by {change:.1%} in the last iteration (settled: below {limit:.0%}); "
                    "try more iterations",
                    axis,
                )
            )
        return found


def folder_jaccard(a: PartitionTree, b: PartitionTree) -> float:
    """Return the share of folders two trees have in common; root and single points count, as all folders do."""
    first, second = ({frozenset(tree.folder(i).tolist()) for i in range(tree.n_folders)} for tree in (a, b))
    return len(first & second) / len(first | second)


def _iteration(
    tree: PartitionTree,
    emd: NDArray[np.float64],
    before: NDArray[np.float64] | None,
    history: list[Iteration],
) -> Iteration:
    if before is None:
        return Iteration(tree, float("nan"), float("nan"))
    old, new = (e / (m if (m := float(np.median(e))) > 0 else 1.0) for e in (before, emd))
    size = float(np.linalg.norm(old))
    change = float(np.linalg.norm(new - old)) / size if size > 0 else float(np.any(new))
    return Iteration(tree, change, folder_jaccard(history[-1].tree, tree))
