"""The tensor wavelets of largest support, found without forming the products (OA 3.2, arXiv 2506.15541)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscape.analysis.haar import Trees
from headscape.analysis.wavelets import wavelets
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import IntArray, trees_of


@dataclass(frozen=True)
class TopSupports:
    """Which tensor wavelets are among the k of largest support: all those of support >= ``cut``.

    Attributes
    ----------
    k
        How many were asked for, or all if there are fewer.
    cut
        The k-th largest support. Every tensor wavelet of at least this support is in, ties included.
    used, total
        How many that are, and how many there are at all.
    """

    k: int
    cut: int
    used: int
    total: int

    @property
    def share(self) -> float:
        """The share of all tensor wavelets that is used."""
        return self.used / self.total


def top_supports(trees: Trees | Organization, k: float = 400) -> TopSupports:
    """Find the k tensor wavelets of largest support on a product of trees.

        cut = max { c : #{(i, i', ...) : |supp psi_i| |supp psi'_i'| ... >= c} >= k }

    Parameters
    ----------
    trees
        Trees by axis name, any number.
    k
        A whole number from 1 up, or a share of all tensor wavelets between 0 and 1 (a float), which makes axes of
        different length comparable. If there are fewer than k, all are taken.

    Returns
    -------
    TopSupports

    Notes
    -----
    All ties at the cut are in, so the choice is unique. Supports are whole numbers, so the cut is found by
    halving; each step counts over the distinct supports of each axis only.

    References
    ----------
    OA (arXiv 2506.15541), 3.2, text around (21).

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> top_supports({"query": PartitionTree.trivial(4), "key": PartitionTree.trivial(4)}, k=5)
    TopSupports(k=5, cut=12, used=8, total=16)
    """
    trees = trees_of(trees)
    if not trees:
        raise InputError("trees must have at least one tree, but is empty. Take them from organize(x).trees.")
    supports = [wavelets(tree).support for tree in trees.values()]
    total = int(np.prod([len(s) for s in supports], dtype=object))
    wanted = number_of_wavelets(k, total)
    low, high = 1, int(np.prod([s.max() for s in supports], dtype=object))
    while low < high:
        middle = (low + high + 1) // 2
        if _count_at_least(supports, middle) >= wanted:
            low = middle
        else:
            high = middle - 1
    return TopSupports(k=wanted, cut=low, used=_count_at_least(supports, low), total=total)


def neighboring_k(k: float) -> list[float]:
    """Return half and twice k, without what is not a valid k."""
    whole = isinstance(k, int | np.integer)
    return [value for value in (k // 2 if whole else k / 2, k * 2) if (value >= 1 if whole else value <= 1)]


def number_of_wavelets(k: float, total: int) -> int:
    """Return how many wavelets k asks for, out of so many, or raise unless it is a count or a share."""
    if isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1:
        return min(int(k), total)
    if isinstance(k, float | np.floating) and 0 < k <= 1:
        return math.ceil(k * total)
    raise InputError(f"k must be a whole number from 1 up, or a share in (0, 1], but is {k!r}.")


def _count_at_least(supports: Sequence[IntArray], cut: int) -> int:
    """Count the products of one entry from each list that are at least ``cut``."""
    *others, last = supports
    last = np.sort(last)
    product, times = np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for entries in others:
        values, counts = np.unique(entries, return_counts=True)
        product, inverse = np.unique(np.multiply.outer(product, values), return_inverse=True)
        weights = np.multiply.outer(times, counts).ravel()
        times = np.bincount(inverse.ravel(), weights=weights).astype(np.int64)
    at_least = len(last) - np.searchsorted(last, -(-cut // product))
    return int(times @ at_least)
