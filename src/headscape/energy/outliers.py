"""Which values stand out from the rest of a measure."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

DEFAULT_DISTANCE = 3.0
# Where all values are equal but for rounding, the quartiles leave no room at all.
_SMALLEST_SHARE = 0.01


def standing_out(values: ArrayLike, distance: float = DEFAULT_DISTANCE) -> NDArray[np.bool_]:
    """Tell which values lie far outside the quartiles.

        x < q25 - distance (q75 - q25)   or   x > q75 + distance (q75 - q25)

    This is Tukey's rule for values "far out". Values within 1 % of the quartiles never stand out, and neither does
    NaN.

    Parameters
    ----------
    values : (n,) array
        One per head.
    distance
        In interquartile ranges.

    Examples
    --------
    >>> standing_out([1.5, 1.6, 1.4, 1.5, 30.0]).tolist()
    [False, False, False, False, True]
    """
    x = np.asarray(values, dtype=np.float64)
    good = np.isfinite(x)
    if not good.any():
        return np.zeros(x.shape, dtype=np.bool_)
    q25, q75 = np.quantile(x[good], [0.25, 0.75])
    reach = max(distance * (q75 - q25), _SMALLEST_SHARE * max(abs(q25), abs(q75)))
    return np.asarray(good & ((x < q25 - reach) | (x > q75 + reach)))
