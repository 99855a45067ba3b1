"""What is usual for every head: robust statistics of a trailing window and of a fixed reference."""

from __future__ import annotations

import warnings
from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SMALLEST_SCALE = 0.05
_NORMAL = 1.4826  # the MAD of a normal distribution times this is its standard deviation


class HeadHistory:
    """The past of one metric, head by head.

        z = (x - median) / max(1.4826 median |x - median|, 0.05)

    of the logarithm, once with the median and MAD of the trailing ``window`` and once with those of ``reference``
    samples that were taken after the first ``settle`` and never change.

    Parameters
    ----------
    window, settle, reference
        Numbers of samples.

    Examples
    --------
    >>> history = HeadHistory(window=4, settle=0, reference=2)
    >>> for value in (1.0, 1.1, 1.2, 1.3):
    ...     history.add(np.log([value]))
    >>> z, usual = history.change(np.log([13.0]))
    >>> bool(z[0] > 20), np.exp(usual).round(2).tolist()
    (True, [1.05])
    """

    def __init__(self, window: int, settle: int, reference: int) -> None:
        self._window: deque[Floats] = deque(maxlen=window)
        self._settle, self._wanted = settle, reference
        self._early: list[Floats] = []
        self._seen = 0
        self._fixed: tuple[Floats, Floats] | None = None

    def add(self, values: Floats) -> None:
        """Add a sample; NaN for heads whose value is not to be taken for usual."""
        self._seen += 1
        self._window.append(values)
        if self._seen > self._settle and len(self._early) < self._wanted:
            self._early.append(values)
            if len(self._early) == self._wanted:
                self._fixed = _usual(self._early)

    def change(self, values: Floats, *, both_sides: bool = False) -> tuple[Floats, Floats]:
        """Return how many robust deviations above its past every head lies, and the median of that past.

        The larger of both comparisons counts; minus infinity while there is no past of ``reference`` samples. With
        ``both_sides`` a value below the past counts as much as one above it.
        """
        z, median = np.full(len(values), -np.inf), np.full(len(values), np.nan)
        pasts = [self._fixed] if self._fixed is not None else []
        if len(self._window) >= self._wanted:
            pasts.append(_usual(self._window))
        for center, scale in pasts:
            found = (values - center) / scale
            found = np.abs(found) if both_sides else found
            better = found > z  # NaN is not
            z = np.where(better, found, z)
            median = np.where(better, center, median)
        return z, median


def _usual(samples: list[Floats] | deque[Floats]) -> tuple[Floats, Floats]:
    """Return the median and the robust deviation of every head over samples; NaN where there is none."""
    values = np.stack(list(samples))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # heads that were never finite
        center = np.nanmedian(values, axis=0)
        spread = _NORMAL * np.nanmedian(np.abs(values - center), axis=0)
    return center, np.maximum(spread, _SMALLEST_SCALE)
