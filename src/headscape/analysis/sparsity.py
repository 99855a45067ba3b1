"""How few Haar coefficients hold a head: curves, best approximation, denoising (OA 2.4, arXiv 2506.15541)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.haar import Trees, axis_number, inverse_tensor_haar, require_trees, tensor_haar
from headscape.analysis.wavelets import wavelets
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import PartitionTree, trees_of
from headscape.tensor.checks import MAX_DRAWS, FloatArray, as_float_array, require_finite, require_integer
from headscape.tensor.network_tensor import axis_names

ORDERS = ("organized", "original", "shuffled")

# The median of |N(0, 1)|: turns a median of absolute coefficients into a standard deviation.
_NORMAL_MEDIAN = 0.6744897501960817


@dataclass(frozen=True, eq=False)
class SparsityCurves:
    """The share of energy in the largest m coefficients, m = 0, 1, ..., for the three orders of the points.

    ``shuffled`` is the mean over draws. All arrays have one more entry than there are coefficients.
    """

    organized: NDArray[np.float64]
    original: NDArray[np.float64]
    shuffled: NDArray[np.float64]

    def needed(self, shares: Sequence[float] = (0.9, 0.95, 0.99)) -> dict[str, tuple[int, ...]]:
        """Return for each order how many coefficients hold these shares of the energy."""
        return {order: _needed(getattr(self, order), shares) for order in ORDERS}


def sparsity_curve(x: Any, trees: Trees | Organization) -> NDArray[np.float64]:
    """Return the share of the energy of x that its largest m tensor-Haar coefficients hold, m = 0, 1, ....

        s_m = sum of the m largest |c|^2 / sum of all |c|^2

    Parameters
    ----------
    x : (query, key[, head]) array
        A head, or a whole tensor.
    trees
        Trees by axis name; axes without one stay as they are.

    Returns
    -------
    (size of x + 1,) array
        From 0 to 1; all ones but the first for a zero array, which needs no coefficient.

    Notes
    -----
    By Parseval the energy is that of x. O(N log N) for N entries.

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> sparsity_curve(np.array([[2.0, 0.0], [2.0, 0.0]]), trees).round(12).tolist()
    [0.0, 0.5, 1.0, 1.0, 1.0]
    """
    array = as_float_array(x, "x")
    require_finite(array, "x")
    squares = np.sort(tensor_haar(array.astype(np.float64), trees).ravel() ** 2)[::-1]
    held = np.concatenate([[0.0], np.cumsum(squares)])
    if held[-1] == 0:
        return np.concatenate([[0.0], np.ones(squares.size)])
    return np.asarray(np.minimum(held / held[-1], 1.0))


def coefficients_needed(
    x: Any, trees: Trees | Organization, shares: Sequence[float] = (0.9, 0.95, 0.99)
) -> tuple[int, ...]:
    """Return how many tensor-Haar coefficients hold the given shares of the energy of x.

    Parameters
    ----------
    x, trees
        As in :func:`sparsity_curve`.
    shares
        Each between 0 and 1.

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> coefficients_needed(np.array([[2.0, 0.0], [2.0, 0.0]]), trees)
    (2, 2, 2)
    """
    return _needed(sparsity_curve(x, trees), shares)


def sparsity_curves(x: Any, trees: Trees | Organization, *, draws: int = 5, seed: int = 0) -> SparsityCurves:
    """Compare how sparse x is in organized, original and shuffled order of its points.

    The same tree shapes are used three times: with the points where the trees put them, with the points
    along the leaves as they came, and with points at random. So only the order differs.

    Parameters
    ----------
    x : (query, key[, head]) array
    trees
        Trees by axis name; axes without one stay as they are.
    draws, seed
        How many shuffles are averaged, and their seed.

    Returns
    -------
    SparsityCurves

    Notes
    -----
    O(draws N log N) for N entries.

    Examples
    --------
    >>> x = np.add.outer([0.0, 9.0, 0.1, 9.1], np.zeros(2))
    >>> query = PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 2], [1, 3]], [[0], [2], [1], [3]]])
    >>> sparsity_curves(x, {"query": query, "key": PartitionTree.trivial(2)}).needed((0.99,))["organized"]
    (2,)
    """
    require_integer(draws, "draws", 1, MAX_DRAWS)
    array = as_float_array(x, "x")
    trees = require_trees(array, trees)
    rng = np.random.default_rng(seed)
    along = {axis: _with_leaves(tree, np.arange(tree.n_points)) for axis, tree in trees.items()}
    shuffled = np.mean(
        [
            sparsity_curve(array, {a: _with_leaves(t, rng.permutation(t.n_points)) for a, t in trees.items()})
            for _ in range(draws)
        ],
        axis=0,
    )
    return SparsityCurves(sparsity_curve(array, trees), sparsity_curve(array, along), shuffled)


def best_approximation(x: Any, trees: Trees | Organization, m: int) -> FloatArray:
    """Return the best approximation of x by m tensor-Haar functions: those with the largest coefficients.

    Parameters
    ----------
    x : (query, key[, head]) array
    trees
        Trees by axis name; axes without one stay as they are.
    m
        How many terms, from 0 to the size of x.

    Returns
    -------
    array of the shape of x

    Notes
    -----
    Best in L2 among all m-term sums of this basis. Among equal coefficients the earlier ones are kept.

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> best_approximation(np.array([[4.0, 0.0], [4.0, 1.0]]), trees, 2).round(12).tolist()
    [[4.0, 0.5], [4.0, 0.5]]
    """
    coefficients = tensor_haar(x, trees)
    if not 0 <= m <= coefficients.size:
        raise InputError(f"m must be from 0 to the number of coefficients, {coefficients.size}, but is {m}.")
    flat = coefficients.ravel()
    kept = np.argsort(-np.abs(flat), kind="stable")[:m]
    sparse = np.zeros_like(flat)
    sparse[kept] = flat[kept]
    return inverse_tensor_haar(sparse.reshape(coefficients.shape), trees)


def denoise(
    x: Any,
    trees: Trees | Organization,
    threshold: float | None = None,
    mode: Literal["hard", "soft"] = "hard",
) -> FloatArray:
    """Remove small tensor-Haar coefficients of x.

        hard: c if |c| > t else 0;    soft: sign(c) max(|c| - t, 0)

    Parameters
    ----------
    x : (query, key[, head]) array
    trees
        Trees by axis name; axes without one stay as they are.
    threshold
        t; by default sigma sqrt(2 log N) for N entries, with the noise sigma from the median absolute
        coefficient of the wavelets whose support is, on every axis, at most the median support.
    mode
        "hard" keeps what is large as it is, "soft" shrinks it.

    Returns
    -------
    array of the shape of x

    Notes
    -----
    The overall mean is never touched. The default threshold assumes independent normal noise; attention
    probabilities have none, so choose a threshold for them.

    References
    ----------
    Donoho, Johnstone, "Ideal spatial adaptation by wavelet shrinkage", 1994.

    Examples
    --------
    >>> trees = {"query": PartitionTree.trivial(2), "key": PartitionTree.trivial(2)}
    >>> denoise(np.array([[4.0, 0.0], [4.0, 1.0]]), trees, threshold=1.0).round(12).tolist()
    [[4.0, 0.5], [4.0, 0.5]]
    """
    if mode not in ("hard", "soft"):
        raise InputError(f"mode must be 'hard' or 'soft', but is {mode!r}.")
    trees = trees_of(trees)
    coefficients = tensor_haar(x, trees)
    t = _universal_threshold(coefficients, trees) if threshold is None else float(threshold)
    if not t >= 0:
        raise InputError(f"threshold must be 0 or larger, but is {threshold}.")
    size = np.abs(coefficients)
    shrunk = (
        np.where(size > t, coefficients, 0)
        if mode == "hard"
        else (np.sign(coefficients) * np.maximum(size - t, 0))
    )
    mean = tuple(0 if axis in trees else slice(None) for axis in axis_names(coefficients.ndim))
    shrunk[mean] = coefficients[mean]
    return inverse_tensor_haar(shrunk, trees)


def _universal_threshold(coefficients: FloatArray, trees: Trees) -> float:
    fine = coefficients
    for axis, tree in trees.items():
        support = wavelets(tree).support
        finest = np.flatnonzero(support <= np.median(support))
        fine = np.take(fine, finest, axis=axis_number(coefficients, axis))
    sigma = float(np.median(np.abs(fine))) / _NORMAL_MEDIAN
    return sigma * float(np.sqrt(2 * np.log(max(2, coefficients.size))))


def _needed(curve: NDArray[np.float64], shares: Sequence[float]) -> tuple[int, ...]:
    for share in shares:
        if not 0 < share < 1:
            raise InputError(f"shares of energy must be between 0 and 1, but one is {share}.")
    return tuple(int(np.searchsorted(curve, share)) for share in shares)


def _with_leaves(tree: PartitionTree, points: NDArray[np.int64]) -> PartitionTree:
    """Return a tree of the same shape whose leaves are the given points from left to right."""
    labels = np.empty_like(tree.labels)
    labels[:, points] = tree.labels[:, tree.order]
    return PartitionTree(labels)
