"""The geometry of the heads of a capture that is larger than memory: initial trees, exact head EMD, head tree.

It is the first iteration of the questionnaire (OA Algorithm 1, arXiv 2506.15541) up to the head axis: query and key
trees from the cosine affinity, the EMD between heads with respect to them, and the tree of the heads.
"""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.affinity import cosine_of_gram, emd_affinity
from headscape.geometry.builders.grown import TreeKind, grown_tree
from headscape.geometry.data_order import data_order
from headscape.geometry.head_geometry import HeadGeometry
from headscape.geometry.leaf_order import ordered_leaves
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.sampled_emd import SampledEMD, sampled_head_emd
from headscape.geometry.streamed_emd import (
    DEFAULT_MEMORY,
    LOCAL_BASE,
    WORKER_BASE,
    BlockPlan,
    HeadBlocks,
    block_plan,
    heads_by_layer,
    rows_of,
)
from headscape.tensor.capture import Capture
from headscape.tensor.fields import field_of_head
from headscape.tensor.store import Store

KIND = "streamed-heads"
FOLDERS = 1.6
"""Folders of a flexible tree per point, about: only for plans that are made before there are trees."""
Grams = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class StreamedHeads:
    """The geometry of the heads, and the trees of queries and keys behind it."""

    geometry: HeadGeometry
    trees: dict[str, PartitionTree]
    sample: SampledEMD | None = None
    """The estimated EMD with its standard error, if only a share of the terms was summed up."""


def streamed_heads(
    capture: Capture,
    window: int = 0,
    *,
    field: str = "probs",
    alpha: float = 0.0,
    beta: float = 1.0,
    tree: TreeKind = "flexible",
    eps_scale: float = 1.0,
    tree_constant: float = 1.0,
    n_eigs: int = 12,
    dtype: Any = np.float32,
    share: float = 1.0,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    path: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> StreamedHeads:
    """Organize the heads of one window of a capture without ever holding its tensor.

    Parameters
    ----------
    capture, window, field
        What is organized; on disk if the engine's workers are other processes.
    alpha, beta, tree, eps_scale, tree_constant, n_eigs
        As in :class:`headscape.Questionnaire`.
    dtype
        In which the EMD is computed: float32 or float64.
    share, seed
        Below 1, the EMD is estimated from this share of its terms: see :mod:`headscape.geometry.sampled_emd`.
    memory
        Bytes that the work may take, over what the process takes already, all workers together.
    path
        Folder in which finished blocks are kept: an interrupted run resumes there.
    engine, progress
        How work is spread; progress callback.

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
    engine = engine or LocalEngine()
    n_heads = len(capture.heads)
    require_memory(capture, window, memory, engine)
    parameters = {"window": window, "field": field, "alpha": alpha, "beta": beta, "tree": tree}
    parameters |= {
        "tree_constant": tree_constant,
        "n_eigs": n_eigs,
        "dtype": str(np.dtype(dtype)),
        "heads": n_heads,
    }
    made: Any = {"parameters": parameters, "input_hash": str(capture.provenance.get("input_hash", ""))}
    with nullcontext() if path is None else Store.create(path, KIND, **made) as store:
        grams = _kept(
            store, "grams", lambda: _summed(_LayerGrams(capture, window, field, dtype), engine, progress)
        )
        trees: dict[str, PartitionTree] = {}
        for axis, gram in zip(("query", "key"), grams[:2], strict=True):
            affinity = cosine_of_gram(gram)
            order = data_order(affinity.sum(axis=1), np.sqrt(np.diag(gram))[:, None])
            trees[axis] = grown_tree(
                affinity, 1.0 - affinity, order, kind=tree, tree_constant=tree_constant, n_eigs=n_eigs
            )[0]
        blocks = HeadBlocks.of(capture, window, trees, alpha, beta, field, dtype)
        sample = None
        if share < 1.0:
            sample = sampled_head_emd(
                blocks, share, seed=seed, memory=memory, engine=engine, progress=progress
            )
            emd = sample.emd
        else:
            emd = _sum_of_blocks(blocks, blocks.plan(memory, engine), store, engine, progress)
    affinity = emd_affinity(emd, eps_scale)
    order = data_order(emd.sum(axis=1), np.sqrt(grams[2])[:, None])
    grown, pairs, _ = grown_tree(affinity, emd, order, kind=tree, tree_constant=tree_constant, n_eigs=n_eigs)
    ordered = ordered_leaves(grown, emd, pairs.vectors[:, 1:])
    return StreamedHeads(HeadGeometry(ordered, emd, affinity, pairs), trees, sample)


def expected_plan(capture: Capture, window: int, memory: int, engine: Engine) -> BlockPlan:
    """Return about how the EMD will be cut, before there are trees."""
    record = capture.record(window, capture.layers[0])
    queries, keys = record.queries.shape[1], record.keys.shape[1]
    folders = int(FOLDERS * queries), int(FOLDERS * keys)
    spread: Any = {"workers": engine.workers, "remote": engine.remote}
    return block_plan(len(capture.heads), queries, keys, *folders, memory=memory, **spread)


def require_memory(capture: Capture, window: int, memory: int, engine: Engine) -> None:
    """Raise unless the memory suffices for the initial affinities and the smallest blocks."""
    plan = expected_plan(capture, window, memory, engine)
    base = engine.workers * WORKER_BASE if engine.remote else LOCAL_BASE
    # Per task a head in float64 and float32 with two sums; the sums that wait and their total; the tree's distances.
    sums = 8 * (plan.queries**2 + plan.keys**2)
    need = base + engine.workers * (plan.queries * plan.keys * 28 + 3 * sums) + 4 * sums
    if need > memory:
        raise InputError(
            f"memory must be at least {need / 2**20:.0f} MiB for windows of {plan.queries} x {plan.keys} on "
            f"{engine.workers} workers, but is {memory / 2**20:.0f} MiB. Allow more memory or use fewer workers."
        )


@dataclass(frozen=True, eq=False)
class _LayerGrams:
    """Sums up the inner products of queries, of keys and of heads, layer by layer."""

    capture: Capture
    window: int
    field: str
    dtype: Any

    def __call__(self, layers: Sequence[int]) -> Grams:
        heads = heads_by_layer(self.capture)
        query = key = np.zeros(())
        norms = []
        for layer in layers:
            record = self.capture.record(self.window, layer)
            record.require_finite()
            record = rows_of(record, slice(None), self.dtype)
            for head in heads[layer]:
                x = field_of_head(record, head, self.field).astype(np.float64, copy=False)
                query = query + x @ x.T
                key = key + x.T @ x
                norms.append(float(np.vdot(x, x)))
        return query, key, np.asarray(norms)


def _summed(of_layers: _LayerGrams, engine: Engine, progress: Progress) -> Grams:
    """Return the inner products of all slices along query and key, and the squared norms of the heads."""
    layers = of_layers.capture.layers
    step = max(1, len(layers) // (4 * engine.workers))
    tasks = [layers[start : start + step] for start in range(0, len(layers), step)]
    query = key = np.zeros(())
    norms = []
    for done, part in enumerate(engine.map(of_layers, tasks)):
        query, key = query + part[0], key + part[1]
        norms.append(part[2])
        progress("initial affinity", done + 1, len(tasks))
    return query, key, np.concatenate(norms)


def _kept(store: Store | None, name: str, compute: Any) -> Any:
    """Return arrays that are finished in a store, else compute and keep them."""
    if store is not None and store.sound(name):
        part = store.read(name)
        return tuple(part.array(str(i)) for i in range(len(part.names())))
    found = compute()
    if store is not None:
        with store.writing(name) as writer:
            for i, array in enumerate(found):
                writer.array(str(i), array)
    return found


def _sum_of_blocks(
    blocks: HeadBlocks, plan: BlockPlan, store: Store | None, engine: Engine, progress: Progress
) -> NDArray[np.float64]:
    """Add up the EMDs of all blocks, in order; those that are finished are read."""
    tasks = blocks.tasks(plan.block)
    names = [f"block-{task.start:06d}-{task.stop:06d}" for task in tasks]
    done = [store is not None and store.sound(name) for name in names]
    found = engine.map(blocks.distances, [task for task, known in zip(tasks, done, strict=True) if not known])
    total = np.zeros((plan.heads, plan.heads))
    for place, (name, known) in enumerate(zip(names, done, strict=True)):
        if known and store is not None:
            part = store.read(name).array("emd")
        else:
            part = next(found)
            if store is not None:
                with store.writing(name) as writer:
                    writer.array("emd", part)
        total += part
        progress("EMD of head", place + 1, len(tasks))
    return total
