"""The l1 entropy of heads and of the network: sums over the coarse Haar coefficients (OA 21, B.2, arXiv 2506.15541)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.haar import Trees, axis_number, reflect, require_trees
from headscape.analysis.supports import top_supports
from headscape.analysis.wavelets import Wavelets, wavelets
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import IntArray
from headscape.tensor.checks import FloatArray, as_float_array, require_axes, require_finite
from headscape.tensor.network_tensor import axis_names


def head_entropy(x: Any, trees: Trees | Organization, k: float = 400, p: float = 1.0) -> NDArray[np.float64]:
    """Return the l_p entropy of every head over its bi-Haar coefficients of largest support.

        e_h = (sum over |supp psi_i (x) psi'_i'| >= cut of |<x_h, psi_i (x) psi'_i'>|^p)^(1/p)         (OA 21)

    where cut is the k-th largest support of a query-key tensor wavelet.

    Parameters
    ----------
    x : (query, key[, head]) array
    trees
        Trees by axis name, or an organization; "query" and "key" are used.
    k
        How many of the largest supports (all if there are fewer), or a share of all (a float in (0, 1]). Ties at
        the cut are all in; ``top_supports({"query": ..., "key": ...}, k)`` tells how many that makes.
    p
        The exponent, larger than 0.

    Returns
    -------
    (head,) float64 array
        One entry for a single head.

    Notes
    -----
    One pass over x: only sums over the cells that the used wavelets tell apart are formed, first over
    queries, then over keys, and only these few rows are transformed. Beyond x this needs the rows of the
    query cells. Not invariant to the order of equal-size children of a folder (a few percent).

    References
    ----------
    OA (arXiv 2506.15541), (21). What a low entropy means for a head is a hypothesis there; see the docs on rankings.

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> head_entropy(np.array([[1.0, 2.0], [3.0, 4.0]]), trees, k=4).round(12).tolist()
    [8.0]
    """
    array = as_float_array(x, "x")
    require_axes(array, (2, 3), "x")
    trees = require_trees(array, trees, ("query", "key"))
    coefficients, used = coarse_coefficients(array, {axis: trees[axis] for axis in ("query", "key")}, k)
    block = coefficients.reshape(*used.shape, -1)
    return _norm(block[used], p)


def network_entropy(x: Any, trees: Trees | Organization, k: float = 100, p: float = 1.0) -> float:
    """Return the l_p entropy of a whole tensor over its Haar coefficients of largest support.

    The same sum as in :func:`head_entropy`, over tensor wavelets on all axes (tri-Haar for three).

    Parameters
    ----------
    x : (query, key[, head, ...]) array
    trees
        A tree for every axis of x, or an organization.
    k, p
        As in :func:`head_entropy`.

    Returns
    -------
    float

    Notes
    -----
    One pass over x, as in :func:`head_entropy`.

    References
    ----------
    OA (arXiv 2506.15541), B.2 and table 2.

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> trees = {axis: PartitionTree.trivial(2) for axis in ("query", "key", "head")}
    >>> round(network_entropy(np.ones((2, 2, 2)), trees, k=8), 12)
    2.828427124746
    """
    array = as_float_array(x, "x")
    axes = axis_names(array.ndim)
    trees = require_trees(array, trees, axes)
    coefficients, used = coarse_coefficients(array, {axis: trees[axis] for axis in axes}, k)
    return float(_norm(coefficients[used][:, None], p)[0])


@dataclass(frozen=True, eq=False)
class CoarseCoefficients:
    """Haar coefficients of largest support, the largest first (OA figure 4).

    ``values`` is (coefficient, head) for heads and (coefficient, 1) for a whole network, ``supports`` has one
    entry per coefficient.
    """

    values: NDArray[np.float64]
    supports: IntArray


def coefficients_by_support(x: Any, trees: Trees | Organization, k: float = 400) -> CoarseCoefficients:
    """Return the coefficients that the entropies are sums over, in the order of decreasing support.

    Parameters
    ----------
    x : (query, key[, head]) array
    trees
        Trees for "query" and "key" give the bi-Haar coefficients of every head, one for "head" as well the
        tri-Haar coefficients of the network.
    k
        As in :func:`head_entropy`.

    Returns
    -------
    CoarseCoefficients

    Examples
    --------
    >>> from headscape.geometry.partition_tree import PartitionTree
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(3)}
    >>> coefficients_by_support(np.ones((2, 3)), trees, k=6).supports.tolist()
    [6, 6, 6, 6, 4, 4]
    """
    array = as_float_array(x, "x")
    axes = axis_names(array.ndim)
    trees = require_trees(array, trees, axes[:2])
    chosen = {axis: trees[axis] for axis in axes if axis in trees}
    coefficients, used = coarse_coefficients(array, chosen, k)
    supports = np.ones((), dtype=np.int64)
    for basis in coarse_wavelets(chosen, k).values():
        supports = np.multiply.outer(supports, basis.support)
    order = np.argsort(-supports[used], kind="stable")
    values = coefficients.reshape(*used.shape, -1)[used]
    return CoarseCoefficients(values[order], supports[used][order])


def coarse_coefficients(
    x: FloatArray, trees: Trees, k: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the tensor-Haar coefficients that can be among the k of largest support, and which of them are.

    Parameters
    ----------
    x : (query, key[, head, ...]) array
    trees
        Trees for the first axes of x, in the order of the axes.
    k
        As in :func:`head_entropy`.

    Returns
    -------
    coefficients : float64 array
        Along each axis with a tree the entries of ``coarse_wavelets``; other axes whole.
    used : boolean array over the axes with trees
        True where the support is at least the cut.
    """
    bases = coarse_wavelets(trees, k)
    supports = np.ones((), dtype=np.int64)
    sums: FloatArray = x
    for axis, basis in bases.items():
        sums = _cell_sums(sums, basis, axis_number(x, axis))
        supports = np.multiply.outer(supports, basis.support)
    if not np.isfinite(sums.sum()):
        require_finite(x, "x")
    # The first pass stays in the dtype of x for speed; what is left is small.
    coefficients: NDArray[np.float64] = sums.astype(np.float64, copy=False)
    for axis, basis in bases.items():
        rows = np.moveaxis(coefficients, axis_number(x, axis), 0)
        rows /= np.sqrt(_cell_bounds(basis)[1]).reshape(-1, *[1] * (x.ndim - 1))
        reflect(rows, basis, range(len(basis) - 1, 0, -1))
    return coefficients, supports >= top_supports(trees, k).cut


def coarse_wavelets(trees: Trees, k: float) -> dict[str, Wavelets]:
    """Return per axis the wavelets that occur in a tensor wavelet among the k of largest support."""
    cut = top_supports(trees, k).cut
    whole = math.prod(tree.n_points for tree in trees.values())
    return {axis: wavelets(tree).at_least(-(-cut * tree.n_points // whole)) for axis, tree in trees.items()}


def _cell_sums(x: FloatArray, basis: Wavelets, place: int) -> FloatArray:
    """Sum x over the ranges between the middles of wavelets: row i begins at the middle of wavelet i."""
    shape = list(x.shape)
    shape[place] = len(basis)
    # The same order of axes in memory as x, or else every addition would stride through one of the two.
    slow_to_fast = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    stored = np.empty([shape[axis] for axis in slow_to_fast], dtype=x.dtype)
    out = stored.transpose(np.argsort(slow_to_fast))
    rows, points = np.moveaxis(out, place, 0), np.moveaxis(x, place, 0)
    for row, start, size in zip(rows, *_cell_bounds(basis), strict=True):
        first, *others = basis.order[start : start + size]
        row[...] = points[first]
        for point in others:
            row += points[point]
    return out


def _cell_bounds(basis: Wavelets) -> tuple[IntArray, IntArray]:
    """Return where each wavelet's cell begins in ``basis.order``, and its size."""
    begins = np.sort(basis.middle)
    ends = np.append(begins[1:], len(basis.order))
    return basis.middle, ends[np.searchsorted(begins, basis.middle)] - basis.middle


def _norm(values: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    """Return the l_p norm of every column."""
    if not p > 0:
        raise InputError(f"p must be larger than 0, but is {p}.")
    size = np.abs(values)
    return np.asarray(size.sum(axis=0) if p == 1 else (size**p).sum(axis=0) ** (1 / p))
