"""What is usual for every head: robust statistics of a trailing window and of a fixed reference."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NORMAL = 1.4826  # the MAD of a normal distribution times this is its standard deviation


class HeadHistory:
    """The past of one metric, head by head.

        z = (x - median) / max(1.4826 MAD, smallest)

    of the logarithm x, against two pasts. The *fixed* one is ``reference`` samples that were taken after the first
    ``settle`` and never change. The *trailing* one is the older half of the last ``window`` samples, with the MAD of
    the whole window around its trend (the line through the medians of its halves): a steady rise, however slow, counts
    in multiples of the noise around it and not of itself.

    Parameters
    ----------
    window, settle, reference
        Numbers of samples.
    smallest
        The least deviation that counts as one.

    Examples
    --------
    >>> history = HeadHistory(window=4, settle=0, reference=2, smallest=0.1)
    >>> for value in (1.0, 1.1, 1.2, 1.3):
    ...     history.add(np.log([value]))
    >>> z, usual = history.change(np.log([13.0]))
    >>> bool(z[0] > 20), np.exp(usual).round(2).tolist()
    (True, [1.05])
    """

    def __init__(self, window: int, settle: int, reference: int, smallest: float) -> None:
        self._smallest = smallest
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
                self._fixed = _usual(np.stack(self._early))

    @property
    def settled(self) -> bool:
        """Whether the fixed reference is known."""
        return self._fixed is not None

    def reach(self, deviations: float) -> Floats:
        """Return how far above its trend some batch of every head is soon: by its noise, and by the next sample.

        So many robust deviations of single samples, and the rise of the trend in one sample.
        """
        samples = np.stack(list(self._window))
        rise = np.maximum(_slope(*_halves(samples), len(samples)), 0.0)
        reach: Floats = np.nan_to_num(deviations * _noise(samples)) + np.nan_to_num(rise)
        return reach

    def change(self, values: Floats, *, both_sides: bool = False) -> tuple[Floats, Floats]:
        """Return how many robust deviations above its past every head lies, and the median of that past.

        The larger of both comparisons counts; minus infinity while there is no past of ``reference`` samples. With
        ``both_sides`` a value below the past counts as much as one above it.
        """
        z, median = np.full(len(values), -np.inf), np.full(len(values), np.nan)
        pasts = [self._fixed] if self._fixed is not None else []
        if len(self._window) >= self._wanted:
            pasts.append(_trailing(np.stack(list(self._window))))
        for center, spread in pasts:
            found = (values - center) / np.maximum(spread, self._smallest)
            found = np.abs(found) if both_sides else found
            better = found > z  # NaN is not
            z = np.where(better, found, z)
            median = np.where(better, center, median)
        return z, median


def _noise(samples: Floats) -> Floats:
    """Return the robust deviation of every head from one sample to the next, as that of a single sample.

    Differences know nothing of a trend, nor of where it began.
    """
    steps = np.diff(samples, axis=0)
    noise: Floats = _NORMAL * _median(np.abs(steps - _median(steps))) / np.sqrt(2)
    return noise


def _usual(samples: Floats) -> tuple[Floats, Floats]:
    """Return the median and the robust deviation of every head over samples; NaN where there is none."""
    center = _median(samples)
    return center, _NORMAL * _median(np.abs(samples - center))


def _trailing(samples: Floats) -> tuple[Floats, Floats]:
    """Return the median of the older half, and the robust deviation of all samples around their trend."""
    older, newer = _halves(samples)
    line = np.arange(len(samples))[:, None] * np.nan_to_num(_slope(older, newer, len(samples)))
    return np.where(np.isfinite(older), older, newer), _usual(samples - line)[1]


def _halves(samples: Floats) -> tuple[Floats, Floats]:
    """Return the medians of the older and of the newer half."""
    half = len(samples) // 2
    return _median(samples[:half]), _median(samples[half:])


def _slope(older: Floats, newer: Floats, n_samples: int) -> Floats:
    """Return the rise per sample of the line through the medians of both halves, which are half a window apart."""
    return 2 * (newer - older) / n_samples


def _median(samples: Floats) -> Floats:
    """Return the median of every column without its NaNs, like ``np.nanmedian``, which takes four times as long."""
    ordered = np.sort(samples, axis=0)  # NaN comes last
    known = np.sum(~np.isnan(samples), axis=0)
    middle = np.stack([np.maximum(known - 1, 0) // 2, np.minimum(known // 2, len(samples) - 1)])
    median: Floats = np.take_along_axis(ordered, middle, axis=0).mean(axis=0)
    return median
