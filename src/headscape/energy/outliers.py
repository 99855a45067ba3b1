"""Which values stand out from the rest of a positive measure."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

DEFAULT_DISTANCE = 5.0


def standing_out(values: ArrayLike, distance: float = DEFAULT_DISTANCE) -> NDArray[np.bool_]:
    """Tell which values lie far from the others, by the median and its absolute deviation on a log scale.

        |log x - median log x| > distance * 1.4826 median |log x - median log x|

    On a log scale because the measures are ratios. A floor of 10 % of the median keeps measures that are all
    but equal from having outliers by rounding. NaN stands out from nothing.

    Parameters
    ----------
    values : (n,) array
        Positive numbers, one per head.
    distance
        In robust standard deviations.

    Examples
    --------
    >>> standing_out([1.5, 1.6, 1.4, 1.5, 30.0]).tolist()
    [False, False, False, False, True]
    """
    x = np.asarray(values, dtype=np.float64)
    good = np.isfinite(x) & (x > 0)
    out = np.zeros(x.shape, dtype=np.bool_)
    if not good.any():
        return out
    logs = np.log(x[good])
    gaps = np.abs(logs - np.median(logs))
    spread = max(1.4826 * float(np.median(gaps)), np.log(1.1) / distance)
    out[good] = gaps > distance * spread
    return out
