"""The slices of a tensor along an axis, arranged in memory as the kernel of the tree EMD reads them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine
from headscape.geometry.partition_tree import IntArray, PartitionTree

PANEL = 16
"""Points are padded to a multiple of this by zeros."""

_TASKS = 8


@dataclass(frozen=True, eq=False)
class Arranged:
    """A tensor (outer, inner, point) whose points, along one axis, lie side by side.

    Parameters
    ----------
    rows : (outer, inner, width) array
        Zero beyond the points.
    order : (point,) integers
        The points from left to right. Those with as many zeros as each other are neighbors, so that where a mask
        hides much, whole panels of points are zero.
    """

    rows: NDArray[Any]
    order: IntArray

    def restored(self, emd: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return distances between the points in their own order."""
        back = np.argsort(self.order)
        return emd[np.ix_(back, back)]


@dataclass(eq=False)
class Arrangements:
    """The arrangements of one tensor along its axes, each made once however many EMDs are computed.

    Parameters
    ----------
    x : (query, key[, head]) array
    max_bytes
        Arrangements beyond this are made anew each time.
    bounds
        The smallest and the largest entry of x.
    engine
        Local threads work on parts of one array; other engines leave this to the threads of this process.
    """

    x: NDArray[Any]
    max_bytes: int
    bounds: tuple[float, float]
    engine: Engine = field(default_factory=LocalEngine)
    _made: dict[int, Arranged] = field(default_factory=dict)
    _spare: NDArray[Any] | None = None
    _begun: "Callable[[], _Prepared] | None" = None

    @property
    def signed(self) -> bool:
        """Whether x has negative entries."""
        return self.bounds[0] < 0.0

    @cached_property
    def unit(self) -> float:
        """The power of two by which x is divided if its scale is extreme, so that sums cannot overflow; else 1."""
        largest = max(map(abs, self.bounds))
        extreme = largest > 0.0 and not 1e-12 < largest < 1e12
        return float(np.ldexp(1.0, int(np.frexp(largest)[1]))) if extreme else 1.0

    @cached_property
    def scaled(self) -> NDArray[Any]:
        """The tensor in that unit, exactly."""
        return self.x if self.unit == 1.0 else np.ldexp(self.x, -int(np.log2(self.unit)))

    def laid_out(self, axis: int, outer: PartitionTree) -> tuple[Arranged, NDArray[Any]]:
        """Return the slices along an axis and their sums over the folders of several points of the outer tree.

        The sums are valid until the next call.
        """
        begun, self._begun = self._begun, None
        known = begun() if begun is not None else None
        if known is None or known.axis != axis:
            found = self._along(axis, self.engine)
        elif known.sums is not None and known.outer is outer:
            return known.arranged, known.sums
        else:
            found = known.arranged
        return found, self._coarse_sums(found.rows, outer, self.engine)

    def inner_products(self, axis: int) -> NDArray[np.float64]:
        """Return the inner products of the slices along an axis, up to the square of the unit."""
        from headscape.geometry._gram_numba import add_inner_products

        found = self._along(axis, self.engine)
        width = found.rows.shape[2]

        def add(first: int) -> NDArray[np.float64]:
            part = np.zeros((width, width + PANEL // 2))
            add_inner_products(found.rows, first, _TASKS, part)
            return part

        upper = np.triu(np.add.reduce(list(local(self.engine).map(add, range(_TASKS))))[:, :width])
        n = len(found.order)
        return found.restored((upper + np.triu(upper, 1).T)[:n, :n])

    def prepare(self, axis: int, outer: PartitionTree | None) -> None:
        """Begin what :meth:`laid_out` will be asked for, beside the caller: without the tree, the arrangement alone."""
        # The caller goes on with work of its own, which needs a core.
        spare = LocalEngine(max(1, local(self.engine).threads - 1))

        def prepared() -> _Prepared:
            found = self._along(axis, spare)
            sums = None if outer is None else self._coarse_sums(found.rows, outer, spare)
            return _Prepared(axis, outer, found, sums)

        self._begun = local(self.engine).begin(prepared)

    def _along(self, axis: int, engine: Engine) -> Arranged:
        """Arrange the slices along an axis; of the two other axes the first is the outer one."""
        if axis in self._made:
            return self._made[axis]
        x = self.scaled[:, :, None] if self.x.ndim == 2 else self.scaled
        others = [number for number in range(3) if number != axis]
        made = arranged(x.transpose(*others, axis), engine)
        if sum(one.rows.nbytes for one in (*self._made.values(), made)) <= self.max_bytes:
            self._made[axis] = made
        return made

    def _coarse_sums(self, rows: NDArray[Any], tree: PartitionTree, engine: Engine) -> NDArray[Any]:
        """Sum arranged rows over the folders of several points of a tree.

        The memory is used again: asking the system for it takes as long as the sums.
        """
        size = int((tree.folders.size > 1).sum()) * rows[0].size
        if self._spare is None or len(self._spare) < size:
            self._spare = np.empty(size, dtype=rows.dtype)
        out = self._spare[:size].reshape(-1, *rows.shape[1:])
        write_coarse(rows, tree, out, engine)
        return out


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Slices along an axis, and their sums if the outer tree was known."""

    axis: int
    outer: PartitionTree | None
    arranged: Arranged
    sums: NDArray[Any] | None


def arranged(x: NDArray[Any], engine: Engine) -> Arranged:
    """Arrange a tensor (outer, inner, point), on all threads."""
    from headscape.geometry._l1_numba import write_arranged, write_transposed

    outer, inner, points = x.shape
    rows = np.empty((*x.shape[:2], points + -points % PANEL), dtype=x.dtype)
    parts = _parts(outer)
    apart = tuple(stride // x.itemsize for stride in x.strides)
    whole = points >= PANEL and not any(stride % x.itemsize for stride in x.strides)
    outer_squares = whole and apart[0] == 1 and min(b - a for a, b in parts) >= PANEL
    inner_squares = whole and apart[1] == 1 and inner >= PANEL

    def write(part: tuple[int, int]) -> IntArray:
        count = np.zeros(points, dtype=np.int64)
        if outer_squares or inner_squares:
            write_transposed(x, apart, outer_squares, *part, rows, count)
        else:
            write_arranged(x, *part, rows, count)
        return count

    counts = sum(local(engine).map(write, parts), np.zeros(points, dtype=np.int64))
    steps = np.diff(counts)
    # Most often the points are in order, as under a causal mask, or zeros are too few for a panel to be zero somewhere.
    few = counts.min() * PANEL > counts.max() * (PANEL - 1)
    if few or (steps >= 0).all() or (steps <= 0).all():
        return Arranged(rows, np.arange(points))
    order = np.argsort(counts, kind="stable")
    for block in rows:
        block[:, :points] = block[:, order]
    return Arranged(rows, order)


def write_coarse(rows: NDArray[Any], tree: PartitionTree, out: NDArray[Any], engine: Engine) -> None:
    """Sum rows (outer, ...) over the folders of several points of a tree on the outer axis, each from its children."""
    from headscape.geometry._l1_numba import write_coarse_sums

    several = tree.folders.size > 1
    rank = np.where(several, np.cumsum(several) - 1, -1)

    def write(part: tuple[int, int]) -> None:
        write_coarse_sums(rows, tree.leaf_folders, tree.folders.parent, rank, *part, out)

    for _ in local(engine).map(write, _parts(rows.shape[1]) if len(out) else []):
        pass


def local(engine: Engine) -> LocalEngine:
    """Return the engine if it shares the memory of this process, else local threads."""
    return engine if isinstance(engine, LocalEngine) else LocalEngine()


def _parts(n: int) -> list[tuple[int, int]]:
    """Cut a range into parts for the threads."""
    cuts = np.unique(np.linspace(0, n, _TASKS + 1).round().astype(int)).tolist()
    return list(pairwise(cuts))
