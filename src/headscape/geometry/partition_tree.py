"""Partition trees as arrays (OA 2.3, arXiv 2506.15541).

A tree on the points of an axis is a list of partitions, from the root (one folder) to the single points, each
refining the one before. Here it is one integer array ``labels`` (level x point): the folder of a point at a
level. Folders are numbered from left to right in the *leaf order*, so every folder is a contiguous range of
that order and the last row of ``labels`` is each point's position in it.

A folder that stays unchanged over several levels is stored once, with its first and last level. Folders are
sorted by first level and position, which makes the children of a folder a contiguous range of folders, and
puts every folder before its children.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.tree_text import tree_text

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Folders:
    """The distinct folders of a tree; every attribute has one entry per folder.

    ``start`` and ``stop`` bound the folder in the leaf order, ``first_level`` and ``last_level`` the levels at
    which it exists, ``child_start`` and ``child_stop`` its children (empty for single points). ``parent`` is
    -1 for the root.
    """

    start: IntArray
    stop: IntArray
    first_level: IntArray
    last_level: IntArray
    parent: IntArray
    child_start: IntArray
    child_stop: IntArray

    @property
    def size(self) -> IntArray:
        """The number of points of each folder."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class PartitionTree:
    """A partition tree on the points of one axis.

    Parameters
    ----------
    labels : (level, point) integers
        The folder of every point at every level, coarse to fine: one folder at level 0, single points at the
        last level, every level refining the one before. The numbers set the order of the folders.

    Examples
    --------
    >>> tree = PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [1], [0]]])
    >>> tree.order.tolist(), tree.depth, tree.n_folders
    ([2, 1, 0], 3, 5)
    >>> tree.levels()[1]
    [[2], [0, 1]]
    """

    labels: NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        raw = np.asarray(self.labels)
        if raw.ndim != 2 or 0 in raw.shape or raw.dtype.kind not in "iu":
            raise InputError(
                f"labels must be a (level, point) array of integers, but is {raw.dtype} of shape {raw.shape}."
            )
        object.__setattr__(self, "labels", _canonical(raw))
        self.labels.setflags(write=False)

    @classmethod
    def from_levels(cls, levels: Sequence[Iterable[Iterable[int]]]) -> Self:
        """Build from lists of folders per level, coarse to fine; their order is kept.

        Parameters
        ----------
        levels
            For each level the folders, each a list of points. Level 0 has one folder with all points
            0, ..., n - 1, the last level has single points.
        """
        partitions = [[list(folder) for folder in level] for level in levels]
        if not partitions:
            raise InputError("a tree must have at least one level, but the list of levels is empty.")
        n = sum(len(folder) for folder in partitions[0])
        labels = np.full((len(partitions), n), -1, dtype=np.int64)
        for level, folders in enumerate(partitions):
            points = [point for folder in folders for point in folder]
            if sorted(points) != list(range(n)):
                raise InputError(
                    f"the folders of every level must hold the points 0 to {n - 1} once each, but those of level "
                    f"{level} do not."
                )
            for number, folder in enumerate(folders):
                labels[level, folder] = number
        return cls(labels)

    @classmethod
    def trivial(cls, n: int) -> Self:
        """Return the tree of n points that has only the root and the points."""
        if n < 1:
            raise InputError(f"a tree must have at least one point, but n = {n}.")
        points = np.arange(n)
        return cls(np.stack([np.zeros_like(points), points]) if n > 1 else np.zeros((1, 1), dtype=np.int64))

    @property
    def n_points(self) -> int:
        """The number of points of the axis."""
        return int(self.labels.shape[1])

    @property
    def depth(self) -> int:
        """The number of levels, root and points included."""
        return int(self.labels.shape[0])

    @property
    def n_folders(self) -> int:
        """The number of distinct folders, root and single points included."""
        return len(self.folders.start)

    @cached_property
    def order(self) -> IntArray:
        """The leaf order: the points from left to right. ``x[tree.order]`` is organized."""
        return np.argsort(self.labels[-1]).astype(np.int64)

    @cached_property
    def folders(self) -> Folders:
        """The distinct folders as arrays."""
        return _distinct_folders(self.labels[:, self.order])

    @cached_property
    def leaf_folders(self) -> IntArray:
        """The index of each point's own (single) folder among the distinct folders."""
        single = np.flatnonzero(self.folders.size == 1)
        index = np.empty(self.n_points, dtype=np.int64)
        index[self.order[self.folders.start[single]]] = single
        return index

    def folder(self, index: int) -> IntArray:
        """Return the points of a distinct folder in leaf order."""
        return self.order[self.folders.start[index] : self.folders.stop[index]]

    def weights(self, alpha: float, beta: float) -> NDArray[np.float64]:
        """Return the weights of the distinct folders in the tree EMD (OA 15).

            w(F) = (|F| / n)^beta * sum over the levels l of F of 2^(-alpha l)

        A folder that is unchanged over several levels counts once per level.
        """
        powers = np.concatenate([[0.0], np.cumsum(2.0 ** (-alpha * np.arange(self.depth)))])
        folders = self.folders
        levels = powers[folders.last_level + 1] - powers[folders.first_level]
        return np.asarray((folders.size / self.n_points) ** beta * levels)

    def levels(self) -> list[list[list[int]]]:
        """Return the folders per level, coarse to fine, in leaf order; points inside a folder are sorted."""
        result = []
        for row in self.labels[:, self.order]:
            cuts = np.flatnonzero(np.diff(row)) + 1
            result.append([sorted(part.tolist()) for part in np.split(self.order, cuts)])
        return result

    def cut(self, k: int) -> IntArray:
        """Return a label from 0 to k - 1 for every point: k clusters, split off the root from coarse to fine.

        Folders are taken level by level, the largest first. A folder with several children loses one at a time, the
        largest first, so that every k is possible; what is left of it is one cluster until then.

        Examples
        --------
        >>> tree = PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2], [3]], [[0], [1], [2], [3]]])
        >>> tree.cut(2).tolist(), tree.cut(3).tolist()
        ([0, 0, 1, 1], [0, 0, 1, 2])
        """
        if not 1 <= k <= self.n_points:
            raise InputError(f"k must be from 1 to the {self.n_points} points of the tree, but is {k}.")
        folders, labels, found = self.folders, np.zeros(self.n_points, dtype=np.int64), 1
        for index in np.lexsort((folders.start, -folders.size, folders.last_level)):
            children = np.arange(folders.child_start[index], folders.child_stop[index])
            by_size = children[np.argsort(-folders.size[children], kind="stable")]
            # The largest child keeps the label of its folder, each of the others but the last is split from the rest.
            for place in range(1, len(by_size)):
                if found == k:
                    return labels
                for child in by_size[place:]:
                    labels[self.folder(int(child))] = found
                found += 1
        return labels

    def reordered(self, order: NDArray[np.integer[Any]]) -> "PartitionTree":
        """Return the same folders with another leaf order, which must keep every folder together."""
        position = np.empty(self.n_points, dtype=np.int64)
        position[np.asarray(order)] = np.arange(self.n_points)
        labels = np.empty_like(self.labels, dtype=np.int64)
        for level, row in enumerate(self.labels):
            # Number each folder by where its first point lands: that is the new left-to-right order.
            first = np.full(int(row.max()) + 1, self.n_points)
            np.minimum.at(first, row, position)
            labels[level] = first[row]
        tree = PartitionTree(labels)
        if not np.array_equal(tree.order, order):
            raise InputError("the order must keep the points of every folder together, but tears one apart.")
        return tree

    def to_newick(self, names: Sequence[str] | Callable[[int], str] | None = None) -> str:
        """Return the tree in Newick notation, for tree viewers.

        Examples
        --------
        >>> PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]]).to_newick()
        '(2,(0,1));'
        """
        name = names if callable(names) else (names.__getitem__ if names is not None else str)
        folders = self.folders
        text = [""] * self.n_folders
        for index in reversed(range(self.n_folders)):
            inside = text[folders.child_start[index] : folders.child_stop[index]]
            point = int(self.order[folders.start[index]])
            text[index] = f"({','.join(inside)})" if inside else _quoted(name(point))
        return text[0] + ";"

    def draw(
        self,
        names: Sequence[str] | Callable[[int], str] | None = None,
        folder_names: Sequence[str] | None = None,
        max_lines: int = 40,
    ) -> str:
        """Return the tree as text, a line per folder, the largest opened first; ``print(tree)`` shows it.

        ``names`` are those of the points, such as ``organization.labels("head")``; ``folder_names`` those of the
        distinct folders. Folders that find no line are summed up.

        Examples
        --------
        >>> print(PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]]).draw(["a", "b", "c"]))
        3 points
        ├─ c
        └─ 2 points
           ├─ a
           └─ b
        """
        name = names if callable(names) else (names.__getitem__ if names is not None else str)
        return tree_text(self, name, folder_names, max_lines)

    def __str__(self) -> str:
        return self.draw()

    def _repr_html_(self) -> str:
        """Show the tree in notebooks."""
        return f"<p><b>{html.escape(repr(self))}</b></p><pre>{html.escape(self.draw(max_lines=24))}</pre>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionTree) and np.array_equal(self.labels, other.labels)

    def __hash__(self) -> int:
        return hash(self.labels.tobytes())

    def __repr__(self) -> str:
        return f"PartitionTree(points={self.n_points}, depth={self.depth}, folders={self.n_folders})"


def _canonical(raw: NDArray[Any]) -> NDArray[np.int32]:
    """Check that labels are a tree and number the folders of each level in leaf order."""
    order = np.lexsort(raw[::-1])
    sorted_labels = raw[:, order]
    # A folder starts where its own label or any coarser one changes; if the labels nest, the two agree.
    change = sorted_labels[:, 1:] != sorted_labels[:, :-1]
    starts = np.logical_or.accumulate(change, axis=0)
    for level in range(len(raw)):
        if len(np.unique(raw[level])) != starts[level].sum() + 1:
            raise InputError(
                f"every folder must lie inside one folder of the level above, but at level {level} one does not."
            )
    if starts[0].any():
        raise InputError("level 0 of a tree must be one folder with all points, but it has several.")
    if not starts[-1].all():
        raise InputError(
            "the last level of a tree must have single points only, but a folder there has more."
        )
    labels = np.zeros(raw.shape, dtype=np.int32)
    labels[:, order[1:]] = np.cumsum(starts, axis=1)
    return labels


def _distinct_folders(labels: NDArray[np.integer[Any]]) -> Folders:
    """Collect the distinct folders of labels that are sorted into leaf order."""
    depth, n = labels.shape
    columns: dict[str, list[IntArray]] = {name: [] for name in ("start", "stop", "first", "parent")}
    last_level: list[int] = []
    total = 0
    at_start: IntArray = np.full(n, -1)  # the distinct folder that covers each position at the level above
    for level in range(depth):
        start = np.concatenate([[0], np.flatnonzero(np.diff(labels[level])) + 1])
        stop = np.concatenate([start[1:], [n]])
        above = at_start[start]
        if level:
            stops = np.concatenate(columns["stop"])
            starts = np.concatenate(columns["start"])
            same = (starts[above] == start) & (stops[above] == stop)
        else:
            same = np.zeros(1, dtype=bool)
        for folder in above[same]:
            last_level[folder] = level
        new = ~same
        index = np.where(same, above, total + np.cumsum(new) - 1)
        columns["start"].append(start[new])
        columns["stop"].append(stop[new])
        columns["first"].append(np.full(int(new.sum()), level))
        columns["parent"].append(above[new])
        last_level += [level] * int(new.sum())
        total += int(new.sum())
        at_start = np.repeat(index, stop - start)
    parent = np.concatenate(columns["parent"])
    child_start, child_stop = _child_bounds(parent, total)
    return Folders(
        start=np.concatenate(columns["start"]),
        stop=np.concatenate(columns["stop"]),
        first_level=np.concatenate(columns["first"]),
        last_level=np.asarray(last_level),
        parent=parent,
        child_start=child_start,
        child_stop=child_stop,
    )


def _child_bounds(parent: IntArray, total: int) -> tuple[IntArray, IntArray]:
    """Return the range of children of every folder; they are contiguous, parents need not be sorted."""
    start = np.zeros(total, dtype=np.int64)
    stop = np.zeros(total, dtype=np.int64)
    child = np.arange(1, total)
    np.maximum.at(stop, parent[1:], child + 1)
    start[:] = stop
    np.minimum.at(start, parent[1:], child)
    return start, stop


def _quoted(name: str) -> str:
    """Quote a Newick name if it holds characters that mean something there."""
    if any(c in name for c in " ()[]{}:;,'\"\t\n/\\") or not name:
        return "'" + name.replace("'", "''") + "'"
    return name


def trees_of(given: Any) -> Mapping[str, PartitionTree]:
    """Return trees by axis: those of an organization, or a mapping as it is; anything else is refused."""
    trees = getattr(given, "trees", given)
    if not isinstance(trees, Mapping) or not all(isinstance(t, PartitionTree) for t in trees.values()):
        raise InputError(
            "trees must be a dict from axis names to PartitionTree, or what organize(x) returns, but is "
            f"{type(given).__name__}."
        )
    return trees
