"""The result of the questionnaire: frozen, labelled, on disk and back."""

import dataclasses
import html
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.builders.grown import TreeKind
from headscape.geometry.diffusion import Eigenpairs, diffusion_map
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Iteration, Questionnaire
from headscape.geometry.tree_emd import DEFAULT_MAX_BYTES
from headscape.notices import Notice
from headscape.tensor.network_tensor import NetworkTensor, axis_names, with_axes
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.store import Store, content_hash

KIND = "organization"


@dataclasses.dataclass(frozen=True, eq=False)
class Organization:
    """Trees, EMDs, affinities and eigenpairs of every axis, with the labels of the tensor they belong to.

    ``trees``, ``emd``, ``affinities``, ``eigenpairs`` and ``history`` are dicts by axis ("query", "key",
    "head"); ``warnings`` names the states in which the geometry says little.
    """

    trees: Mapping[str, PartitionTree]
    emd: Mapping[str, NDArray[np.float64]]
    affinities: Mapping[str, NDArray[np.float64]]
    eigenpairs: Mapping[str, Eigenpairs]
    history: Mapping[str, tuple[Iteration, ...]]
    warnings: tuple[Notice, ...]
    parameters: Mapping[str, Any]
    input_hash: str
    heads: tuple[tuple[int, int], ...] = ()
    tokens: tuple[str, ...] | None = None
    key_tokens: tuple[str, ...] | None = None
    field: str = "unknown"

    @classmethod
    def of(
        cls,
        fitted: Questionnaire,
        input_hash: str,
        parameters: Mapping[str, Any] | None = None,
        **labels: Any,
    ) -> Self:
        """Return what a questionnaire found; ``parameters`` are said beside its own."""
        return cls(
            trees=fitted.trees_,
            emd=fitted.emd_,
            affinities=fitted.affinities_,
            eigenpairs=fitted.eigenpairs_,
            history={axis: tuple(steps) for axis, steps in fitted.history_.items()},
            warnings=tuple(fitted.warnings_),
            parameters={**fitted.parameters(), **(parameters or {})},
            input_hash=input_hash,
            **labels,
        )

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(self.trees)

    @property
    def order(self) -> dict[str, NDArray[np.int64]]:
        """The organizing permutation of every axis: the leaf order of its tree."""
        return {axis: tree.order for axis, tree in self.trees.items()}

    def organized(self, x: Any) -> NDArray[Any]:
        """Return the tensor with every axis in its organized order."""
        array = np.asarray(x)
        shape = tuple(tree.n_points for tree in self.trees.values())
        if array.shape != shape:
            raise InputError(f"x must have the shape {shape} of the organized tensor, but has {array.shape}.")
        return array[np.ix_(*self.order.values())]

    def diffusion_map(self, axis: str = "head", n_components: int = 3, t: float = 1) -> NDArray[np.float64]:
        """Embed the points of an axis by the diffusion map of its affinity."""
        if axis not in self.affinities:
            raise InputError(f"axis must be one of {', '.join(self.axes)}, but is {axis!r}.")
        return diffusion_map(self.affinities[axis], n_components, t)

    def labels(self, axis: str) -> tuple[str, ...]:
        """Return a name for every point of an axis: layer.head, or position and token."""
        n = self.trees[axis].n_points
        if axis == "head" and self.heads:
            return tuple(f"{layer}.{head}" for layer, head in self.heads)
        tokens = {"query": self.tokens, "key": self.key_tokens}.get(axis)
        return tuple(map(str, range(n))) if tokens is None else tokens

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything that is an array, as AXIS.NAME; with :meth:`attributes` it makes the same again."""
        return {f"{axis}.{name}": x for axis in self.axes for name, x in self._axis_arrays(axis).items()}

    def attributes(self) -> dict[str, Any]:
        """Return everything that is no array, as JSON can hold it."""
        return {**self._labels(), "parameters": dict(self.parameters), "input_hash": self.input_hash}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any]) -> Self:
        """Return the organization that :meth:`arrays` and :meth:`attributes` describe."""
        parts = {
            axis: {n.partition(".")[2]: x for n, x in arrays.items() if n.partition(".")[0] == axis}
            for axis in attributes["axes"]
        }
        return cls._made(parts, attributes, attributes["parameters"], attributes["input_hash"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a folder, one part per axis; what an interrupted save finished is kept."""
        with Store.create(path, KIND, parameters=self.parameters, input_hash=self.input_hash) as store:
            for axis in self.axes:
                if not store.has(axis):
                    with store.writing(axis) as part:
                        for name, array in self._axis_arrays(axis).items():
                            part.array(name, array)
            if not store.has("labels"):
                with store.writing("labels") as part:
                    part.attributes(**self._labels())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote."""
        with explain_read_errors(path):
            store = Store.open(path, KIND)
            labels = store.read("labels").attributes
            parts = {}
            for axis in labels["axes"]:
                part = store.read(axis)
                parts[axis] = {name: part.array(name) for name in part.names()}
            return cls._made(parts, labels, store.header["parameters"], store.header["input_hash"])

    def _axis_arrays(self, axis: str) -> dict[str, NDArray[Any]]:
        steps = self.history[axis]
        return {
            "tree": self.trees[axis].labels,
            "emd": self.emd[axis],
            "affinity": self.affinities[axis],
            "eigenvalues": self.eigenpairs[axis].values,
            "eigenvectors": self.eigenpairs[axis].vectors,
            **{f"tree_of_iteration_{i}": step.tree.labels for i, step in enumerate(steps)},
            "changes": np.asarray([[step.emd_change, step.folder_jaccard] for step in steps]),
        }

    def _labels(self) -> dict[str, Any]:
        return {
            "axes": list(self.axes),
            "heads": [list(pair) for pair in self.heads],
            "tokens": None if self.tokens is None else list(self.tokens),
            "key_tokens": None if self.key_tokens is None else list(self.key_tokens),
            "field": self.field,
            "warnings": [dataclasses.asdict(warning) for warning in self.warnings],
        }

    @classmethod
    def _made(
        cls,
        parts: Mapping[str, Mapping[str, NDArray[Any]]],
        labels: Mapping[str, Any],
        parameters: Mapping[str, Any],
        input_hash: str,
    ) -> Self:
        return cls(
            trees={axis: PartitionTree(part["tree"]) for axis, part in parts.items()},
            emd={axis: part["emd"] for axis, part in parts.items()},
            affinities={axis: part["affinity"] for axis, part in parts.items()},
            eigenpairs={
                axis: Eigenpairs(part["eigenvalues"], part["eigenvectors"]) for axis, part in parts.items()
            },
            history={axis: _history(part) for axis, part in parts.items()},
            warnings=tuple(Notice(**values) for values in labels["warnings"]),
            parameters=parameters,
            input_hash=input_hash,
            heads=tuple((layer, head) for layer, head in labels["heads"]),
            tokens=None if labels["tokens"] is None else tuple(labels["tokens"]),
            key_tokens=None if labels["key_tokens"] is None else tuple(labels["key_tokens"]),
            field=labels["field"],
        )

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{axis} {tree.n_points} points in {tree.n_folders} folders" for axis, tree in self.trees.items()
        )
        return f"Organization({sizes}; {len(self.warnings)} warnings)"

    def _repr_html_(self) -> str:
        """Show axes and warnings in notebooks."""
        rows = "".join(
            f"<tr><th>{html.escape(axis)}</th><td>{tree.n_points}</td><td>{tree.n_folders}</td><td>{tree.depth}</td></tr>"
            for axis, tree in self.trees.items()
        )
        warnings = "".join(f"<li><b>Warning.</b> {html.escape(str(w))}</li>" for w in self.warnings)
        return (
            f"<p><b>Organization</b> of {html.escape(self.field)}</p><table><tr><th>axis</th><th>points</th>"
            f"<th>folders</th><th>levels</th></tr>{rows}</table>"
            + (f"<ul>{warnings}</ul>" if warnings else "")
        )


def organize(
    x: Any,
    *,
    n_iter: int = 3,
    alpha: float = 0.0,
    beta: float = 1.0,
    init: str = "cosine",
    tree: TreeKind | Mapping[str, TreeKind] = "flexible",
    head_trees: str = "latest",
    eps_scale: float = 1.0,
    tree_constant: float = 1.0,
    n_eigs: int = 12,
    max_bytes: int = DEFAULT_MAX_BYTES,
    axes: str | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> Organization:
    """Organize a network tensor: trees on queries, keys and heads by the questionnaire.

    Parameters
    ----------
    x : NetworkTensor or (query, key[, head]) array
    n_iter, alpha, beta, init, tree, head_trees, eps_scale, tree_constant, n_eigs, max_bytes
        As in :class:`Questionnaire`.
    axes
        The axes of an array that come in another order, such as "layer,head,query,key"; arrays of four and more
        axes need it.
    engine
        How work is distributed; by default over local threads.
    progress
        Progress callback.

    References
    ----------
    The organization paper (OA, arXiv 2506.15541), Algorithm 1.

    Examples
    --------
    >>> result = organize(np.add.outer(np.arange(6.0), np.arange(5.0)), n_iter=1)
    >>> result.order["query"].tolist() in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])
    True
    """
    x = with_axes(x, axes)
    questionnaire = Questionnaire(
        n_iter=n_iter,
        alpha=alpha,
        beta=beta,
        init=init,
        tree=tree,
        head_trees=head_trees,
        eps_scale=eps_scale,
        tree_constant=tree_constant,
        n_eigs=n_eigs,
        max_bytes=max_bytes,
        engine=engine or LocalEngine(),
        progress=progress,
    )
    array = np.asarray(x)
    fitted = questionnaire.fit(array, ",".join(axis_names(array.ndim)))
    labels: dict[str, Any] = {}
    if isinstance(x, NetworkTensor):
        labels = {name: getattr(x, name) for name in ("heads", "tokens", "key_tokens", "field")}
    return Organization.of(fitted, content_hash(array), **labels)


def _history(part: Mapping[str, NDArray[Any]]) -> tuple[Iteration, ...]:
    return tuple(
        Iteration(PartitionTree(part[f"tree_of_iteration_{i}"]), float(change), float(jaccard))
        for i, (change, jaccard) in enumerate(part["changes"])
    )
