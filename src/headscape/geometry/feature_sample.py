"""Which features an estimate of L1 distances keeps: at random, those of a wide range most often, and without bias.

    D_ij = sum over f of |x_if - x_jf|   ~   sum over the kept f of |x_if - x_jf| / p_f

A feature is kept with probability

    p_f = min(1, r_f / tau),   r_f = R_f + FLOOR mean(R),   tau such that the p_f add up to the wanted number

where R_f is its range over a few evenly spread points, the pilots: only features that are kept are computed for all
points. The floor gives every feature a chance, so that the estimate is unbiased whatever the pilots miss. Sampling is
systematic (Madow, Ann. Math. Statist. 20, 1949; Saerndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992,
section 3.6): f is kept if the sum p_1 + ... + p_f + u passes a whole number at f, with one u uniform in [0, 1). So
neighbors, which are alike, are thinned out evenly.

The features of an outer folder are drawn by themselves, so that they are the same whatever is computed beside them. How
many it keeps is known from its tree: in proportion to the square root of its weight, and SHARE of all on average.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.partition_tree import IntArray

SHARE = 0.3
"""Share of the features that is kept, on average over the outer folders."""
PILOTS, FLOOR = 64, 0.03


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Features that are kept: their numbers and the probabilities with which they were drawn.

    ``dither`` is theirs as bytes, uniform in [0, 1); ``sign``, +1 or -1, is that with which they enter the estimate of
    the variance.
    """

    kept: IntArray
    probability: NDArray[np.float64]
    dither: NDArray[np.float64]
    sign: IntArray

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, some: slice) -> Self:
        """Return some of the features."""
        return type(self)(*(getattr(self, field.name)[some] for field in fields(self)))

    @classmethod
    def of(cls, kept: IntArray, probability: NDArray[np.float64], rng: np.random.Generator) -> Self:
        """Return features that were drawn, with what else of them is random."""
        n = len(kept)
        sign = 2 * rng.integers(2, size=n) - 1
        return cls(kept, probability, rng.random(n), sign)

    @classmethod
    def joined(cls, samples: Sequence[Self]) -> Self:
        """Return the features of several samples, one after the other."""
        return cls(*(np.concatenate([getattr(one, field.name) for one in samples]) for field in fields(cls)))


def pilots(n: int) -> IntArray:
    """Return the points from which ranges are estimated: at most PILOTS, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, PILOTS)).round().astype(np.int64))


def folder_shares(weights: NDArray[np.float64], share: float = SHARE) -> NDArray[np.float64]:
    """Return the share of its features that each outer folder keeps, by the weights of the folders."""
    return probabilities(np.sqrt(weights), share * len(weights))


def feature_sample(ranges: NDArray[np.floating], share: float, rng: np.random.Generator) -> FeatureSample:
    """Draw a share of the features that are not constant, by their ranges over the pilots.

    Parameters
    ----------
    ranges : (features,) array
        The largest value of each feature less the smallest.
    share
        Of all, if all are constant over the pilots.

    Notes
    -----
    O(F log F) for F features.

    Examples
    --------
    >>> sample = feature_sample(np.array([9.0, 1.0, 1.0, 1.0]), 0.5, np.random.default_rng(0))
    >>> sample.kept.tolist(), sample.probability.round(2).tolist()
    ([0, 2], [1.0, 0.33])
    """
    varying = np.count_nonzero(ranges)
    size = ranges + FLOOR * ranges.mean(dtype=np.float64) if varying else np.ones(len(ranges))
    p = probabilities(size, share * (varying or len(ranges)))
    passed = np.floor(np.cumsum(p) + rng.random())
    # A probability of 1 always passes a whole number, but for the last digit.
    kept = np.flatnonzero((np.diff(passed, prepend=0.0) > 0) | (p == 1.0))
    return FeatureSample.of(kept, p[kept], rng)


def probabilities(size: NDArray[np.floating], count: float) -> NDArray[np.float64]:
    """Return min(1, size / tau), with tau such that their sum is ``count``; all 1 if there are no more than that."""
    n = len(size)
    if count >= n:
        return np.ones(n)
    largest = np.sort(size.astype(np.float64))[::-1]
    rest = np.cumsum(largest[::-1])[::-1]
    certain = np.arange(int(np.ceil(count)))
    tau = rest[certain] / (count - certain)
    # The first number of certain features after which no other one is certain.
    found = tau[np.argmax(largest[certain] <= tau)]
    return np.asarray(np.minimum(1.0, size / found))
