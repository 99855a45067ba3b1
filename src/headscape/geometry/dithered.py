"""L1 distances between points from features of 8 bits, unbiased, with a bound of their standard error.

A feature x is rounded up or down at random,

    x  ->  floor((x - low) / S + u),   u uniform in [0, 1), one for each feature and the same for all points

so that the expected difference of two rounded features is their difference over S: every distance is unbiased. Its
variance over u is S^2 t (1 - t), where t is the fractional part of |x - y| / S, at most S^2 min(|x - y| / S, 1 / 4);
the sum of these bounds is taken for the variance of a distance. (Non-subtractive dither, as in Wannamaker, Lipshitz,
Vanderkooy and Wright, IEEE Trans. Signal Process. 48, 2000.) Processors sum absolute differences of bytes several
times as fast as those of floats.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.l1_kernel import symmetric

LEVELS = 254
"""Steps of S between the smallest and the largest value: with the dither, 255 fits into a byte."""
CLASSES, STEP = 4, 4.0
"""Features are sorted by the range of their values over the points into so many classes, each range this many times as
small as the one before, and each class has a unit S of its own: most differences are between small values."""


class DitheredDistances:
    """Adds up distances between n points over blocks of features."""

    def __init__(self, n: int) -> None:
        from headscape.geometry._l1_bytes import GROUP

        self._n, self._padded = n, n + -n % GROUP
        self._sums = np.zeros((2, self._padded, self._padded))

    def add(self, features: NDArray[np.float32], rng: np.random.Generator) -> None:
        """Add what some features (point, feature) contribute."""
        from headscape.geometry._l1_bytes import add_byte_distances

        if rounded := self.rounded(features, rng):
            x, first, scale, filled, below = rounded
            add_byte_distances(x, first, scale, filled, below, self._sums)

    def rounded(self, features: NDArray[np.float32], rng: np.random.Generator) -> tuple[NDArray[Any], ...]:
        """Return features as bytes, and what the kernel asks of them; nothing if all points are equal."""
        from headscape.geometry._l1_bytes import GROUP, VECTOR_BYTES, write_bytes

        low = features.min(axis=0)
        span = features.max(axis=0) - low
        largest = float(span.max())
        if largest == 0.0:
            return ()
        steps = np.log(largest / np.maximum(span, largest * STEP**-CLASSES)) / np.log(STEP)
        kind = np.minimum(steps.astype(np.int64), CLASSES - 1)
        order = np.argsort(kind, kind="stable")  # within a class the order stays: zeros at the end
        count = np.bincount(kind, minlength=CLASSES)
        first = np.concatenate([[0], np.cumsum(-(-count // VECTOR_BYTES))])
        at = np.empty(len(kind), dtype=np.int64)
        at[order] = np.arange(len(kind)) + np.repeat(
            VECTOR_BYTES * first[:-1] - np.cumsum(count) + count, count
        )
        scale = largest * STEP ** -np.arange(CLASSES) / LEVELS
        x = np.empty((self._padded, VECTOR_BYTES * first[-1]), dtype=np.uint8)
        filled = np.empty((CLASSES, self._padded // GROUP), dtype=np.int64)
        below = np.empty((self._padded, first[-1] + 1), dtype=np.int32)
        write_bytes(features, low, 1.0 / scale[kind], rng.random(len(kind)), at, first, x, filled, below)
        return x, first, scale, filled, below

    def sums(self) -> NDArray[np.float64]:
        """Return (distance, bound of its variance) x point x point."""
        return np.stack([symmetric(one[: self._n, : self._n]) for one in self._sums])
