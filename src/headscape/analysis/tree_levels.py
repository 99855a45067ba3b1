"""The levels of a tree as contiguous ranges: averages of each from the level below (OA 11, arXiv 2506.15541)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.partition_tree import IntArray, PartitionTree

FloatArray64 = NDArray[np.float64]

# Up to this many neighbors, gathering them one after the other is several times faster than reduceat.
_GATHERED = 8


@dataclass(frozen=True, eq=False)
class TreeLevels:
    """The levels 0, ..., n_steps of a tree, with the folders of each in leaf order.

    Attributes
    ----------
    order : (point,) integers
        The leaf order.
    sizes
        For each level the number of points of its folders.
    children
        For each level but the last the number of folders of the next level in its folders.
    """

    order: IntArray
    sizes: tuple[IntArray, ...]
    children: tuple[IntArray, ...]

    @classmethod
    def of(cls, tree: PartitionTree, n_steps: int | None = None) -> Self:
        """Collect the levels of a tree, at most ``n_steps`` below the root.

        Examples
        --------
        >>> levels = TreeLevels.of(PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]]))
        >>> [sizes.tolist() for sizes in levels.sizes], [count.tolist() for count in levels.children]
        ([[3], [1, 2], [1, 1, 1]], [[2], [1, 2]])
        """
        last = tree.depth - 1 if n_steps is None else min(n_steps, tree.depth - 1)
        labels = tree.labels[: last + 1, tree.order]
        sizes = tuple(np.bincount(row) for row in labels)
        starts = [np.cumsum(size) - size for size in sizes]
        children = tuple(
            np.bincount(coarse[start]) for coarse, start in zip(labels[:-1], starts[1:], strict=True)
        )
        return cls(tree.order, sizes, children)

    @property
    def n_steps(self) -> int:
        """The number of steps from one level to the next."""
        return len(self.children)

    def sums(self, x: NDArray[Any], axis: int) -> list[FloatArray64]:
        """Return the sums of x over the folders of every level along one axis, each from the level below.

        Parameters
        ----------
        x : (query, key) array
            Sorted into leaf order along ``axis``.
        """
        found = [_group(x, self.sizes[-1], axis)]
        for children in reversed(self.children):
            found.append(_group(found[-1], children, axis))
        return found[::-1]

    def refine(self, x: FloatArray64, level: int, axis: int, part: slice = slice(None)) -> FloatArray64:
        """Repeat the values of (a part of) the folders of a level for the folders of the next, in a new array."""
        return _spread(x, self.children[level][part], axis)

    def parts(self, level: int, size: int) -> Iterator[tuple[slice, slice]]:
        """Cut the folders of a level into parts with about ``size`` folders of the next level; yield both ranges."""
        ends = np.cumsum(self.children[level])
        start = fine_start = 0
        while start < len(ends):
            stop = max(start + 1, int(np.searchsorted(ends, fine_start + size, side="right")))
            fine_stop = int(ends[stop - 1])
            yield slice(start, stop), slice(fine_start, fine_stop)
            start, fine_start = stop, fine_stop

    def to_points(self, x: FloatArray64, axis: int, level: int = -1) -> FloatArray64:
        """Repeat the values of the folders of a level (the last by default) for their points, in leaf order."""
        return _spread(x, self.sizes[level], axis)


def _group(x: NDArray[Any], counts: IntArray, axis: int) -> NDArray[Any]:
    """Add up runs of ``counts`` neighbors."""
    if len(counts) == x.shape[axis]:
        return x
    start = np.cumsum(counts) - counts
    if counts.max() > _GATHERED:
        return np.asarray(np.add.reduceat(x, start, axis=axis))
    total = x.take(start, axis, mode="clip")
    view, source = np.moveaxis(total, axis, 0), np.moveaxis(x, axis, 0)
    for place in range(1, int(counts.max())):
        more = counts > place
        if more.all():
            total += x.take(start + place, axis, mode="clip")
        else:
            view[more] += source[start[more] + place]
    return total


def _spread(x: FloatArray64, counts: IntArray, axis: int) -> FloatArray64:
    """Repeat every entry ``counts`` times, in a new array."""
    return x.take(np.repeat(np.arange(len(counts)), counts), axis, mode="clip")
