"""The one pass over all pairs of levels behind the paraproduct: cached averages, terms at the size of folders."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.tree_levels import TreeLevels
from headscape.tensor.attention_record import BoolArray

FloatArray64 = NDArray[np.float64]
Derivatives = Callable[[FloatArray64], tuple[FloatArray64, FloatArray64, FloatArray64]]

_SIZES = ("first_order", "second_order", "contributions", "local_residuals")
_PIECE = 1 << 16


@dataclass(frozen=True, eq=False)
class LevelPass:
    """What the pass gives: both parts of A~ as (query, key) arrays, and root mean squares per level."""

    mixed: FloatArray64
    one_axis: FloatArray64
    constant: float
    first_order: FloatArray64
    second_order: FloatArray64
    contributions: FloatArray64
    local_residuals: FloatArray64
    query_contributions: FloatArray64
    key_contributions: FloatArray64


@dataclass(frozen=True, eq=False)
class _Block:
    """The averages at one pair of levels, A, A' and A'' of them, and how many scored entries each stands for."""

    average: FloatArray64
    value: FloatArray64
    first: FloatArray64
    second: FloatArray64
    weight: FloatArray64


def level_pass(
    field: FloatArray64,
    query: TreeLevels,
    key: TreeLevels,
    derivatives: Derivatives,
    visible: BoolArray | None = None,
) -> LevelPass:
    """Sum the terms of the paraproduct over all pairs of levels, coarse to fine.

        S_{j+1, k+1} = S_{j, k+1} repeated for the folders of level j + 1, plus the term of (j, k)

    Sums along the query levels first, then along the key levels, stay at the size of the folders and are
    repeated only for the next level; a full matrix arises once, at the end.

    Parameters
    ----------
    field : (query, key) array
        Finite everywhere.
    query, key
        The levels of the two trees.
    derivatives
        Gives A, A' and A'' of an array.
    visible : (query, key) bool
        Which entries count for the sizes; all by default.

    Returns
    -------
    LevelPass

    Notes
    -----
    O(sum over j of folders at level j, times the same for the key levels).

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> two = TreeLevels.of(PartitionTree.trivial(2))
    >>> square = lambda x: (x**2, 2 * x, np.full_like(x, 2.0))
    >>> level_pass(np.array([[0.0, 1.0], [1.0, 2.0]]), two, two, square).mixed.tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    squares = {name: np.zeros((query.n_steps, key.n_steps)) for name in _SIZES}
    columns = _columns(field, query, key, derivatives, visible)
    left = root_column = next(columns)
    root_row = [left[0]]
    total: FloatArray64 = np.zeros_like(left[-1].value)
    for k, right in enumerate(columns):
        part: FloatArray64 = np.zeros_like(right[0].value)
        for j in range(query.n_steps):
            part, sums = _add_terms(part, left, right, query, key, j, k)
            for name, value in zip(_SIZES, sums, strict=True):
                squares[name][j, k] = value
        total = key.refine(total, k, 1)
        total += part
        root_row.append(right[0])
        left = right
    entries = float(left[0].weight.sum())
    one_axis = (
        query.to_points(root_column[-1].value, 0) + key.to_points(root_row[-1].value, 1) - root_row[0].value
    )
    return LevelPass(
        mixed=_unsorted(query.to_points(key.to_points(total, 1), 0), query, key),
        one_axis=_unsorted(one_axis, query, key),
        constant=float(root_row[0].value[0, 0]),
        **{name: np.sqrt(values / entries) for name, values in squares.items()},
        query_contributions=np.sqrt(_step_squares(root_column, query, 0) / entries),
        key_contributions=np.sqrt(_step_squares(root_row, key, 1) / entries),
    )


def pair_term(
    field: FloatArray64, query: TreeLevels, key: TreeLevels, j: int, k: int, derivatives: Derivatives
) -> FloatArray64:
    """Return the term of one pair of levels as a (query, key) array.

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> two = TreeLevels.of(PartitionTree.trivial(2))
    >>> linear = lambda x: (x, np.ones_like(x), np.zeros_like(x))
    >>> pair_term(np.eye(2), two, two, 0, 0, linear).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    left, right = islice(_columns(field, query, key, derivatives, None), k, k + 2)
    everything = slice(None)
    first, second, _ = _terms(left, right, query, key, j, k, everything, everything)
    points = query.to_points(key.to_points(first + second, 1, k + 1), 0, j + 1)
    return _unsorted(points, query, key)


def _columns(
    field: FloatArray64,
    query: TreeLevels,
    key: TreeLevels,
    derivatives: Derivatives,
    visible: BoolArray | None,
) -> Iterator[list[_Block]]:
    """Yield for every key level, coarse to fine, the blocks of all query levels."""
    sums = key.sums(_sorted(field, query, key), 1)
    scored = None if visible is None else key.sums(_sorted(visible, query, key).astype(np.float64), 1)
    heights = [rows.astype(np.float64) for rows in query.sizes]
    for k, size in enumerate(key.sizes):
        entries = [np.multiply.outer(rows, size.astype(np.float64)) for rows in heights]
        weights = entries if scored is None else query.sums(scored[k], 0)
        averages = [s / n for s, n in zip(query.sums(sums[k], 0), entries, strict=True)]
        yield [_Block(a, *derivatives(a), w) for a, w in zip(averages, weights, strict=True)]


def _add_terms(
    sums: FloatArray64,
    left: list[_Block],
    right: list[_Block],
    query: TreeLevels,
    key: TreeLevels,
    j: int,
    k: int,
) -> tuple[FloatArray64, FloatArray64]:
    """Return the sums so far plus the terms of one pair of levels, and the sums of squares of its parts."""
    across = right[j + 1]
    result, squares = np.empty_like(across.value), np.zeros(len(_SIZES))
    # Pieces that stay in the cache: temporary arrays of the full size would cost more than the arithmetic.
    for rows, fine_rows in query.parts(j, max(1, _PIECE // across.value.shape[1])):
        first, second, double = _terms(left, right, query, key, j, k, rows, fine_rows)
        both = first + second
        double -= both
        weight = across.weight[fine_rows]
        squares += [np.einsum("ij,ij,ij->", v, v, weight) for v in (first, second, both, double)]
        both += query.refine(sums[rows], j, 0, rows)
        result[fine_rows] = both
    return result, squares


def _terms(
    left: list[_Block],
    right: list[_Block],
    query: TreeLevels,
    key: TreeLevels,
    j: int,
    k: int,
    rows: slice,
    fine_rows: slice,
) -> tuple[FloatArray64, FloatArray64, FloatArray64]:
    """Return the terms with A' and A'' and the double difference of A at one pair of levels, in some rows."""
    here, beside, below, across = left[j], right[j], left[j + 1], right[j + 1]

    def down(x: FloatArray64) -> FloatArray64:
        return query.refine(x, j, 0, rows)

    u = below.average[fine_rows] - down(here.average[rows])
    v = beside.average[rows] - key.refine(here.average[rows], k, 1)
    fine_u = key.refine(u, k, 1)
    w = across.average[fine_rows] - down(beside.average[rows])
    w -= fine_u
    slope = key.refine(down(here.first[rows]), k, 1)
    curvature = slope if here.second is here.first else key.refine(down(here.second[rows]), k, 1)
    w *= slope
    fine_u *= down(v)
    fine_u *= curvature
    double = across.value[fine_rows] - down(beside.value[rows])
    double -= key.refine(below.value[fine_rows] - down(here.value[rows]), k, 1)
    return w, fine_u, double


def _step_squares(blocks: list[_Block], levels: TreeLevels, axis: int) -> FloatArray64:
    """Return the sum of squares of the steps of A from level to level along one axis."""
    return np.array(
        [
            _sum_of_squares(fine.value - levels.refine(coarse.value, level, axis), fine.weight)
            for level, (coarse, fine) in enumerate(pairwise(blocks))
        ]
    )


def _sum_of_squares(values: FloatArray64, weight: FloatArray64) -> float:
    return float(np.einsum("ij,ij,ij->", values, values, weight))


def _sorted(x: NDArray[Any], query: TreeLevels, key: TreeLevels) -> NDArray[Any]:
    """Bring a matrix into leaf order."""
    return x.take(query.order, 0).take(key.order, 1)


def _unsorted(x: FloatArray64, query: TreeLevels, key: TreeLevels) -> FloatArray64:
    """Bring a matrix in leaf order back into the order of the points."""
    return x.take(np.argsort(query.order), 0).take(np.argsort(key.order), 1)
