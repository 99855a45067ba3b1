"""Affinities between the points of an axis: from EMDs, and the initial ones from the slices themselves."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.engine import LocalEngine, Progress, no_progress
from headscape.engine.blas import one_blas_thread
from headscape.errors import InputError
from headscape.geometry.median import median

AFFINITY_FLOOR = 1e-8
"""Affinities below this are no connection (they are dropped from the Markov operator)."""

NEIGHBORS = 10
_BLOCK_BYTES = 1 << 26
_GRAM_POINTS = 8
_RUNS = 16
# Inner products differ in the last digits when points or features come in another order; trees must not.
_DECIMALS = 9


def emd_affinity(emd: NDArray[np.float64], eps_scale: float = 1.0) -> NDArray[np.float64]:
    """Turn distances into affinities.

        G = exp(-E / eps),  eps = eps_scale * median of all entries of E

    The diagonal counts in the median; a median of 0 gives eps = 1.

    Examples
    --------
    >>> emd_affinity(np.array([[0.0, 2.0], [2.0, 0.0]])).round(3).tolist()
    [[1.0, 0.135], [0.135, 1.0]]
    """
    if not eps_scale > 0:
        raise InputError(f"eps_scale must be positive, but is {eps_scale}.")
    scale = median(emd)
    return np.exp(-emd / (eps_scale * scale if scale > 0 else 1.0))


def cosine_affinity(x: NDArray[Any], axis: int, progress: Progress = no_progress) -> NDArray[np.float64]:
    """Return the cosine similarity between slices, negative values set to 0 (the initial affinity of arXiv 2506.15541).

        G_pj = max(0, <A_p, A_j> / (|A_p| |A_j|))

    A slice of zeros has affinity 1 with itself and with other slices of zeros, 0 with the rest, so that every
    point has a connection and equal slices stay equal.
    """
    return cosine_of_gram(_gram(x, axis, progress))


def cosine_of_gram(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine affinity of slices whose inner products are known."""
    norm = np.sqrt(np.diag(gram))
    zero = norm == 0
    safe = np.where(zero, 1.0, norm)
    cosine = np.clip(gram / np.multiply.outer(safe, safe), 0.0, 1.0)
    cosine[np.ix_(zero, zero)] = 1.0
    np.fill_diagonal(cosine, 1.0)
    return np.round(cosine, _DECIMALS)


def gaussian_affinity(
    x: NDArray[Any], axis: int, progress: Progress = no_progress, neighbors: int = NEIGHBORS
) -> NDArray[np.float64]:
    """Return a Gaussian affinity whose scale is set by the nearest neighbors.

        G_pj = exp(-|A_p - A_j|^2 / sigma^2),  sigma = median over p of the distance to its k-th neighbor

    where k = min(neighbors, n - 1). If that median is 0, the smallest positive distance takes its place.
    """
    return gaussian_of_gram(_gram(x, axis, progress), neighbors)


def gaussian_of_gram(gram: NDArray[np.float64], neighbors: int = NEIGHBORS) -> NDArray[np.float64]:
    """Return the Gaussian affinity of slices whose inner products are known."""
    square = np.diag(gram)
    distance2 = np.maximum(square[:, None] + square[None, :] - 2.0 * gram, 0.0)
    # Below the rounding of the Gram matrix two slices are equal; without this, noise would set the scale.
    distance2[distance2 <= 1e-13 * square.max(initial=0.0)] = 0.0
    n = len(distance2)
    if n > 1:
        scale = float(np.median(np.sort(distance2, axis=1)[:, min(neighbors, n - 1)]))
        positive = distance2[distance2 > 0]
        if scale == 0.0:
            scale = float(positive.min()) if positive.size else 1.0
    else:
        scale = 1.0
    return np.asarray(np.round(np.exp(-distance2 / scale), _DECIMALS))


INITIAL_AFFINITIES = {"cosine": cosine_affinity, "gaussian": gaussian_affinity}
OF_GRAM = {"cosine": cosine_of_gram, "gaussian": gaussian_of_gram}
"""The same from inner products of the slices."""


def _gram(x: NDArray[Any], axis: int, progress: Progress) -> NDArray[np.float64]:
    """Return the inner products of slices in float64, of x scaled so that squares neither over- nor underflow."""
    largest = max(abs(float(x.max())), abs(float(x.min())))
    exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
    scale = np.ldexp(1.0, min(-exponent, 1000))
    blocked = 1 if axis == 0 else 0  # the first of the other axes
    # Blocks of features, so that no full copy of the tensor is made, and so that under a mask many slices are zero.
    step = max(1, min(_GRAM_POINTS, _BLOCK_BYTES // max(1, 8 * x.size // x.shape[blocked])))
    starts = range(0, x.shape[blocked], step)
    run = -(-len(starts) // _RUNS)
    runs = [starts[first : first + run] for first in range(0, len(starts), run)]

    def of_run(blocks: range) -> NDArray[np.float64]:
        # One buffer for all blocks: asking the system for memory takes longer than filling it.
        values = np.empty(step * x.size // x.shape[blocked])
        return sum(
            (_block_gram(x, axis, blocked, slice(start, start + step), scale, values) for start in blocks),
            np.zeros((x.shape[axis], x.shape[axis])),
        )

    gram = np.zeros((x.shape[axis], x.shape[axis]))
    with one_blas_thread():  # the blocks have a thread each
        for done, part in enumerate(LocalEngine().map(of_run, runs)):
            gram += part
            progress("initial affinity", done + 1, len(runs))
    return gram


def _block_gram(
    x: NDArray[Any],
    axis: int,
    blocked: int,
    block: slice,
    scale: float,
    spare: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the inner products over a block of features, computed between the slices that are not zero there."""
    part = x[tuple(block if number == blocked else slice(None) for number in range(x.ndim))]
    # Features in the order of the memory, and slices as columns where their entries are neighbors.
    order = sorted(
        (number for number in range(x.ndim) if number != axis), key=lambda i: -abs(part.strides[i])
    )
    columns = int(np.argmin(np.abs(part.strides))) == axis
    view = part.transpose([*order, axis] if columns else [axis, *order])
    values = np.multiply(view, scale, out=spare[: view.size].reshape(view.shape))
    n = x.shape[axis]
    rows = values.reshape(-1, n).T if columns else values.reshape(n, -1)
    some = np.flatnonzero(rows.any(axis=1))
    gram = np.zeros((n, n))
    if len(some):  # a range of slices, so that nothing is copied once more
        kept = slice(int(some[0]), int(some[-1]) + 1)
        gram[kept, kept] = rows[kept] @ rows[kept].T
    return gram
