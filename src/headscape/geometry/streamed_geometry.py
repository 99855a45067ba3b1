"""The geometry of a capture that is larger than memory: the questionnaire without the tensor, or its heads alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.geometry.affinity import emd_affinity
from headscape.geometry.builders.grown import TreeKind, grown_tree
from headscape.geometry.head_geometry import HeadGeometry
from headscape.geometry.leaf_order import ordered_leaves
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Iteration, Questionnaire
from headscape.geometry.streamed_emd import StreamedEMD
from headscape.geometry.streamed_plan import DEFAULT_MEMORY
from headscape.geometry.streamed_slices import StreamedSlices
from headscape.tensor.capture import Capture
from headscape.tensor.store import Store

KIND, VERSION = "streamed-geometry", 2


@dataclass(frozen=True, eq=False)
class StreamedOrganization:
    """An organization, and the last EMD along every axis with its standard error, if it is an estimate."""

    organization: Organization
    emd: dict[str, StreamedEMD]


@dataclass(frozen=True, eq=False)
class StreamedHeads:
    """The geometry of the heads, the trees of queries and keys behind it, and the EMD with its standard error."""

    geometry: HeadGeometry
    trees: dict[str, PartitionTree]
    emd: StreamedEMD
    parameters: dict[str, Any]

    def organization(self, capture: Capture) -> Organization:
        """Return it as an organization of the axis head alone, of the capture that it was made from."""
        found, nan = self.geometry, float("nan")
        return Organization(
            trees={"head": found.tree},
            emd={"head": found.emd},
            affinities={"head": found.affinity},
            eigenpairs={"head": found.eigenpairs},
            history={"head": (Iteration(found.tree, nan, nan),)},
            warnings=(),
            parameters={**self.parameters, **_errors({"head": self.emd})},
            input_hash=_input_hash(capture),
            heads=capture.heads,
            field=str(self.parameters["field"]),
        )


def streamed_organization(
    capture: Capture,
    window: int = 0,
    *,
    field: str = "probs",
    approximate: bool = False,
    seed: int = 0,
    dtype: Any = np.float32,
    memory: int = DEFAULT_MEMORY,
    path: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
    **parameters: Any,
) -> StreamedOrganization:
    """Organize one window of a capture without ever holding its tensor.

    Parameters
    ----------
    capture, window, field
        What is organized; on disk if the engine's workers are other processes.
    approximate, seed
        Whether EMDs are estimated from a sample of the features in 8 bits, in a fraction of the time, with a standard
        error: see :mod:`headscape.geometry.feature_sample` and :mod:`headscape.geometry.dithered`.
    dtype
        In which fields and exact EMDs are computed: float32 or float64.
    memory
        Bytes that the work may take, over what the process takes already, all workers together.
    path
        Folder in which finished blocks are kept: an interrupted run resumes there.
    engine, progress
        How work is spread; progress callback.
    parameters
        Those of :class:`headscape.Questionnaire`: n_iter, alpha, beta, init, tree, head_trees, eps_scale,
        tree_constant, n_eigs.

    Returns
    -------
    StreamedOrganization
        The same as ``organize(capture.tensor(window, field), ...)``.

    Notes
    -----
    Time O(H L^2 (L + d)) for the initial affinities and, in each iteration, O(H^2 / 2 * folders^2) for heads and
    O(L^2 / 2 * folders^2) for queries and for keys; memory as allowed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 16, 4)), rng.normal(size=(2, 4, 16, 4)))
    >>> streamed_organization(capture, n_iter=1).organization.axes
    ('query', 'key', 'head')
    """
    questionnaire = Questionnaire(**parameters, progress=progress)
    questionnaire.check()
    own = {"approximate": approximate, "seed": seed, "window": window}
    how: Any = {"dtype": dtype, "memory": memory, "engine": engine or LocalEngine()}
    kept = {**questionnaire.parameters(), **own, "field": field, "dtype": str(np.dtype(dtype))}
    del kept["n_iter"]  # more iterations go on where fewer ended
    with _kept(path, capture, kept) as store:
        slices = StreamedSlices(capture, window, field, approximate, seed, store=store, **how)
        questionnaire.fit_slices(slices)
    labels: Any = {"heads": capture.heads, "field": field}
    labels |= {"tokens": capture.tokens(window) or None, "key_tokens": capture.key_tokens(window) or None}
    own |= _errors(slices.found)
    return StreamedOrganization(
        Organization.of(questionnaire, _input_hash(capture), own, **labels), slices.found
    )


def streamed_heads(
    capture: Capture,
    window: int = 0,
    *,
    field: str = "probs",
    alpha: float = 0.0,
    beta: float = 1.0,
    init: str = "cosine",
    tree: TreeKind = "flexible",
    eps_scale: float = 1.0,
    tree_constant: float = 1.0,
    n_eigs: int = 12,
    approximate: bool = False,
    seed: int = 0,
    dtype: Any = np.float32,
    memory: int = DEFAULT_MEMORY,
    path: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> StreamedHeads:
    """Organize the heads alone: the first iteration of the questionnaire up to the head axis.

    Query and key trees come from the initial affinity. All parameters are those of :func:`streamed_organization`.

    Returns
    -------
    StreamedHeads
        The same head EMD and tree as from the first iteration of ``organize(capture.tensor(window, field))``.

    Notes
    -----
    Time O(H L^2 (L + d)) for the initial affinities and O(H^2 / 2 * folders^2) for the EMD; memory as allowed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 16, 4)), rng.normal(size=(2, 4, 16, 4)))
    >>> streamed_heads(capture).geometry.emd.shape
    (8, 8)
    """
    grow: Any = {"kind": tree, "tree_constant": tree_constant, "n_eigs": n_eigs}
    parameters = {"window": window, "field": field, "alpha": alpha, "beta": beta, "init": init, "tree": tree}
    parameters |= {
        "approximate": approximate,
        "seed": seed,
        "dtype": str(np.dtype(dtype)),
        "tree_constant": tree_constant,
        "n_eigs": n_eigs,
        "heads_only": True,
    }
    how: Any = {"dtype": dtype, "memory": memory, "engine": engine or LocalEngine()}
    with _kept(path, capture, parameters) as store:
        slices = StreamedSlices(
            capture, window, field, approximate, seed, store=store, heads_only=True, **how
        )
        trees: dict[str, PartitionTree] = {}
        for axis in ("query", "key"):
            affinity = slices.initial_affinity(axis, init, progress)
            order = slices.data_order(affinity.sum(axis=1), axis)
            trees[axis] = grown_tree(affinity, 1.0 - affinity, order, **grow)[0]
        emd = slices.emd("head", trees, alpha, beta, progress)
    affinity = emd_affinity(emd, eps_scale)
    grown, pairs, _ = grown_tree(affinity, emd, slices.data_order(emd.sum(axis=1), "head"), **grow)
    ordered = ordered_leaves(grown, emd, pairs.vectors[:, 1:])
    geometry = HeadGeometry(ordered, emd, affinity, pairs)
    said = {**parameters, "eps_scale": eps_scale, "n_iter": 1}
    return StreamedHeads(geometry, trees, slices.found["head"], said)


@contextmanager
def _kept(
    path: str | os.PathLike[str] | None, capture: Capture, parameters: dict[str, Any]
) -> Iterator[Store | None]:
    """Open the store of a run, if it has one."""
    if path is None:
        yield None
        return
    parameters = {**parameters, "heads": len(capture.heads)}
    with Store.create(path, KIND, VERSION, parameters=parameters, input_hash=_input_hash(capture)) as store:
        yield store


def _errors(found: dict[str, StreamedEMD]) -> dict[str, Any]:
    """Return the errors of EMDs that are estimates, by axis."""
    errors = {axis: emd.summary() for axis, emd in found.items() if emd.standard_error is not None}
    return {"errors": errors} if errors else {}


def _input_hash(capture: Capture) -> str:
    return str(capture.provenance.get("input_hash", ""))
