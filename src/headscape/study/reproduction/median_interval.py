"""An interval for the median of a few heads, free of assumptions about their distribution."""

from typing import Any

import numpy as np
from scipy import stats

from headscape.analysis.intervals import Interval


def median_interval(values: Any, level: float = 0.95) -> Interval:
    """Return the median with the interval between two order statistics that holds it with at least ``level``.

        P(x_(k) <= median <= x_(n + 1 - k)) = 1 - 2 P(Binomial(n, 1/2) < k)

    Studentized bootstrap intervals need a standard error, which the jackknife does not give for a median. NaN bounds
    where the values are too few for the level (fewer than 6 at 0.95).

    Examples
    --------
    >>> print(median_interval(range(1, 25)))
    12.5 [7, 18]
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    x = x[np.isfinite(x)]
    n = len(x)
    k = int(stats.binom.ppf((1 - level) / 2, n, 0.5))
    estimate = float(np.median(x)) if n else float("nan")
    if k < 1 or 2 * stats.binom.cdf(k - 1, n, 0.5) > 1 - level:
        return Interval(estimate, float("nan"), float("nan"), level)
    return Interval(estimate, float(x[k - 1]), float(x[n - k]), level)
