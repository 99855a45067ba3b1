"""Haar transforms on trees, one axis at a time, as chains of plane reflections (OA 2.4, arXiv 2506.15541)."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.wavelets import Wavelets, wavelets
from headscape.errors import InputError
from headscape.geometry.folder_averages import require_fit
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import IntArray, PartitionTree, trees_of
from headscape.tensor.checks import FloatArray, as_float_array
from headscape.tensor.network_tensor import axis_names

Trees = Mapping[str, PartitionTree]


def haar(x: Any, tree: PartitionTree, axis: str | int = 0) -> FloatArray:
    """Expand x in the Haar basis of a tree along one axis.

        c_i = <x, psi_i>,   psi_i = +sqrt(b / (a (a + b))) on F_j,  -sqrt(a / (b (a + b))) on G_j

    where G_j = F_{j+1} u ... u F_m, a = |F_j| and b = |G_j|; psi_0 = 1 / sqrt(n).

    Parameters
    ----------
    x : (..., n, ...) array
        Any number of other axes.
    tree
        A tree on the n points of ``axis``.
    axis
        The axis, by name ("query", "key", "head") or number.

    Returns
    -------
    (..., n, ...) array
        One coefficient per entry of ``wavelets(tree)``; float64, or float32 for float32 and float16 input.

    Notes
    -----
    Scale the sum over a set by the root of its size, and joining two sides is one plane reflection whose
    second output is the coefficient. So the transform is n - 1 reflections in place, O(n) per vector for
    any tree, and as stable as an orthogonal matrix. Sums of absolute coefficients depend on the order of
    equal-size children (:func:`headscape.analysis.wavelets.wavelets`); sums of squares do not.

    References
    ----------
    OA (arXiv 2506.15541), 2.4; Gavish, Nadler, Coifman, "Multiscale wavelets on trees", ICML 2010.

    Examples
    --------
    >>> tree = PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]])
    >>> haar(np.array([1.0, 1.0, 4.0]), tree).round(3).tolist()
    [3.464, -2.449, 0.0]
    """
    array = as_float_array(x, "x")
    place = axis_number(array, axis)
    require_fit(array.shape[place], tree, f"the {axis} axis" if isinstance(axis, str) else f"axis {axis}")
    basis = wavelets(tree)
    rows = np.empty((len(basis), *np.delete(array.shape, place)), dtype=array.dtype)
    # The point that stands at a middle is the one whose row will hold that wavelet's coefficient.
    np.take(np.moveaxis(array, place, 0), basis.order[basis.middle], axis=0, out=rows)
    reflect(rows, basis, range(len(basis) - 1, 0, -1))
    return np.moveaxis(rows, 0, place)


def inverse_haar(coefficients: Any, tree: PartitionTree, axis: str | int = 0) -> FloatArray:
    """Rebuild x from its Haar coefficients along one axis: the inverse of :func:`haar`.

        x_p = sum over i of c_i psi_i(p)

    Parameters
    ----------
    coefficients : (..., n, ...) array
        One coefficient per entry of ``wavelets(tree)`` along ``axis``.
    tree, axis
        As in :func:`haar`.

    Returns
    -------
    (..., n, ...) array

    Notes
    -----
    The same n - 1 reflections, undone from the root down: O(n) per vector.

    References
    ----------
    OA (arXiv 2506.15541), 2.4.

    Examples
    --------
    >>> tree = PartitionTree.trivial(3)
    >>> inverse_haar(haar(np.array([1.0, 2.0, 5.0]), tree), tree).round(12).tolist()
    [1.0, 2.0, 5.0]
    """
    array = as_float_array(coefficients, "coefficients")
    place = axis_number(array, axis)
    require_fit(array.shape[place], tree, f"the {axis} axis" if isinstance(axis, str) else f"axis {axis}")
    basis = wavelets(tree)
    rows = np.array(np.moveaxis(array, place, 0), order="C")
    reflect(rows, basis, range(1, len(basis)))
    out = np.empty_like(rows)
    out[basis.order[basis.middle]] = rows
    return np.moveaxis(out, 0, place)


def tensor_haar(x: Any, trees: Trees | Organization) -> FloatArray:
    """Expand x in the tensor-product Haar basis: :func:`haar` along every axis that has a tree.

        c_{i, i', ...} = <x, psi_i (x) psi'_i' (x) ...>

    Parameters
    ----------
    x : (query, key[, head, ...]) array
    trees
        Trees by axis name, or an organization. Axes without a tree stay as they are: with trees for "query" and "key"
        this is the bi-Haar transform of every head, with all three the tri-Haar transform of the network.

    Returns
    -------
    array of the shape of x

    Notes
    -----
    O(size of x) per axis; two arrays of that size at most.

    References
    ----------
    OA (arXiv 2506.15541), 2.4.

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> tensor_haar(np.array([[1.0, 2.0], [3.0, 4.0]]), trees).round(12).tolist()
    [[5.0, -1.0], [-2.0, 0.0]]
    """
    array = as_float_array(x, "x")
    trees = require_trees(array, trees)
    for axis, tree in trees.items():
        array = haar(array, tree, axis)
    return array


def inverse_tensor_haar(coefficients: Any, trees: Trees | Organization) -> FloatArray:
    """Rebuild x from its tensor-product Haar coefficients: the inverse of :func:`tensor_haar`.

    Parameters
    ----------
    coefficients : (query, key[, head, ...]) array
    trees
        The trees that :func:`tensor_haar` was given.

    Returns
    -------
    array of the shape of coefficients

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> inverse_tensor_haar(tensor_haar(np.eye(2), trees), trees).round(12).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    array = as_float_array(coefficients, "coefficients")
    trees = require_trees(array, trees)
    for axis, tree in trees.items():
        array = inverse_haar(array, tree, axis)
    return array


def haar_basis(tree: PartitionTree) -> NDArray[np.float64]:
    """Return the dense Haar basis of a tree, one column per wavelet.

    Parameters
    ----------
    tree
        A tree on n points.

    Returns
    -------
    (n, n) array
        Orthonormal columns in the order of ``wavelets(tree)``.

    Notes
    -----
    O(n^2) memory: for pictures and tests. Transforms go through the tree instead.

    Examples
    --------
    >>> haar_basis(PartitionTree.trivial(2)).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    """
    return np.asarray(inverse_haar(np.eye(tree.n_points), tree))


def reflect(rows: FloatArray, basis: Wavelets, sequence: Iterable[int]) -> None:
    """Apply the reflections of wavelets to pairs of rows in place, in the given sequence.

    The two sides of a wavelet, each a sum scaled by the root of its size, become the same for their union
    (in the row of the first side) and the coefficient (in the wavelet's own row). A reflection is its own
    inverse: fine to coarse is the transform, coarse to fine the way back.
    """
    owner = row_owners(basis)
    a, b = basis.sides
    cosine = np.sqrt(a / basis.support).astype(rows.dtype)
    sine = np.sqrt(b / basis.support).astype(rows.dtype)
    spare = np.empty(rows.shape[1:], dtype=rows.dtype)
    for index in sequence:
        first, rest = rows[owner[index], ...], rows[index, ...]
        np.multiply(rest, sine[index], out=spare)
        rest *= -cosine[index]
        rest += sine[index] * first
        first *= cosine[index]
        first += spare


def row_owners(basis: Wavelets) -> IntArray:
    """Return for every wavelet the row that stands for its first side: the one whose middle is its start."""
    at_middle = np.zeros(len(basis.order), dtype=np.int64)
    at_middle[basis.middle] = np.arange(len(basis))
    return at_middle[basis.start]


def axis_number(x: NDArray[Any], axis: str | int) -> int:
    """Return the number of an axis that is given by name or by number."""
    names = axis_names(x.ndim)
    if isinstance(axis, str):
        if axis not in names:
            raise InputError(f"axis must be one of {', '.join(names)} for shape {x.shape}, but is {axis!r}.")
        return names.index(axis)
    number = operator.index(axis)
    if not -x.ndim <= number < x.ndim:
        raise InputError(f"axis must be from {-x.ndim} to {x.ndim - 1} for shape {x.shape}, but is {axis}.")
    return number % x.ndim


def require_trees(x: NDArray[Any], trees: Trees | Organization, axes: tuple[str, ...] = ()) -> Trees:
    """Return trees by axis, or raise unless they fit the axes of x, and those in ``axes`` are all there."""
    trees = trees_of(trees)
    for axis in axes:
        if axis not in trees:
            have = ", ".join(trees) or "none"
            raise InputError(
                f"trees must have a tree for the {axis} axis, but has only: {have}. "
                "Take them from organize(x).trees."
            )
    for axis, tree in trees.items():
        require_fit(x.shape[axis_number(x, axis)], tree, f"the {axis} axis")
    return trees
