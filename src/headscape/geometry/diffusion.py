"""The random walk on an affinity: its eigenpairs for the trees, and the diffusion map for pictures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from headscape.engine.blas import one_blas_thread
from headscape.errors import InputError
from headscape.geometry.affinity import AFFINITY_FLOOR

# Two BLAS threads gain nothing on matrices up to this size, and on a busy machine they wait for each other.
ONE_THREAD_LIMIT = 512
# Full decompositions find multiple eigenvalues surely; from about this size on they would take most of the time.
_DENSE_LIMIT = 1024

FLAT_EIGENVALUE = 1e-10
"""A random walk whose nontrivial eigenvalues are all below this has no geometry, only rounding."""


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues (magnitudes, the trivial 1 first) and right eigenvectors of the random walk (n, pairs)."""

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]


def fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose the sign of every column by its data, so that it does not depend on the solver.

    The sum of cubes is made positive (the longer tail points up). It does not depend on the order of the
    points, so signs travel with permutations. If it vanishes, the first entry of largest magnitude is made
    positive.

    Examples
    --------
    >>> fix_signs(np.array([[-2.0], [1.0], [1.0]])).ravel().tolist()
    [2.0, -1.0, -1.0]
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    scale = np.abs(vectors).max(axis=0, initial=0.0)
    unit = vectors / np.where(scale > 0, scale, 1.0)
    sign = np.sum(unit**3, axis=0)
    even = np.abs(sign) < 1e-9 * len(vectors)
    largest = np.take_along_axis(vectors, np.abs(unit).round(9).argmax(axis=0)[None, :], axis=0)[0]
    sign = np.where(even, largest, sign)
    return vectors * np.where(sign < 0, -1.0, 1.0)


def markov_eigenpairs(affinity: NDArray[np.float64], n_eigs: int = 12) -> Eigenpairs:
    """Return the leading eigenpairs of the density-normalized random walk (OA Algorithm 1, arXiv 2506.15541).

        r = G 1;  P = G / (r r^T);  d = sqrt(P 1);  M = P / (d d^T)

    M is symmetric with the known top eigenvector d^ = d / |d| and eigenvalue 1. The pairs of M - d^ d^^T that
    are largest in magnitude follow; each vector is divided by d^. Where the affinity falls into pieces, the
    further eigenvectors of eigenvalue 1 are known as well: they are constant on the pieces.

    Parameters
    ----------
    affinity : (n, n) array
        Symmetric, nonnegative, positive on the diagonal. Entries below 1e-8 count as zero.
    n_eigs
        How many pairs, the trivial one included; all of them if n is smaller, and never fewer than pieces.

    Notes
    -----
    The known pairs are taken off before the decomposition. A *computed* first eigenvector may vanish on some
    points where the affinity falls apart, and computed ones of eigenvalue 1 carry rounding noise that swamps
    the other coordinates at long diffusion times.
    """
    n = len(affinity)
    if n_eigs < 2:
        raise InputError(f"n_eigs must be at least 2 (the trivial pair and one more), but is {n_eigs}.")
    kept = np.where(affinity < AFFINITY_FLOOR, 0.0, affinity)
    kept = 0.5 * (kept + kept.T)
    r = kept.sum(axis=1)
    p = kept / np.multiply.outer(r, r)
    d = np.sqrt(p.sum(axis=1))
    top = d / np.linalg.norm(d)
    known = _constant_on_pieces(connected_pieces(kept), top**2)
    flat = known * top[:, None]
    deflated = p / np.multiply.outer(d, d) - flat @ flat.T
    pieces = known.shape[1]
    values, vectors = _largest_magnitude(deflated, max(min(n_eigs, n) - pieces, 0))
    return Eigenpairs(
        values=np.concatenate([np.ones(pieces), np.abs(values)]),
        vectors=np.column_stack(
            [known[:, :1], fix_signs(np.column_stack([known[:, 1:], vectors / top[:, None]]))]
        ),
    )


def diffusion_map(affinity: Any, n_components: int = 3, t: float = 1) -> NDArray[np.float64]:
    """Embed the points of an affinity by the diffusion map.

        x -> (lambda_i^t phi_i(x)), i = 2, ..., n_components + 1

    where phi_i = D^-1/2 v_i, with v_i the eigenvectors of D^-1/2 G D^-1/2 by decreasing eigenvalue lambda_i.

    Parameters
    ----------
    affinity : (n, n) array
        Symmetric and nonnegative.
    n_components
        How many coordinates; those beyond n - 1 are 0.
    t
        Diffusion time.

    Returns
    -------
    (n, n_components) array
        Signs are fixed by the data.

    References
    ----------
    Coifman and Lafon, Diffusion maps, Appl. Comput. Harmon. Anal. 21 (2006); OA (arXiv 2506.15541),
    figure 3.

    Examples
    --------
    >>> near = np.exp(-np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))))
    >>> diffusion_map(near, n_components=2).shape
    (4, 2)
    """
    g = np.asarray(affinity, dtype=np.float64)
    if g.ndim != 2 or g.shape[0] != g.shape[1] or not np.isfinite(g).all() or (g < 0).any():
        raise InputError(f"affinity must be a square array of nonnegative numbers, but has shape {g.shape}.")
    degree = g.sum(axis=1)
    if (degree <= 0).any():
        raise InputError("every point must have some affinity, but a row of the affinity is zero.")
    if n_components < 1 or t < 0:
        raise InputError(
            f"n_components must be positive and t not negative, but they are {n_components}, {t}."
        )
    root = np.sqrt(degree)
    values, vectors = _eigh(0.5 * (g + g.T) / np.multiply.outer(root, root))
    kept = np.argsort(-values, kind="stable")[1 : n_components + 1]
    coordinates = np.zeros((len(g), n_components))
    powers = np.sign(values[kept]) * np.abs(values[kept]) ** t
    coordinates[:, : len(kept)] = fix_signs(vectors[:, kept] / root[:, None]) * powers
    return coordinates


def connected_pieces(affinity: NDArray[np.float64]) -> NDArray[Any]:
    """Return the connected piece of every point; affinities below 1e-8 are no connection."""
    connected = affinity >= AFFINITY_FLOOR
    # One look suffices where all points are connected, as they usually are.
    if connected.all():
        return np.zeros(len(connected), dtype=np.int32)
    return np.asarray(connected_components(connected, directed=False)[1])


def _constant_on_pieces(piece: NDArray[Any], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the right eigenvectors of eigenvalue 1: the constant 1, then one per further piece.

    Each separates a piece from all lighter ones; orthonormal with respect to the mass, and set by the masses
    of the pieces alone, so they travel with permutations.
    """
    weight = np.bincount(piece, weights=mass)
    vectors = np.ones((len(piece), len(weight)))
    heavy_first = np.argsort(-weight, kind="stable")
    for column, current in enumerate(heavy_first[:-1]):
        lighter = heavy_first[column + 1 :]
        a, b = weight[current], weight[lighter].sum()
        level = np.zeros(len(weight))
        level[current] = np.sqrt(b / (a * (a + b)))
        level[lighter] = -np.sqrt(a / (b * (a + b)))
        vectors[:, column + 1] = level[piece]
    return vectors


def _largest_magnitude(
    matrix: NDArray[np.float64], k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the k eigenpairs of a symmetric matrix with the largest magnitudes, in decreasing order."""
    n = len(matrix)
    if k == 0:
        return np.empty(0), np.empty((n, 0))
    if n > _DENSE_LIMIT and k < n // 10:
        # A fixed start keeps the result the same from run to run.
        values, vectors = eigsh(matrix, k=k, which="LM", v0=np.linspace(1.0, 2.0, n))
    else:
        found = _largest(matrix, k)
        values, vectors = found if _all_above(matrix, -found[0][0]) else _eigh(matrix)
    kept = np.argsort(-np.abs(values), kind="stable")[:k]
    return values[kept], vectors[:, kept]


def _largest(matrix: NDArray[np.float64], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the k largest eigenvalues of a symmetric matrix, the smallest of them first, and their vectors."""
    n = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(n - k, n - 1), check_finite=False)
    return values, vectors


def _all_above(matrix: NDArray[np.float64], bound: float) -> bool:
    """Tell whether all eigenvalues of a symmetric matrix are above a negative bound."""
    # A Cholesky decomposition takes a tenth of the time of the eigenvalues.
    return bound < 0.0 and lapack.dpotrf(matrix - bound * np.eye(len(matrix)), overwrite_a=True)[1] == 0


def _eigh(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return all eigenpairs of a symmetric matrix, of a small one with a single thread."""
    if len(matrix) > ONE_THREAD_LIMIT:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    with one_blas_thread():
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
