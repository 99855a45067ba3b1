"""Spearman's rank correlation with its interval, for a few dozen heads."""

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from scipy import stats

from headscape.analysis.intervals import Interval

FEWEST = 8
"""Below this many points no interval is given."""
_ALL_ORDERS = 6


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation, its 95 % interval (NaN bounds for fewer than 8 points), and a permutation p-value."""

    interval: Interval
    p: float

    def __str__(self) -> str:
        return f"{self.interval:.2f} (p = {self.p:.2g})"


def rank_correlation(x: Any, y: Any, draws: int = 999, seed: int = 0) -> RankCorrelation:
    """Return Spearman's correlation r of two lists of numbers; pairs with a NaN are left out.

        tanh(artanh r -+ 1.96 sqrt((1 + r^2 / 2) / (n - 3)))

    The p-value permutes the pairs: asymptotic ones mean nothing for a handful of points. Constant values have
    correlation 0 and p = 1.

    References
    ----------
    Bonett, Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations",
    Psychometrika 65, 2000.

    Examples
    --------
    >>> print(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]))
    0.80 (p = 0.33)
    """
    pair = np.stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    pair = pair[:, np.isfinite(pair).all(axis=0)]
    n, nan = pair.shape[1], float("nan")
    if n < 3 or min(np.ptp(pair, axis=1)) == 0:
        return RankCorrelation(Interval(0.0, nan, nan), 1.0)
    first, second = (stats.rankdata(values) - (n + 1) / 2 for values in pair)
    size = np.linalg.norm(first) * np.linalg.norm(second)
    r = float(first @ second / size)
    # All orders of a few points, random ones of many; either way the order that was found is among them.
    if n <= _ALL_ORDERS:
        orders = np.array(list(permutations(second)))
    else:
        rng = np.random.default_rng(seed)
        orders = np.stack([second, *rng.permuted(np.tile(second, (draws, 1)), axis=1)])
    p = float(np.mean(np.abs(orders @ first) >= abs(r) * size - 1e-9))
    low = high = nan
    if n >= FEWEST:
        half = stats.norm.ppf(0.975) * np.sqrt((1 + r**2 / 2) / (n - 3))
        center = np.arctanh(np.clip(r, -1 + 1e-12, 1 - 1e-12))
        low, high = float(np.tanh(center - half)), float(np.tanh(center + half))
    return RankCorrelation(Interval(r, low, high), p)
