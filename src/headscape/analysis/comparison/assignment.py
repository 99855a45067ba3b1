"""Which head of one network is which head of another, from the distances between them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from headscape.engine import Engine
from headscape.errors import InputError
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.tree_emd import tree_emd

FloatArray64 = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Assignment:
    """Pairs of heads, one to one.

    Attributes
    ----------
    rows, columns : (pairs,) arrays
        The heads of the first and of the second network, by the first.
    cost : (pairs,) array
        The distance of every pair.
    margin : (pairs,) array
        How much farther the next best head of the second network is; negative where another head would be nearer but is
        taken.
    """

    rows: IntArray
    columns: IntArray
    cost: FloatArray64
    margin: FloatArray64


def assigned_heads(distances: Any) -> Assignment:
    """Pair the points of two sets so that the sum of distances is the smallest possible.

    Parameters
    ----------
    distances : (n, m) array
        Between every point of the first and every point of the second set.

    Returns
    -------
    Assignment
        min(n, m) pairs.

    Notes
    -----
    The Hungarian method (scipy's ``linear_sum_assignment``), O(n^3). Of several assignments with the same sum, one.

    Examples
    --------
    >>> found = assigned_heads([[5.0, 0.0, 9.0], [0.5, 4.0, 9.0]])
    >>> found.rows.tolist(), found.columns.tolist(), found.margin.tolist()
    ([0, 1], [1, 0], [5.0, 3.5])
    """
    array = np.asarray(distances, dtype=np.float64)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(f"distances must be a (head, head) array of numbers, but has shape {array.shape}.")
    rows, columns = linear_sum_assignment(array)
    cost = array[rows, columns]
    others = array[rows].copy()
    others[np.arange(len(rows)), columns] = np.inf
    nearest = others.min(axis=1)
    return Assignment(rows.astype(np.int64), columns.astype(np.int64), cost, np.asarray(nearest - cost))


def cross_emd(
    a: Any,
    b: Any,
    trees: dict[str, PartitionTree],
    *,
    alpha: float = 0.0,
    beta: float = 1.0,
    engine: Engine | None = None,
) -> FloatArray64:
    """Return the tree EMD between every head of one network and every head of another, on the same window.

    Parameters
    ----------
    a : (query, key, n) array
    b : (query, key, m) array
        The same field of both networks on the same tokens.
    trees
        Trees on "query" and "key", which both share.
    alpha, beta, engine
        As for :func:`headscape.tree_emd`.

    Returns
    -------
    (n, m) array

    Notes
    -----
    Both networks are put into one tensor with n + m heads, so the cost is that of its tree EMD.

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> x = np.arange(8.0).reshape(2, 2, 2)
    >>> cross_emd(x, x[:, :, ::-1], trees).round(3).tolist()
    [[4.0, 0.0], [0.0, 4.0]]
    """
    first, second = (np.asarray(x) for x in (a, b))
    if first.ndim != 3 or first.shape[:2] != second.shape[:2]:
        raise InputError(
            "both networks must have the same queries and keys, (query, key, head), but their shapes are "
            f"{first.shape} and {second.shape}."
        )
    # The head axis is the slowest in memory, as in captured tensors.
    joint = np.concatenate([np.moveaxis(x, 2, 0) for x in (first, second)]).transpose(1, 2, 0)
    emd = tree_emd(joint, trees, "head", alpha, beta, engine=engine)
    return np.asarray(emd[: first.shape[2], first.shape[2] :])
