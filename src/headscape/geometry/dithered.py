"""L1 distances between points from features of 8 bits, unbiased, with a bound of their standard error.

A feature x is rounded up or down at random,

    x  ->  floor((x - low) / S + u),   u uniform in [0, 1), one for each feature and the same for all points

so that the expected difference of two rounded features is their difference over S: every distance is unbiased. Its
variance over u is S^2 t (1 - t), where t is the fractional part of |x - y| / S: at most S^2 / 4, and at most S |x - y|.
(Non-subtractive dither, as in Wannamaker, Lipshitz, Vanderkooy and Wright, IEEE Trans. Signal Process. 48, 2000.)
Processors sum up minima of bytes several times as fast as those of floats. Features of a similar range are a class with
a unit S of its own, the next power of 2 over LEVELS: most differences are between small values, and S does not depend
on what else is rounded.

A feature that was drawn with probability p (:mod:`headscape.geometry.feature_sample`) counts 1 / p times. Were the
draws independent, then the squared differences of the drawn features,

    sum over f of (1 - p_f) / p_f^2 (x_f - y_f)^2,

would estimate without bias what they add to the variance. They are systematic, which is less as a rule. The sum is a
squared Euclidean distance, so it is estimated from sums of features with random signs in BUCKETS buckets, which take
features in turn, without bias and to about sqrt(2 / BUCKETS) of itself (Charikar, Chen and Farach-Colton, Finding
frequent items in data streams, 2002). Variances of a distance are the sum of this estimate and of the bounds of the
dither.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from headscape.geometry.feature_sample import FeatureSample
from headscape.geometry.l1_kernel import symmetric

LEVELS = 254
"""Steps of S between the smallest and the largest value: with the dither, 255 fits into a byte."""
BUCKETS = 64
"""Sums with random signs, of which a variance is estimated."""


class DitheredDistances:
    """Adds up distances between n points over blocks of features."""

    def __init__(self, n: int) -> None:
        from headscape.geometry._l1_bytes import GROUP

        self._n, self._padded = n, n + -n % GROUP
        self._sums = np.zeros((2, self._padded, self._padded))
        self._sketch = np.zeros((n, BUCKETS))

    def add(self, features: NDArray[np.floating], sample: FeatureSample) -> None:
        """Add what features (point, feature) contribute that were drawn."""
        from headscape.geometry._l1_bytes import add_byte_distances

        if rounded := self.rounded(np.ascontiguousarray(features), sample):
            x, first, size, scale, filled, sums = rounded
            add_byte_distances(x, first, size, scale, filled, sums, self._sums)

    def rounded(self, features: NDArray[np.floating], sample: FeatureSample) -> tuple[NDArray[Any], ...]:
        """Return features as bytes, and what the kernel asks of them; nothing if all points are equal.

        The sums in buckets are added up on the way.
        """
        from headscape.geometry._l1_bytes import GROUP, VECTOR_BYTES, add_sketch, write_bounds, write_bytes

        low, high = np.empty((2, features.shape[1]), dtype=features.dtype)
        write_bounds(features, low, high)
        span = (high - low) / sample.probability
        kept = np.flatnonzero(span)
        if not len(kept):
            return ()
        exponents = np.frexp(span[kept])[1]
        # Within a class as the sample numbers them: where a mask hides features, zeros are at the end.
        order = np.lexsort((sample.kept[kept], exponents))
        kept, exponents = kept[order], exponents[order]
        begin = np.flatnonzero(np.diff(exponents, prepend=exponents[0] - 1))
        count = np.diff(begin, append=len(kept))
        first = np.concatenate([[0], np.cumsum(-(-count // VECTOR_BYTES))])
        # In units of 1 / LEVELS, so that equal points have equal sums to the last digit.
        scale = np.ldexp(1.0, exponents[begin])
        at = np.arange(len(kept)) + np.repeat(VECTOR_BYTES * first[:-1] - begin, count)
        source = np.full(VECTOR_BYTES * first[-1], len(low), dtype=np.int32)
        source[at] = kept
        factor = np.zeros_like(low)
        factor[kept] = LEVELS / (np.repeat(scale, count) * sample.probability[kept])
        dither = sample.dither.astype(low.dtype)
        x = _aligned_zeros(self._padded, len(source))
        filled = np.zeros((len(count), self._padded // GROUP), dtype=np.int64)
        sums = np.zeros(self._padded)
        write_bytes(features, low, factor, dither, source, first, scale, x, filled, sums)
        weight = sample.sign * np.sqrt(1.0 - sample.probability) / sample.probability
        add_sketch(features, low, weight.astype(low.dtype), self._sketch)
        return x, first, count, scale, filled, sums

    def sums(self) -> NDArray[np.float64]:
        """Return what is added up over blocks, as rows of points: distances, bounds for the dither, and buckets."""
        n = self._n
        found, bounds = (symmetric(one[:n, :n]) for one in self._sums)
        return np.concatenate([found / LEVELS, bounds / LEVELS**2, self._sketch.T])


def _aligned_zeros(rows: int, width: int) -> NDArray[np.uint8]:
    """Return bytes whose rows, of whole vectors, begin where vectors are loaded at once."""
    align = 64
    spare = np.zeros(rows * width + align, dtype=np.uint8)
    begin = -spare.ctypes.data % align
    return spare[begin : begin + rows * width].reshape(rows, width)


def variance(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variances of distances, given the sums over all blocks."""
    n = sums.shape[1]
    return np.asarray(sums[n : 2 * n] + squareform(pdist(sums[2 * n :].T, "sqeuclidean")))
