"""The result of the questionnaire: frozen, labelled, on disk and back."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.diffusion import Eigenpairs, diffusion_map
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Iteration, Questionnaire
from headscape.notices import Notice
from headscape.tensor.checks import as_float_array
from headscape.tensor.network_tensor import NetworkTensor
from headscape.tensor.store import Part, Store, content_hash

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a folder, one part per axis; what an interrupted save finished is kept."""
        with Store.create(path, KIND, parameters=self.parameters, input_hash=self.input_hash) as store:
            for axis in self.axes:
                if not store.has(axis):
                    with store.writing(axis) as part:
                        part.array("tree", self.trees[axis].labels)
                        part.array("emd", self.emd[axis])
                        part.array("affinity", self.affinities[axis])
                        part.array("eigenvalues", self.eigenpairs[axis].values)
                        part.array("eigenvectors", self.eigenpairs[axis].vectors)
                        for i, step in enumerate(self.history[axis]):
                            part.array(f"tree_of_iteration_{i}", step.tree.labels)
                        changes = [[step.emd_change, step.folder_jaccard] for step in self.history[axis]]
                        part.array("changes", np.asarray(changes))
            if not store.has("labels"):
                with store.writing("labels") as part:
                    part.attributes(
                        axes=list(self.axes),
                        heads=[list(pair) for pair in self.heads],
                        tokens=None if self.tokens is None else list(self.tokens),
                        key_tokens=None if self.key_tokens is None else list(self.key_tokens),
                        field=self.field,
                        warnings=[dataclasses.asdict(warning) for warning in self.warnings],
                    )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote."""
        store = Store.open(path, KIND)
        labels = store.read("labels").attributes
        parts = {axis: store.read(axis) for axis in labels["axes"]}
        return cls(
            trees={axis: PartitionTree(part.array("tree")) for axis, part in parts.items()},
            emd={axis: part.array("emd") for axis, part in parts.items()},
            affinities={axis: part.array("affinity") for axis, part in parts.items()},
            eigenpairs={
                axis: Eigenpairs(part.array("eigenvalues"), part.array("eigenvectors"))
                for axis, part in parts.items()
            },
            history={axis: _read_history(part) for axis, part in parts.items()},
            warnings=tuple(Notice(**values) for values in labels["warnings"]),
            parameters=store.header["parameters"],
            input_hash=store.header["input_hash"],
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


def organize(x: Any, **parameters: Any) -> Organization:
    """Organize a network tensor: trees on queries, keys and heads by the questionnaire (OA Algorithm 1).

    Parameters
    ----------
    x : NetworkTensor or (query, key[, head]) array
    **parameters
        Those of :class:`Questionnaire`.

    Examples
    --------
    >>> result = organize(np.add.outer(np.arange(6.0), np.arange(5.0)), n_iter=1)
    >>> result.order["query"].tolist() in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])
    True
    """
    try:
        questionnaire = Questionnaire(**parameters)
    except TypeError as error:
        known = ", ".join(field.name for field in dataclasses.fields(Questionnaire))
        raise InputError(f"organize takes the parameters {known}, but: {error}.") from None
    fitted = questionnaire.fit(x)
    labels: dict[str, Any] = {}
    if isinstance(x, NetworkTensor):
        labels = {name: getattr(x, name) for name in ("heads", "tokens", "key_tokens", "field")}
    return Organization(
        trees=fitted.trees_,
        emd=fitted.emd_,
        affinities=fitted.affinities_,
        eigenpairs=fitted.eigenpairs_,
        history={axis: tuple(steps) for axis, steps in fitted.history_.items()},
        warnings=tuple(fitted.warnings_),
        parameters=fitted.parameters(),
        input_hash=content_hash(as_float_array(x)),
        **labels,
    )


def _read_history(part: Part) -> tuple[Iteration, ...]:
    return tuple(
        Iteration(PartitionTree(part.array(f"tree_of_iteration_{i}")), float(change), float(jaccard))
        for i, (change, jaccard) in enumerate(part.array("changes"))
    )
