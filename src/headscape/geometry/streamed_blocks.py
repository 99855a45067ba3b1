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
from headscape.geometry.feature_sample import FeatureSample, feature_sample, folder_shares, pilots
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
"""Features that a kernel is given at a time."""


@dataclass(frozen=True, eq=False)
class FolderBlocks:
    """What the tasks share. ``seed`` is that of an estimate, None for exact distances."""

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
    def shares(self) -> NDArray[np.float64]:
        """The share of its features that every outer folder keeps: all, if distances are exact."""
        if self.seed is None:
            return np.ones(self.outer.n_folders)
        return folder_shares(self.outer.weights(self.alpha, self.beta))

    def tasks(self, block: float) -> list[range]:
        """Return the places of the folders of every block, which keep as many features as ``block`` whole folders."""
        tasks, start, held = [], 0, 0.0
        for place, share in enumerate(self.shares[self.folders]):
            if place > start and held + share > block:
                tasks.append(range(start, place))
                start, held = place, 0.0
            held += share
        return [*tasks, range(start, len(self.folders))]

    def distances(self, task: range) -> NDArray[np.float64]:
        """Return what one block contributes: the EMDs or, if they are estimates, the sums of ``DitheredDistances``."""
        n = self.n_points
        if self.seed is None:
            total = np.zeros((n, n))
            small = 0.5 * n * n * self.outer.n_folders * self.inner.n_folders < SMALL_WORK
            for features, _ in self.features(task):
                _add_exact(features, total, small)
            return total
        dithered = DitheredDistances(n)
        for features, sample in self.features(task):
            dithered.add(features, sample)
        return dithered.sums()

    def features(self, task: range) -> Iterator[tuple[NDArray[Any], FeatureSample]]:
        """Yield features (point, pair of folders) of a block, some columns at a time: weighted averages."""
        raise NotImplementedError

    def sample(self, folder: int, ranges: NDArray[Any]) -> FeatureSample:
        """Return the inner folders that an outer one keeps, by the ranges of its features over the pilots.

        They are the same whatever the block of the folder.
        """
        rng = np.random.default_rng((self.seed or 0, AXES.index(self.axis), folder))
        return feature_sample(ranges, float(self.shares[folder]), rng)

    @cached_property
    def whole(self) -> FeatureSample:
        """All inner folders."""
        n = self.inner.n_folders
        return FeatureSample.of(np.arange(n), np.ones(n), np.random.default_rng(0))

    def write(
        self, rows: NDArray[Any], begin: IntArray, end: IntArray, outer: NDArray[np.float64], *places: Any
    ) -> None:
        """Write features of rows, as ``write_features`` does; ``outer`` are the weights of outer folders per point."""
        from headscape.geometry._l1_bytes import write_features

        write_features(rows, begin, end, outer, *self._inner, *places)

    def field_of(self, number: int, rows: slice | IntArray) -> NDArray[Any]:
        """Return some rows of the field of one head."""
        layer, head = self.capture.heads[number]
        record = rows_of(self.capture.head(self.window, layer, head), rows, self.dtype)
        return field_of_head(record, 0, self.field)

    @cached_property
    def outer_weight(self) -> NDArray[np.float64]:
        """The weights of outer folders per point."""
        return np.asarray(self.outer.weights(self.alpha, self.beta) / self.outer.folders.size)

    @cached_property
    def _inner(self) -> tuple[IntArray, IntArray, IntArray, NDArray[np.float64]]:
        """The order of points, where inner folders start and stop in it, and their weights per point."""
        folders, chosen = self.inner.folders, self.inner_folders
        weight = self.inner.weights(self.alpha, self.beta) / folders.size
        return self.inner.order, folders.start[chosen], folders.stop[chosen], weight[chosen]


class HeadBlocks(FolderBlocks):
    """Distances between heads."""

    def features(self, task: range) -> Iterator[tuple[NDArray[Any], FeatureSample]]:
        """Yield the averages of all heads, which are held for the whole block."""
        chosen = self.folders[task.start : task.stop]
        begin, end = self.outer.folders.start[chosen], self.outer.folders.stop[chosen]
        first = int(begin.min())
        rows = self.outer.order[first : int(end.max())]
        outer = (begin - first, end - first, self.outer_weight[chosen])
        samples = [self.whole] * len(chosen)
        if self.seed is not None:
            ranges = self._ranges(rows, outer)
            samples = [self.sample(int(folder), one) for folder, one in zip(chosen, ranges, strict=True)]
        joined = FeatureSample.joined(samples)
        stop = np.cumsum([len(one) for one in samples])
        start = np.concatenate([[0], stop[:-1]])
        held = np.empty((len(self.capture.heads), len(joined)), dtype=self.dtype)
        for place, field in enumerate(self._fields(rows)):
            self.write(field, *outer, joined.kept, np.stack([start, stop], axis=1), start, held[place])
        for column in range(0, len(joined), COLUMNS):
            columns = slice(column, column + COLUMNS)
            yield held[:, columns], joined[columns]

    def _ranges(self, rows: IntArray, outer: tuple[Any, ...]) -> NDArray[Any]:
        """Return the ranges over the pilots, (outer folder, inner folder)."""
        n, kept = len(outer[0]), self.whole.kept
        low, high = (np.full(n * len(kept), value, dtype=self.dtype) for value in (np.inf, -np.inf))
        out = np.empty_like(low)
        places = np.tile([0, len(kept)], (n, 1)), np.arange(n) * len(kept)
        for number in pilots(self.n_points):
            self.write(self.field_of(int(number), rows), *outer, kept, *places, out)
            np.minimum(low, out, out=low)
            np.maximum(high, out, out=high)
        # How many rows of a field are computed at a time changes its last digits, which must not count as a range.
        rounding = 8 * np.finfo(self.dtype).eps * np.maximum(np.abs(low), np.abs(high))
        return np.where(high - low > rounding, high - low, 0).reshape(n, -1)

    def _fields(self, rows: IntArray) -> Iterator[NDArray[Any]]:
        """Yield some rows of the field of every head."""
        for layer, heads in heads_by_layer(self.capture).items():
            record = rows_of(self.capture.record(self.window, layer), rows, self.dtype)
            for head in heads:
                yield field_of_head(record, head, self.field)


class PositionBlocks(FolderBlocks):
    """Distances between queries, or between keys."""

    def features(self, task: range) -> Iterator[tuple[NDArray[Any], FeatureSample]]:
        """Yield the averages of all points, of several folders of heads if each keeps few features."""
        from headscape.geometry._l1_bytes import transposed

        points, inner = np.arange(self.n_points), self.inner.n_folders
        features = np.empty((len(points), inner), dtype=self.dtype)
        places = np.tile([0, inner], (len(points), 1)), inner * points
        waiting: list[tuple[NDArray[Any], FeatureSample]] = []
        for folder, total in self._folder_fields(task):
            slices = total if self.axis == "query" else transposed(total)
            outer = points, points + 1, np.full(len(points), self.outer_weight[folder])
            self.write(slices, *outer, self.whole.kept, *places, features.reshape(-1))
            if self.seed is None:
                yield features, self.whole
                continue
            sample = self.sample(folder, np.ptp(features, axis=0))
            waiting.append((features[:, sample.kept], sample))
            if sum(len(one) for _, one in waiting) >= COLUMNS:
                yield _side_by_side(waiting)
                waiting = []
        if waiting:
            yield _side_by_side(waiting)

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
            total: NDArray[Any] = self.field_of(int(number), slice(None))
            while opened:
                folder, before = opened.pop()
                total = total if before is None else np.add(before, total, out=before)
                if folders.stop[folder] > place + 1:
                    # A single head that was yielded is not changed any more: its array may become the sum.
                    opened.append((folder, total))
                    break
                yield folder, total


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


def _side_by_side(parts: list[tuple[NDArray[Any], FeatureSample]]) -> tuple[NDArray[Any], FeatureSample]:
    """Return features of several folders as those of one."""
    features, samples = zip(*parts, strict=True)
    return np.concatenate(features, axis=1), FeatureSample.joined(samples)


def _add_exact(features: NDArray[Any], out: NDArray[np.float64], small: bool) -> None:
    """Add the L1 distances between points, leaving out features that are zero for all of them."""
    kept = np.flatnonzero(features.any(axis=0))
    for begin in range(0, len(kept), COLUMNS):
        out += l1_distances(features[:, kept[begin : begin + COLUMNS]], small=small)
