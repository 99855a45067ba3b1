"""Gromov-Wasserstein: how far apart two geometries are, whatever their points are called and how many there are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError, MissingDependencyError

FloatArray64 = NDArray[np.float64]

EXTRA = "pip install 'headscape[compare]'"
MAX_ITERATIONS = 200


@dataclass(frozen=True, eq=False)
class Transport:
    """The best of several transport plans.

    Attributes
    ----------
    distance
        The Gromov-Wasserstein distance, in the units of the distances.
    plan : (n, m) array
        How much of the mass of each point of the first geometry goes to each point of the second; rows sum to 1 / n,
        columns to 1 / m.
    start
        The start that led to it: "same place", "order", "profile" or "given".
    settled
        Whether the plan stopped improving before the last iteration.
    """

    distance: float
    plan: FloatArray64
    start: str
    settled: bool = True


def require_pot() -> Any:
    """Return the module ``ot``, or say how to install it."""
    try:
        import ot
    except ImportError as error:
        raise MissingDependencyError(
            f"comparing networks needs POT, which is not installed. Install it with: {EXTRA}"
        ) from error
    return ot


def gromov_wasserstein(a: Any, b: Any, *, start: Any = None, one_start: bool = False) -> Transport:
    """Return the Gromov-Wasserstein distance between two matrices of distances, with its plan.

        d(a, b)^2 = min over plans T of  sum over i, j, k, l of (a_ik - b_jl)^2 T_ij T_kl

    over all T >= 0 with rows that sum to 1 / n and columns that sum to 1 / m.

    Parameters
    ----------
    a : (n, n) array
    b : (m, m) array
        Symmetric distances, in the same units.
    start : (n, m) array
        A plan to start from, beside the usual ones.
    one_start
        Start only from ``start``, or if there is none from the points at the same place.

    Returns
    -------
    Transport

    Notes
    -----
    The minimum is taken by conditional gradient (POT, ``ot.gromov.gromov_wasserstein``) from several starts, because
    the problem is not convex: points of the same number together (n = m), points in order, points with similar profiles
    of distances. What is returned is the lowest that was found, an upper bound of the distance. O(n^3) per iteration.

    References
    ----------
    Mémoli, Gromov-Wasserstein distances and the metric approach to object matching, Found. Comput. Math. 11 (2011);
    Peyré, Cuturi, Solomon, Gromov-Wasserstein averaging of kernel and distance matrices, ICML 2016.

    Examples
    --------
    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0]))
    >>> turned = gromov_wasserstein(line, line[::-1, ::-1])
    >>> round(turned.distance, 6), turned.plan.argmax(axis=1).tolist()
    (0.0, [2, 1, 0])
    """
    first, second = _distances(a, "a"), _distances(b, "b")
    ot = require_pot()
    p, q = (np.full(len(x), 1 / len(x)) for x in (first, second))
    best: Transport | None = None
    for name, plan in _starts(first, second, start, one_start):
        found, log = ot.gromov.gromov_wasserstein(
            first, second, p, q, "square_loss", symmetric=True, G0=plan, log=True, max_iter=MAX_ITERATIONS
        )
        distance = _distance_of(first, second, np.asarray(found), float(log["gw_dist"]))
        if best is None or distance < best.distance:
            best = Transport(distance, np.asarray(found), name, len(log["loss"]) <= MAX_ITERATIONS)
        if best.distance < 1e-7:
            break
    assert best is not None  # there is always a start
    return best


def distortion(a: FloatArray64, b: FloatArray64) -> float:
    """Return the root mean square difference of two matrices of distances: Gromov-Wasserstein at the identity.

    Examples
    --------
    >>> round(distortion(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 3.0], [3.0, 0.0]])), 3)
    1.414
    """
    return float(np.sqrt(np.mean((np.asarray(a, dtype=np.float64) - b) ** 2)))


def _distances(x: Any, name: str) -> FloatArray64:
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not len(array) or not np.isfinite(array).all():
        raise InputError(f"{name} must be a square array of finite distances, but has shape {array.shape}.")
    return array


def _distance_of(a: FloatArray64, b: FloatArray64, plan: FloatArray64, squared: float) -> float:
    """Return the distance that a plan has, from its few positive entries if it is sparse, else from POT's square.

    POT expands the square, so that equal geometries come out at 1e-8 instead of 0.
    """
    rows, columns = np.nonzero(plan)
    if len(rows) > 2 * sum(plan.shape):
        return float(np.sqrt(max(0.0, squared)))
    mass = plan[rows, columns]
    return float(np.sqrt(mass @ (a[np.ix_(rows, rows)] - b[np.ix_(columns, columns)]) ** 2 @ mass))


def _starts(
    a: FloatArray64, b: FloatArray64, given: Any, one_start: bool
) -> Iterator[tuple[str, FloatArray64]]:
    """Yield plans to start from."""
    n, m = len(a), len(b)
    if given is not None:
        yield "given", np.asarray(given, dtype=np.float64)
    elif n == m:
        yield "same place", np.eye(n) / n
    if one_start and (given is not None or n == m):
        return
    if given is not None and n == m:
        yield "same place", np.eye(n) / n
    if n != m:
        yield "order", ordered_plan(n, m)
    yield "profile", profile_plan(a, b)


def ordered_plan(n: int, m: int) -> FloatArray64:
    """Return the plan that keeps the order of the points: the first go to the first, the last to the last.

    Examples
    --------
    >>> ordered_plan(2, 4).tolist()
    [[0.25, 0.25, 0.0, 0.0], [0.0, 0.0, 0.25, 0.25]]
    """
    rows, columns = np.arange(n + 1) / n, np.arange(m + 1) / m
    low = np.maximum(rows[:-1, None], columns[None, :-1])
    high = np.minimum(rows[1:, None], columns[None, 1:])
    return np.asarray(np.maximum(high - low, 0.0))


def profile_plan(a: FloatArray64, b: FloatArray64, n_quantiles: int = 64) -> FloatArray64:
    """Return the plan between points whose distances to all others are distributed alike (Mémoli's third lower bound).

    Points are compared by the L2 distance of the quantiles of their rows.
    """
    ot = require_pot()
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
    profiles = [np.quantile(x, levels, axis=1).T for x in (a, b)]
    p, q = (np.full(len(x), 1 / len(x)) for x in (a, b))
    return np.asarray(ot.emd(p, q, ot.dist(*profiles)))
