"""Which values stand out from the rest of a positive measure."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

DEFAULT_DISTANCE = 5.0
SMALLEST_RATIO = 1.5


def standing_out(values: ArrayLike, distance: float = DEFAULT_DISTANCE) -> NDArray[np.bool_]:
    """Tell which values lie far from the others, by the median and its absolute deviation on a log scale.

        |log x - median log x| > distance * 1.4826 median |log x - median log x|

    and a ratio to the median above 1.5 either way. On a log scale because the measures are ratios; the smallest
    ratio keeps a few heads that happen to be alike from making an outlier of the next. NaN stands out from
    nothing.

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
    spread = 1.4826 * float(np.median(gaps))
    out[good] = gaps > max(distance * spread, np.log(SMALLEST_RATIO))
    return out
