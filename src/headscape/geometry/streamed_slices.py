"""The slices of a capture that is larger than memory, as the questionnaire asks for them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from headscape.engine import Engine, LocalEngine, Progress
from headscape.geometry.affinity import OF_GRAM
from headscape.geometry.data_order import data_order
from headscape.geometry.partition_tree import IntArray, PartitionTree
from headscape.geometry.streamed_blocks import folder_blocks, heads_by_layer, rows_of
from headscape.geometry.streamed_emd import StreamedEMD, emd_of, kept_parts, planned_block
from headscape.geometry.streamed_plan import DEFAULT_MEMORY, streamed_plan
from headscape.tensor.capture import Capture
from headscape.tensor.fields import field_of_head
from headscape.tensor.store import Store

Grams = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
_HEADS, _COLUMNS = 4, 256  # whose inner products are added at a time


@dataclass(eq=False)
class StreamedSlices:
    """Slices along query, key and head, computed from queries and keys within a limit of memory.

    Parameters
    ----------
    capture, window, field
        What is organized; on disk if the engine's workers are other processes.
    approximate, seed, dtype, memory
        As for :func:`headscape.geometry.streamed_emd.streamed_emd`.
    store
        Where finished pieces are kept.
    engine
        How work is spread.
    """

    capture: Capture
    window: int = 0
    field: str = "probs"
    approximate: bool = False
    seed: int = 0
    dtype: Any = np.float32
    memory: int = DEFAULT_MEMORY
    store: Store | None = None
    engine: Engine = dataclasses.field(default_factory=LocalEngine)
    heads_only: bool = False

    def __post_init__(self) -> None:
        self.found: dict[str, StreamedEMD] = {}
        """The last EMD along every axis."""
        self._grams: Grams | None = None
        self._count = 0
        how: Any = {"heads_only": self.heads_only, "dithered": self.approximate}
        how["itemsize"] = np.dtype(self.dtype).itemsize
        plan = streamed_plan(self.capture, self.window, self.memory, self.engine, **how)
        if plan.held:
            self.capture, self.window = self.capture.window(self.window), 0

    @property
    def axes(self) -> tuple[str, ...]:
        """Query, key and head."""
        return ("query", "key", "head")

    def initial_affinity(self, axis: str, init: str, progress: Progress) -> NDArray[np.float64]:
        """Return the initial affinity of the slices along query or key, from one pass over all heads."""
        return OF_GRAM[init](self._gram(progress)[axis == "key"])

    def data_order(self, totals: NDArray[np.float64], axis: str) -> IntArray:
        """Sort the slices along an axis by data."""
        assert self._grams is not None  # the initial affinities come first
        squares = dict(
            zip(self.axes, (np.diag(self._grams[0]), np.diag(self._grams[1]), self._grams[2]), strict=True)
        )
        return data_order(totals, np.sqrt(squares[axis])[:, None])

    def prepare(self, axis: str, trees: Mapping[str, PartitionTree]) -> None:
        """Nothing is computed ahead: memory is limited."""

    def emd(
        self, axis: str, trees: Mapping[str, PartitionTree], alpha: float, beta: float, progress: Progress
    ) -> NDArray[np.float64]:
        """Return the EMD along an axis; its blocks are kept until it is whole."""
        how: Any = {"alpha": alpha, "beta": beta, "field": self.field, "dtype": self.dtype}
        seed = self.seed if self.approximate else None
        blocks = folder_blocks(self.capture, self.window, axis, trees, **how, seed=seed)
        self._count += 1
        name = f"emd-{self._count:03d}-{axis}"
        if self.store is not None and self.store.sound(name):
            total = self.store.read(name).array("sums")
        else:
            tasks = blocks.tasks(planned_block(blocks, self.memory, self.engine))
            total = np.zeros(())
            for part in kept_parts(blocks, tasks, self.store, f"{name}-", self.engine, progress):
                total = total + part if total.ndim == 0 else np.add(total, part, out=total)
            self._keep(name, {"sums": total})
        self.found[axis] = emd_of(total)
        return self.found[axis].emd

    def _gram(self, progress: Progress) -> Grams:
        """Return the inner products of all slices along query and key, and the squared norms of the heads."""
        if self._grams is None and self.store is not None and self.store.sound("grams"):
            part = self.store.read("grams")
            self._grams = part.array("query"), part.array("key"), part.array("head")
        if self._grams is None:
            self._grams = self._summed(progress)
            self._keep("grams", dict(zip(self.axes, self._grams, strict=True)))
        return self._grams

    def _summed(self, progress: Progress) -> Grams:
        layers = self.capture.layers
        step = max(1, len(layers) // (4 * self.engine.workers))
        tasks = [layers[start : start + step] for start in range(0, len(layers), step)]
        query = key = np.zeros(())
        norms = []
        grams = _LayerGrams(self.capture, self.window, self.field, self.dtype)
        for done, part in enumerate(self.engine.map(grams, tasks)):
            query, key = query + part[0], key + part[1]
            norms.append(part[2])
            progress("initial affinity", done + 1, len(tasks))
        return query, key, np.concatenate(norms)

    def _keep(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a finished result to the store, and discard its pieces."""
        if self.store is None:
            return
        with self.store.writing(name) as writer:
            for own, array in arrays.items():
                writer.array(own, array)
        for piece in self.store.parts():
            if piece.startswith(f"{name}-"):
                self.store.discard(piece)


@dataclass(frozen=True, eq=False)
class _LayerGrams:
    """Sums up the inner products of queries, of keys and of heads, layer by layer."""

    capture: Capture
    window: int
    field: str
    dtype: Any

    def __call__(self, layers: Sequence[int]) -> Grams:
        heads = heads_by_layer(self.capture)
        query: NDArray[np.float64] = np.zeros(())
        key: NDArray[np.float64] = np.zeros(())
        norms = []
        with threadpool_limits(1, user_api="blas"):  # every task has a core of its own
            for layer in layers:
                record = self.capture.record(self.window, layer)
                record.require_finite()
                record = rows_of(record, slice(None), self.dtype)
                for begin in range(0, len(heads[layer]), _HEADS):
                    some = [
                        field_of_head(record, i, self.field) for i in heads[layer][begin : begin + _HEADS]
                    ]
                    if query.ndim == 0:
                        query, key = (np.zeros((n, n)) for n in some[0].shape)
                    _add_gram(some, query)
                    _add_gram([x.T for x in some], key)
                    norms += [float(np.einsum("ij,ij->", x, x, dtype=np.float64)) for x in some]
        return query, key, np.asarray(norms)


def _add_gram(fields: Sequence[NDArray[Any]], gram: NDArray[np.float64]) -> None:
    """Add the inner products of rows, over some columns at a time: under a mask many rows are zero there."""
    for begin in range(0, fields[0].shape[1], _COLUMNS):
        parts = [x[:, begin : begin + _COLUMNS] for x in fields]
        some = np.flatnonzero(np.any([part.any(axis=1) for part in parts], axis=0))
        if len(some):
            rows = slice(int(some[0]), int(some[-1]) + 1)
            values = np.concatenate([part[rows] for part in parts], axis=1, dtype=np.float64)
            gram[rows, rows] += values @ values.T
