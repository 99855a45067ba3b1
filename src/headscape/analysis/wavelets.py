"""The Haar wavelets of a tree as arrays: where each one lives and what it separates (OA 2.4, arXiv 2506.15541)."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.geometry.partition_tree import IntArray, PartitionTree


@dataclass(frozen=True, eq=False)
class Wavelets:
    """The constant and the n - 1 Haar wavelets of a tree; every attribute but ``order`` has one entry each.

    A folder with children F_1, ..., F_m in decreasing size (equal sizes keep the order of the tree) has the
    wavelets j = 1, ..., m - 1. Wavelet j separates F_j from the union of F_{j+1}, ..., F_m. Written down in
    ``order``, both sides are ranges: F_j is [start, middle), the rest is [middle, stop). Entry 0 is the
    constant (folder 0, j = 0, no first side). A wavelet comes after all those whose support contains its own.

    Attributes
    ----------
    order : (n,) integers
        The points, so arranged that the two sides of every wavelet are neighboring ranges.
    start, middle, stop
        The two sides as ranges of ``order``. Every middle occurs once, which makes the wavelets a basis.
    folder, level, j
        The folder (index into ``tree.folders``), the last level at which it exists, and the number within.
    folder_size
        The number of points of that folder: the scale of the wavelet in a regularity fit.
    """

    order: IntArray
    start: IntArray
    middle: IntArray
    stop: IntArray
    folder: IntArray
    level: IntArray
    j: IntArray
    folder_size: IntArray

    def __len__(self) -> int:
        return len(self.start)

    @property
    def support(self) -> IntArray:
        """The number of points where a wavelet is not zero: |F_j u ... u F_m|, n for the constant."""
        return self.stop - self.start

    @property
    def sides(self) -> tuple[IntArray, IntArray]:
        """The sizes of F_j and of the rest; (0, n) for the constant."""
        return self.middle - self.start, self.stop - self.middle

    @property
    def difference_norm(self) -> NDArray[np.float64]:
        """sqrt(ab / (a + b)) of the sizes of the sides: coefficient / this = difference of the side means."""
        a, b = self.sides
        return np.sqrt(a * (b / self.support))

    def at_least(self, support: float) -> "Wavelets":
        """Return the wavelets whose support is at least ``support``, in the same order, constant included.

        Whatever contains such a support is itself kept, so the coefficients of these wavelets follow from the
        sums over the ranges between their middles alone.
        """
        kept = self.support >= support
        kept[0] = True
        entries = {name: array[kept] for name, array in vars(self).items() if name != "order"}
        return Wavelets(self.order, **entries)

    def points(self, index: int) -> tuple[IntArray, IntArray]:
        """Return the points of the two sides of a wavelet: its positive values, its negative values."""
        middle = self.middle[index]
        return self.order[self.start[index] : middle], self.order[middle : self.stop[index]]

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per wavelet: level, folder, j, support, and the sizes of its sides."""
        a, b = self.sides
        columns = {"level": self.level, "folder": self.folder, "j": self.j, "support": self.support}
        return pd.DataFrame(columns | {"first_side": a, "rest": b}).rename_axis("wavelet")


@lru_cache(maxsize=32)
def wavelets(tree: PartitionTree) -> Wavelets:
    """Return the Haar wavelets of a tree, coarse to fine.

    Parameters
    ----------
    tree
        A tree on n points.

    Returns
    -------
    Wavelets
        n entries: the constant, then the wavelets by folder (in the order of ``tree.folders``) and j.

    Notes
    -----
    O(n log n) once per tree; the result is kept. Which of several equal-size children comes first is a
    convention, and sums of absolute coefficients depend on it by a few percent; here the tree decides.

    References
    ----------
    OA (arXiv 2506.15541), 2.4; Gavish, Nadler, Coifman, "Multiscale wavelets on trees", ICML 2010.

    Examples
    --------
    >>> tree = PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]])
    >>> w = wavelets(tree)
    >>> w.support.tolist(), w.level.tolist(), [side.tolist() for side in w.points(1)]
    ([3, 3, 2], [0, 0, 1], [[0, 1], [2]])
    """
    folders = tree.folders
    size = folders.size
    place = np.zeros(tree.n_folders, dtype=np.int64)
    rows = [np.array([[0], [0], [tree.n_points], [0], [0]])]
    for index in np.flatnonzero(size > 1):
        children = np.arange(folders.child_start[index], folders.child_stop[index])
        children = children[np.argsort(-size[children], kind="stable")]
        ends = place[index] + np.cumsum(size[children])
        place[children] = ends - size[children]
        j = np.arange(1, len(children))
        stop = np.full_like(j, ends[-1])
        rows.append(np.stack([place[children[:-1]], ends[:-1], stop, np.full_like(j, index), j]))
    start, middle, stop, folder, j = np.concatenate(rows, axis=1)
    order = np.empty(tree.n_points, dtype=np.int64)
    order[place[tree.leaf_folders]] = np.arange(tree.n_points)
    result = Wavelets(order, start, middle, stop, folder, folders.last_level[folder], j, size[folder])
    for array in vars(result).values():
        array.setflags(write=False)  # shared by all callers
    return result
