"""The dyadic grid as trees: index ranges halved again and again (OA definition 3, arXiv 2506.15541)."""

import operator
from collections.abc import Sequence

import numpy as np

from headscape.errors import InputError
from headscape.geometry.partition_tree import PartitionTree
from headscape.tensor.network_tensor import axis_names


def dyadic_trees(shape: Sequence[int]) -> dict[str, PartitionTree]:
    """Return for every axis the tree that halves the range of its indices down to single points.

        level j of n points:  point i lies in folder floor(i 2^j / n),   j = 0, ..., ceil(log2 n)

    Parameters
    ----------
    shape
        Lengths of the axes (query, key[, head]), such as ``f.shape``. A power of two gives the paper's grid;
        other lengths are halved as evenly as whole points allow.

    Returns
    -------
    dict of PartitionTree by axis name

    Notes
    -----
    The leaf order is the order of the indices: put the points into organized order first.

    References
    ----------
    OA (arXiv 2506.15541), definition 3 and (11).

    Examples
    --------
    >>> trees = dyadic_trees((4, 3))
    >>> trees["query"].levels()[1], trees["key"].levels()[1]
    ([[0, 1], [2, 3]], [[0, 1], [2]])
    """
    try:
        lengths = [operator.index(n) for n in shape]
    except TypeError:
        raise InputError(
            f"shape must be the lengths of the axes, such as (64, 48), but is {shape!r}."
        ) from None
    if len(lengths) < 2 or min(lengths) < 1:
        raise InputError(f"shape must have two or three axes of at least one point, but is {tuple(lengths)}.")
    return {axis: _halved(n) for axis, n in zip(axis_names(len(lengths)), lengths, strict=True)}


def _halved(n: int) -> PartitionTree:
    levels = (n - 1).bit_length() + 1
    points = np.arange(n, dtype=np.int64)
    return PartitionTree(np.stack([(points << level) // n for level in range(levels)]))
