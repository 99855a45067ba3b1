"""Bootstrap intervals: the one place where headscape turns repeated measurements into an interval.

What is drawn again is always the independent unit (a context window, a text, a run), never the single token
or head inside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError

FloatArray64 = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with the interval that covers it at a level; the bounds are NaN where none can be given.

    Examples
    --------
    >>> print(Interval(0.7, 0.64, 0.8, 0.95), 0.65 in Interval(0.7, 0.64, 0.8, 0.95))
    0.7 [0.64, 0.8] True
    """

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    values: Any,
    statistic: Callable[[FloatArray64], float] | None = None,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return a statistic of repeated measurements with its bootstrap interval.

    The measurements are drawn again with replacement ``n_resamples`` times; the interval holds the middle
    ``level`` of the statistics of these draws (percentile bootstrap).

    Parameters
    ----------
    values : (n, ...) array
        One entry per independent unit along the first axis.
    statistic
        Maps an (n, ...) array to a number; by default the mean of all entries.
    level
        The share of draws inside the interval.
    n_resamples, seed
        How often is drawn, and the seed of the draws.

    Returns
    -------
    Interval
        With NaN bounds if there is only one unit.

    Notes
    -----
    O(n_resamples) calls of the statistic. With few units (below about ten) percentile intervals are too
    narrow: six normal
    values give a 95 % interval that covers 86 %, ten 90 %, twenty 92 %. For differences between two measures on
    the same units pass the differences, which keeps the pairing.

    References
    ----------
    Efron, Tibshirani, "An Introduction to the Bootstrap", chapter 13.

    Examples
    --------
    >>> print(bootstrap([1.0, 2.0, 3.0, 4.0, 5.0]))
    3 [1.8, 4.2]
    """
    array = _units(values)
    measure = (lambda a: float(np.mean(a))) if statistic is None else statistic
    estimate = float(measure(array))
    if len(array) < 2:
        return Interval(estimate, np.nan, np.nan, level)
    rng = np.random.default_rng(seed)
    draws = [float(measure(array[rng.integers(len(array), size=len(array))])) for _ in range(n_resamples)]
    return Interval(estimate, *_middle(np.asarray(draws), level), level)


def bootstrap_means(
    values: Any, *, level: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> tuple[FloatArray64, FloatArray64, FloatArray64]:
    """Return the mean of every column with the bounds of its bootstrap interval.

    Parameters
    ----------
    values : (n, m) array
        n independent units, m columns (heads, say).
    level, n_resamples, seed
        As in :func:`bootstrap`; all columns share the same draws.

    Returns
    -------
    mean, low, high : (m,) arrays

    Notes
    -----
    One (n_resamples, n) @ (n, m) product.

    Examples
    --------
    >>> mean, low, high = bootstrap_means([[1.0, 5.0], [3.0, 5.0]])
    >>> mean.tolist(), low.tolist(), high.tolist()
    ([2.0, 5.0], [1.0, 5.0], [3.0, 5.0])
    """
    array = _units(values)
    mean = np.asarray(array.mean(axis=0))
    if len(array) < 2:
        nothing = np.full_like(mean, np.nan)
        return mean, nothing, nothing
    low, high = _middle(_counts(len(array), n_resamples, seed) @ array / len(array), level)
    return mean, np.asarray(low), np.asarray(high)


def bootstrap_pairs(values: Any, *, level: float = 0.95, n_resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the mean of a measure over all pairs of different units with its bootstrap interval.

        mean over i < j of v_ij

    Parameters
    ----------
    values : (n, n) symmetric array
        The measure between units i and j (a correlation, a Jaccard index); the diagonal is not used.
    level, n_resamples, seed
        As in :func:`bootstrap`.

    Returns
    -------
    Interval
        NaN throughout if there is only one unit.

    Notes
    -----
    Units are drawn, not pairs, because pairs that share a unit are not independent; a unit drawn twice makes
    no pair with itself, which would always agree. O(n_resamples n^2).

    Examples
    --------
    >>> print(bootstrap_pairs([[1.0, 0.5], [0.5, 1.0]]))
    0.5 [0.5, 0.5]
    """
    array = _units(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise InputError(f"values must be a square (unit, unit) array, but its shape is {array.shape}.")
    if len(array) < 2:
        return Interval(np.nan, np.nan, np.nan, level)
    apart = array - np.diag(np.diag(array))
    estimate = float(apart.sum() / (len(array) * (len(array) - 1)))
    counts = _counts(len(array), n_resamples, seed)
    pairs = len(array) ** 2 - (counts**2).sum(axis=1)
    some = pairs > 0
    means = ((counts[some] @ apart) * counts[some]).sum(axis=1) / pairs[some]
    return Interval(estimate, *_middle(means, level), level)


def bootstrap_crossed(
    values: Any, *, level: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> Interval:
    """Return the mean of a two-way table with its bootstrap interval, drawing rows and columns anew.

    Parameters
    ----------
    values : (n, m) array
        A measurement for every pair of a row unit (a random draw, say) and a column unit (a window); one row or one
        column alone is taken as given.
    level, n_resamples, seed
        As in :func:`bootstrap`.

    Returns
    -------
    Interval
        NaN bounds if there is a single cell.

    Notes
    -----
    O(n_resamples n m). Rows and columns are drawn independently of each other, so the interval is somewhat wider
    than it would have to be.

    References
    ----------
    Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1 (2007).

    Examples
    --------
    >>> print(bootstrap_crossed([[1.0, 2.0], [3.0, 4.0]]))
    2.5 [1, 4]
    """
    array = _units(values)
    if array.ndim != 2:
        raise InputError(f"values must be a (row unit, column unit) array, but its shape is {array.shape}.")
    estimate = float(array.mean())
    if array.size < 2:
        return Interval(estimate, np.nan, np.nan, level)
    rows, columns = (_counts(n, n_resamples, seed + i) / n for i, n in enumerate(array.shape))
    draws = np.einsum("rn,nm,rm->r", rows, array, columns, optimize=True)
    return Interval(estimate, *_middle(draws, level), level)


def _units(values: Any) -> FloatArray64:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or len(array) == 0:
        raise InputError(
            f"values must have at least one unit on the first axis, but has shape {array.shape}."
        )
    return array


def _counts(n: int, n_resamples: int, seed: int) -> FloatArray64:
    """Return how often each of n units occurs in each draw."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1 / n), size=n_resamples).astype(np.float64)


def _middle(draws: FloatArray64, level: float) -> tuple[Any, Any]:
    """Return the bounds of the middle ``level`` of draws along the first axis."""
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, but is {level}.")
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high
