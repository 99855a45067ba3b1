"""How much the heads of two networks differ in a measure: Cliff's delta, with its interval over windows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.intervals import Interval
from headscape.errors import InputError

FloatArray64 = NDArray[np.float64]

SMALL, MEDIUM, LARGE = 0.147, 0.33, 0.474
"""Sizes of Cliff's delta that are usually called small, medium and large (Romano et al., 2006)."""


def cliffs_delta(a: Any, b: Any) -> float:
    """Return how much more often a value of the second sample is the larger one than the smaller one.

        delta = P(b > a) - P(b < a)

    from -1 (all values of b are below all of a) to 1; 0 for equal distributions.

    Parameters
    ----------
    a : (n,) array
    b : (m,) array

    References
    ----------
    Cliff, Dominance statistics: ordinal analyses to answer ordinal questions, Psychol. Bull. 114 (1993).

    Examples
    --------
    >>> cliffs_delta([1.0, 2.0], [2.0, 3.0])
    0.75
    """
    first, second = (np.asarray(x, dtype=np.float64).ravel() for x in (a, b))
    if not len(first) or not len(second):
        raise InputError("Cliff's delta needs values of both networks, but one has none.")
    ranks = stats.rankdata(np.concatenate([first, second]))
    n, m = len(first), len(second)
    return float(2 * (ranks[n:].sum() - m * (m + 1) / 2) / (n * m) - 1)


def effect_over_windows(a: Any, b: Any, *, paired: bool, level: float = 0.95) -> Interval:
    """Return Cliff's delta of the heads' means over windows, with an interval from leaving windows out.

        delta +- t s,  s^2 = sum over networks of (n - 1) / n * sum over windows w of (delta without w - their mean)^2

    Parameters
    ----------
    a : (window, head) array
    b : (window, other head) array
    paired
        Whether both have the same windows, which are then left out together.
    level
        Of the interval.

    Returns
    -------
    Interval
        With NaN bounds for fewer than 4 windows of a network.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> print(effect_over_windows(rng.normal(size=(6, 20)), 1 + rng.normal(size=(6, 20)), paired=False))
    0.825 [0.628, 1]
    """
    first, second = (np.asarray(x, dtype=np.float64) for x in (a, b))
    estimate = cliffs_delta(first.mean(axis=0), second.mean(axis=0))
    n, m = len(first), len(second)
    if min(n, m) < 4:
        return Interval(estimate, np.nan, np.nan, level)
    without = [
        [_left_out(first, second, i, i if paired else None) for i in range(n)],
        [] if paired else [_left_out(first, second, None, i) for i in range(m)],
    ]
    squared = [float(np.var(x) * (len(x) - 1)) for x in without if x]
    error = np.sqrt(sum(squared))
    freedom = n - 1 if paired else n + m - 2
    reach = float(stats.t.ppf(0.5 + 0.5 * level, freedom)) * error
    return Interval(estimate, max(-1.0, estimate - reach), min(1.0, estimate + reach), level)


def _left_out(a: FloatArray64, b: FloatArray64, of_a: int | None, of_b: int | None) -> float:
    """Return delta without a window of either network."""
    kept = [x if i is None else np.delete(x, i, axis=0) for x, i in ((a, of_a), (b, of_b))]
    return cliffs_delta(kept[0].mean(axis=0), kept[1].mean(axis=0))
