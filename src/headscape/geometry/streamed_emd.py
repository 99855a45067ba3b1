"""The EMD between heads from queries and keys, without the tensor: it is never in memory, not even for one block.

The EMD is a sum over pairs of folders (OA 15, arXiv 2506.15541), so a block of folders of the query tree is a task of
its own. It needs the rows of the field that belong to its folders, and a row is computed from one query and all keys;
folders are taken in the order in which they begin, so that a block needs few rows. What a task holds is the weighted
averages of all heads over its block.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.folder_averages import require_fit
from headscape.geometry.l1_kernel import l1_distances
from headscape.geometry.partition_tree import PartitionTree
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture
from headscape.tensor.fields import field_of_head

DEFAULT_MEMORY = 4 << 30
MIN_BLOCKS = 16
LOCAL_BASE, WORKER_BASE = 200 << 20, 260 << 20
"""Compiled code, its compiler and libraries: once on this machine, and what a worker process takes when it starts."""


@dataclass(frozen=True)
class BlockPlan:
    """How a head EMD is cut so that it stays within a limit of memory.

    Parameters
    ----------
    heads, queries, keys
        Sizes of the tensor.
    query_folders, key_folders
        Of the trees.
    block
        Folders of the query tree per task.
    workers
        Tasks that run at once.
    memory
        Bytes that all of them take together at most, over what this process takes already.
    """

    heads: int
    queries: int
    keys: int
    query_folders: int
    key_folders: int
    block: int
    workers: int
    memory: int

    @property
    def n_blocks(self) -> int:
        """Number of tasks."""
        return -(-self.query_folders // self.block)

    @property
    def differences(self) -> float:
        """Absolute differences that the kernel computes."""
        return 0.5 * self.heads**2 * self.query_folders * self.key_folders


def block_plan(
    heads: int,
    queries: int,
    keys: int,
    query_folders: int,
    key_folders: int,
    *,
    memory: int = DEFAULT_MEMORY,
    workers: int = 1,
    remote: bool = False,
    itemsize: int = 4,
) -> BlockPlan:
    """Return the largest blocks that stay within the memory, or raise if not even the smallest does.

    Examples
    --------
    >>> plan = block_plan(1024, 2048, 2048, 3000, 3000, memory=4 << 30, workers=2)
    >>> plan.block, plan.n_blocks, plan.memory <= 4 << 30
    (152, 20, True)
    """
    # Besides the averages of a block: a head's rows with the steps of the softmax, and their sums in float64.
    rows = queries * keys * (4 * 4 + 8)
    pairs = heads * heads * 8 * 4  # the kernel's sums, made symmetric; the total, and a result that waits
    per_folder = key_folders * (heads * itemsize + 3 * 8) + 3 * keys * 8
    base = workers * WORKER_BASE if remote else LOCAL_BASE
    free = (memory - base - heads * heads * 8 * 3) / workers - rows - pairs
    block = min(int(free // per_folder), -(-query_folders // MIN_BLOCKS))
    need = base + heads * heads * 8 * 3 + workers * (rows + pairs + max(1, block) * per_folder)
    if block < 1:
        raise InputError(
            f"memory must be at least {need / 2**20:.0f} MiB for {heads} heads of {queries} x {keys} on {workers} "
            f"workers, but is {memory / 2**20:.0f} MiB. Allow more memory or use fewer workers."
        )
    return BlockPlan(heads, queries, keys, query_folders, key_folders, block, workers, need)


def streamed_head_emd(
    capture: Capture,
    window: int,
    trees: Mapping[str, PartitionTree],
    alpha: float = 0.0,
    beta: float = 1.0,
    *,
    field: str = "probs",
    dtype: Any = np.float32,
    memory: int = DEFAULT_MEMORY,
    block: int | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> NDArray[np.float64]:
    """Return the tree EMD between all heads of one window of a capture, block by block.

    It is ``tree_emd(capture.tensor(window, field), trees, "head", alpha, beta)``, without the tensor.

    Parameters
    ----------
    capture
        On disk, if workers are other processes: they read it themselves.
    window
        Number of the window.
    trees
        Those of "query" and "key".
    alpha, beta
        As for :func:`headscape.tree_emd`.
    field
        "probs", "logits" or "energy".
    dtype
        In which field and kernel are computed: float32, as those of a tensor are, or float64, with which the result
        is the same to 1e-10 whatever the blocks. (In float32, a row differs in its last digit with the rows that are
        computed beside it.)
    memory
        Bytes that all tasks together may take; it decides how many folders a block has.
    block
        That number itself, in place of ``memory``.
    engine, progress
        How the blocks are spread; progress callback.

    Returns
    -------
    (head, head) float64 array
    """
    engine = engine or LocalEngine()
    blocks = HeadBlocks.of(capture, window, trees, alpha, beta, field, dtype)
    if block is None:
        block = blocks.plan(memory, engine).block
    tasks = blocks.tasks(block)
    total = np.zeros((len(capture.heads),) * 2)
    for done, part in enumerate(engine.map(blocks.distances, tasks)):
        total += part
        progress("EMD of head", done + 1, len(tasks))
    return total


@dataclass(frozen=True, eq=False)
class HeadBlocks:
    """What the tasks share: the capture, the trees, and the folders of the query tree in the order of their begin."""

    capture: Capture
    window: int
    field: str
    outer: PartitionTree
    inner: PartitionTree
    outer_weight: NDArray[np.float64]
    inner_weight: NDArray[np.float64]
    folders: NDArray[np.int64]
    dtype: Any

    @classmethod
    def of(
        cls,
        capture: Capture,
        window: int,
        trees: Mapping[str, PartitionTree],
        alpha: float,
        beta: float,
        field: str,
        dtype: Any,
    ) -> "HeadBlocks":
        """Return the blocks of one window, or raise unless the trees fit."""
        if missing := [axis for axis in ("query", "key") if axis not in trees]:
            raise InputError(
                f"the EMD along head needs trees of query and key, but there is none for {missing[0]}."
            )
        record = capture.record(window, capture.layers[0])
        outer, inner = trees["query"], trees["key"]
        require_fit(record.queries.shape[1], outer, "the axis query")
        require_fit(record.keys.shape[1], inner, "the axis key")
        return cls(
            capture,
            window,
            field,
            outer,
            inner,
            outer.weights(alpha, beta) / outer.folders.size,
            inner.weights(alpha, beta) / inner.folders.size,
            np.lexsort((-outer.folders.size, outer.folders.start)).astype(np.int64),
            np.dtype(dtype),
        )

    def plan(self, memory: int, engine: Engine) -> BlockPlan:
        """Return how the work is cut for so much memory."""
        return block_plan(
            len(self.capture.heads),
            self.outer.n_points,
            self.inner.n_points,
            self.outer.n_folders,
            self.inner.n_folders,
            memory=memory,
            workers=engine.workers,
            remote=engine.remote,
            itemsize=self.dtype.itemsize,
        )

    def tasks(self, block: int) -> list[range]:
        """Return the places of the folders of every block."""
        n = len(self.folders)
        return [range(start, min(start + block, n)) for start in range(0, n, block)]

    def of_heads(self, heads: Sequence[tuple[int, int]]) -> "HeadBlocks":
        """Return the same blocks of some heads."""
        return replace(self, capture=self.capture.select(heads=heads))

    def distances(self, task: range) -> NDArray[np.float64]:
        """Return what one block contributes to the EMDs."""
        return l1_distances(self.features(task))

    def features(self, task: range) -> NDArray[Any]:
        """Return the (head, feature) weighted averages over a block of outer and all inner folders."""
        out = np.empty((len(self.capture.heads), len(task) * self.inner.n_folders), dtype=self.dtype)
        for place, sums in enumerate(self.folder_rows(task)):
            self._write_features(sums, out[place])
        return out

    def folder_rows(self, task: range) -> Iterator[NDArray[np.float64]]:
        """Yield for every head its weighted sums over a block of outer folders, keys in the order of their tree."""
        chosen = self.folders[task.start : task.stop]
        start, size = self.outer.folders.start[chosen], self.outer.folders.size[chosen]
        stop = start + size
        first, last = int(start.min()), int(stop.max())
        rows = self.outer.order[first:last]
        for values in self._rows(rows):
            sums = _range_sums(values, start - first, stop - first)
            sums *= self.outer_weight[chosen, None]
            yield sums

    def _rows(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        """Yield some rows of every head, keys in the order of their tree, with a row of zeros after the last."""
        for layer, heads in heads_by_layer(self.capture).items():
            record = self.capture.record(self.window, layer)
            record = rows_of(record, rows, self.dtype)
            for head in heads:
                values = np.zeros((len(rows) + 1, self.inner.n_points))
                values[:-1] = field_of_head(record, head, self.field)[:, self.inner.order]
                yield values

    def _write_features(self, sums: NDArray[np.float64], out: NDArray[Any]) -> None:
        """Write the weighted sums over all folders of the key tree, each a range of its order."""
        below = np.zeros((len(sums), self.inner.n_points + 1))
        np.cumsum(sums, axis=1, out=below[:, 1:])
        folders = self.inner.folders
        found = below[:, folders.start + folders.size]
        found -= below[:, folders.start]
        found *= self.inner_weight
        out.reshape(found.shape)[...] = found


def heads_by_layer(capture: Capture) -> dict[int, list[int]]:
    """Return the heads of a capture by layer."""
    found: dict[int, list[int]] = {}
    for layer, head in capture.heads:
        found.setdefault(layer, []).append(head)
    return found


def rows_of(
    record: AttentionRecord, rows: slice | NDArray[np.int64], dtype: Any = np.float32
) -> AttentionRecord:
    """Return a module with some of its queries, in this order, whose fields are computed in this dtype."""
    per_head = record.visible.ndim == 3
    return record.replace(
        queries=record.queries[:, rows].astype(dtype, copy=False),
        visible=record.visible[:, rows] if per_head else record.visible[rows],
        bias=None if record.bias is None else record.bias[:, rows],
        probs=None if record.probs is None else record.probs[:, rows],
    )


def _range_sums(
    values: NDArray[np.float64], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the sums of rows over ranges; the last row is zero, so that a range may end before it."""
    ends = np.stack([start, stop], axis=1).ravel()
    return np.asarray(np.add.reduceat(values, ends, axis=0)[::2])
