"""The EMD along an axis of a capture, cut into blocks of folders that are computed from queries and keys.

The EMD is a sum over pairs of folders of the two other axes (OA 15, arXiv 2506.15541), so a block of folders of one of
them, the outer one, is a task of its own; the tensor is never in memory.

    between heads              outer: query tree, inner: key tree; a task holds the averages of all heads over its block
    between queries (or keys)  outer: head tree, inner: key tree (or query tree); a task adds up the fields of heads in
                               the order of their tree, and takes a folder's averages when its last head is there
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.dithered import DitheredDistances
from headscape.geometry.folder_averages import require_fit
from headscape.geometry.l1_kernel import SMALL_WORK, l1_distances
from headscape.geometry.partition_tree import IntArray, PartitionTree
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.capture import Capture
from headscape.tensor.fields import field_of_head

OTHERS = {"head": ("query", "key"), "query": ("head", "key"), "key": ("head", "query")}
"""The outer and the inner tree of the EMD along each axis."""
AXES = tuple(OTHERS)
MIN_BLOCKS = 16
COLUMNS = 8192
"""Features that the exact kernel is given at a time."""


@dataclass(frozen=True, eq=False)
class FolderBlocks:
    """What the tasks share. ``seed`` is that of the dither, None for exact distances."""

    capture: Capture
    window: int
    axis: str
    n_points: int
    trees: Mapping[str, PartitionTree]
    alpha: float = 0.0
    beta: float = 1.0
    field: str = "probs"
    dtype: Any = np.float32
    seed: int | None = None

    @property
    def outer(self) -> PartitionTree:
        """The tree that is cut into blocks."""
        return self.trees[OTHERS[self.axis][0]]

    @property
    def inner(self) -> PartitionTree:
        """The tree of the other axis, whole in every task."""
        return self.trees[OTHERS[self.axis][1]]

    @cached_property
    def folders(self) -> IntArray:
        """The outer folders, small ones first, each kind in the order in which they begin.

        So a block needs a short range of points; the few large folders have blocks of their own.
        """
        folders, n = self.outer.folders, self.outer.n_points
        large = folders.size > max(1, n // (4 * MIN_BLOCKS))
        return np.lexsort((-folders.size, folders.start, large)).astype(np.int64)

    @cached_property
    def inner_folders(self) -> IntArray:
        """The inner folders in the order in which a causal mask hides them: features end in zeros, which cost nothing.

        A query sees key folders that begin before it, a key is seen by query folders that end after it.
        """
        folders, order = self.inner.folders, self.inner.order
        points = [order[a:b] for a, b in zip(folders.start, folders.stop, strict=True)]
        seen = [-int(one.max()) if self.axis == "key" else int(one.min()) for one in points]
        return np.argsort(seen, kind="stable").astype(np.int64)

    @cached_property
    def inner_ranges(self) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
        """Where inner folders start and stop in their order, and their weights per point."""
        folders, chosen = self.inner.folders, self.inner_folders
        weight = self.inner.weights(self.alpha, self.beta) / folders.size
        return folders.start[chosen], folders.stop[chosen], weight[chosen]

    @cached_property
    def outer_weight(self) -> NDArray[np.float64]:
        """The weights of outer folders per point."""
        return np.asarray(self.outer.weights(self.alpha, self.beta) / self.outer.folders.size)

    def tasks(self, block: int) -> list[range]:
        """Return the places of the folders of every block."""
        n = len(self.folders)
        return [range(start, min(start + block, n)) for start in range(0, n, block)]

    def distances(self, task: range) -> NDArray[np.float64]:
        """Return what one block contributes: the EMDs and, if they are dithered, a bound of their variance."""
        n = self.n_points
        if self.seed is None:
            total = np.zeros((1, n, n))
            small = 0.5 * n * n * self.outer.n_folders * self.inner.n_folders < SMALL_WORK
            for _, features in self.features(task):
                _add_exact(features, total[0], small)
            return total
        dithered = DitheredDistances(n)
        for folder, features in self.features(task):
            # A folder has the same dither whatever block it is in.
            dithered.add(features, np.random.default_rng((self.seed, AXES.index(self.axis), folder)))
        return dithered.sums()

    def features(self, task: range) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield every outer folder of a block with the (point, inner folder) weighted averages over it."""
        raise NotImplementedError


class HeadBlocks(FolderBlocks):
    """Distances between heads."""

    def features(self, task: range) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the averages of all heads, which are held for the whole block."""
        from headscape.geometry._l1_bytes import write_features

        chosen = self.folders[task.start : task.stop]
        begin, end = self.outer.folders.start[chosen], self.outer.folders.stop[chosen]
        first, last = int(begin.min()), int(end.max())
        start, stop, weight = self.inner_ranges
        held = np.empty((len(chosen), len(self.capture.heads), len(start)), dtype=self.dtype)
        for place, rows in enumerate(self._rows(self.outer.order[first:last])):
            outer = self.outer_weight[chosen]
            write_features(
                rows, begin - first, end - first, outer, self.inner.order, start, stop, weight, held[:, place]
            )
        yield from zip(map(int, chosen), held, strict=True)

    def _rows(self, rows: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield some rows of the field of every head."""
        for layer, heads in heads_by_layer(self.capture).items():
            record = rows_of(self.capture.record(self.window, layer), rows, self.dtype)
            for head in heads:
                yield field_of_head(record, head, self.field)


class PositionBlocks(FolderBlocks):
    """Distances between queries, or between keys."""

    def features(self, task: range) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the averages of all points, one folder of heads after the other."""
        from headscape.geometry._l1_bytes import transposed, write_features

        points = np.arange(self.n_points)
        start, stop, weight = self.inner_ranges
        features = np.empty((len(points), len(start)), dtype=self.dtype)
        for folder, total in self._folder_fields(task):
            slices = total if self.axis == "query" else transposed(total)
            outer = np.full(len(points), self.outer_weight[folder])
            write_features(slices, points, points + 1, outer, self.inner.order, start, stop, weight, features)
            yield folder, features

    def _folder_fields(self, task: range) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the sums of fields over folders of heads, in the order in which they end.

        The sums of folders inside each other are kept at the same time; what is inside is added once it is whole.
        """
        folders = self.outer.folders
        waiting = [int(i) for i in self.folders[task.start : task.stop]]
        waiting.sort(key=lambda i: (folders.start[i], -folders.size[i]), reverse=True)
        opened: list[tuple[int, NDArray[Any] | None]] = []
        for place, number in enumerate(self.outer.order):
            while waiting and folders.start[waiting[-1]] == place:
                opened.append((waiting.pop(), None))
            if not opened:
                continue
            total: NDArray[Any] = self._field(int(number))
            while opened:
                folder, before = opened.pop()
                total = total if before is None else np.add(before, total, out=before)
                if folders.stop[folder] > place + 1:
                    # A single head that was yielded is not changed any more: its array may become the sum.
                    opened.append((folder, total))
                    break
                yield folder, total

    def _field(self, number: int) -> NDArray[Any]:
        layer, head = self.capture.heads[number]
        record = rows_of(self.capture.head(self.window, layer, head), slice(None), self.dtype)
        return field_of_head(record, 0, self.field)


def folder_blocks(
    capture: Capture, window: int, axis: str, trees: Mapping[str, PartitionTree], **options: Any
) -> FolderBlocks:
    """Return the blocks of the EMD along an axis, or raise unless the trees fit; options as for the blocks."""
    if axis not in OTHERS:
        raise InputError(f"axis must be one of {', '.join(OTHERS)}, but is {axis!r}.")
    sizes = axis_sizes(capture, window)
    for other in OTHERS[axis]:
        if other not in trees:
            raise InputError(
                f"the EMD along {axis} needs trees of {' and '.join(OTHERS[axis])}, but there is none for {other}."
            )
        require_fit(sizes[other], trees[other], f"the axis {other}")
    kind = HeadBlocks if axis == "head" else PositionBlocks
    return kind(capture, window, axis, sizes[axis], trees, **options)


def axis_sizes(capture: Capture, window: int) -> dict[str, int]:
    """Return the number of points of every axis."""
    record = capture.head(window, *capture.heads[0])
    return {"query": record.n_queries, "key": record.n_keys, "head": len(capture.heads)}


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
        scores=None if record.scores is None else record.scores[:, rows],
    )


def _add_exact(features: NDArray[Any], out: NDArray[np.float64], small: bool) -> None:
    """Add the L1 distances between points, leaving out features that are zero for all of them."""
    kept = np.flatnonzero(features.any(axis=0))
    for begin in range(0, len(kept), COLUMNS):
        out += l1_distances(features[:, kept[begin : begin + COLUMNS]], small=small)
