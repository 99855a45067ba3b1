"""Whether a ranking of heads is stable from window to window (OA B.1, table 1, arXiv 2506.15541)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.intervals import FEWEST_UNITS, Interval, bootstrap_pairs
from headscape.errors import InputError
from headscape.notices import UNSTABLE_RANKING, Notice
from headscape.tensor.checks import as_float_array, require_finite

FloatArray64 = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Unrelated rankings give W = 1 / windows and a Jaccard index near share / (2 - share) = 0.05.
STABLE_W = 0.7
STABLE_JACCARD = 0.5


@dataclass(frozen=True, eq=False)
class RankStability:
    """How well the ranks of the heads by some score agree between windows.

    Attributes
    ----------
    bottom_counts, top_counts : (head,) integers
        In how many windows a head is among the lowest and the highest ``share`` of all heads.
    mean_ranks : (head,) array
        The mean rank over windows, 1 for the lowest score.
    jaccard_bottom, jaccard_top
        Mean over pairs of windows of |A n B| / |A u B| for these sets.
    rank_correlation
        Mean over pairs of windows of Spearman's correlation of the ranks.
    kendall_w
        Kendall's coefficient of concordance over all windows: 1 if all agree, 1 / windows if none do.
    correlation_range
        The smallest and the largest correlation between two windows.
    n_windows, share, name
        What went in, and what the score is called.
    """

    bottom_counts: IntArray
    top_counts: IntArray
    mean_ranks: FloatArray64
    jaccard_bottom: Interval
    jaccard_top: Interval
    rank_correlation: Interval
    kendall_w: Interval
    correlation_range: tuple[float, float]
    n_windows: int
    share: float
    name: str = ""

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Names the state in which the ranking is not stable and no head should be chosen by it."""
        w, jaccard = self.kendall_w.estimate, self.jaccard_bottom.estimate
        too_few = self.n_windows < FEWEST_UNITS
        if too_few or np.isnan(w) or (w >= STABLE_W and jaccard >= STABLE_JACCARD):
            return ()
        message = (
            f"over {self.n_windows} windows Kendall's W is {w:.2f} and the lowest {100 * self.share:.0f} % overlap by "
            f"{jaccard:.2f} (Jaccard): which heads are low depends on the text; do not choose heads by this ranking"
        )
        return (Notice(UNSTABLE_RANKING, message, "head"),)

    @property
    def verdict(self) -> str:
        """One sentence on whether the ranking is stable."""
        ranking = f"{self.name} ranking" if self.name else "ranking"
        if self.n_windows < FEWEST_UNITS:
            return (
                f"At least {FEWEST_UNITS} windows are needed to judge whether the {ranking} of the heads is stable, "
                f"but there {'is' if self.n_windows == 1 else 'are'} {self.n_windows}."
            )
        if np.isnan(self.kendall_w.estimate):
            return "All heads have the same score: there is no ranking."
        return (
            f"The {ranking} of the heads is {'not stable' if self.warnings else 'stable'}: Kendall's W "
            f"{self.kendall_w.estimate:.2f} over {self.n_windows} windows, where 1 is full agreement."
        )

    @property
    def statistics(self) -> str:
        """The numbers behind the verdict, with their intervals."""
        return (
            f"Kendall's W {self.kendall_w}, mean rank correlation between windows {self.rank_correlation}, Jaccard "
            f"index of the lowest {100 * self.share:.0f} % {self.jaccard_bottom}; 95 % intervals over windows."
        )

    def most_frequent(self, heads: Sequence[tuple[int, int]], count: int = 3) -> "pd.DataFrame":
        """Return the heads most often at the top and at the bottom, with their counts (OA table 1).

        Among equal counts the more extreme mean rank comes first.
        """
        rows = []
        top = np.lexsort((-self.mean_ranks, -self.top_counts))
        bottom = np.lexsort((self.mean_ranks, -self.bottom_counts))
        for place in range(min(count, len(heads))):
            high, low = int(top[place]), int(bottom[place])
            counts = (int(self.top_counts[high]), int(self.bottom_counts[low]))
            rows.append((heads[high], counts[0], heads[low], counts[1]))
        columns = ["top", "top_count", "bottom", "bottom_count"]
        index = pd.RangeIndex(1, len(rows) + 1, name="place")
        return pd.DataFrame(rows, columns=columns, index=index)


def rank_stability(
    scores: Any,
    *,
    share: float = 0.1,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
    name: str = "",
) -> RankStability:
    """Measure how well the ranks of heads agree between windows.

    Parameters
    ----------
    scores : (window, head) array
        One score per head and window; only ranks within a window matter.
    share
        The share of heads that counts as bottom and as top, rounded to whole heads, at least one.
    level, n_resamples, seed
        Of the bootstrap over windows.
    name
        What the score is called in sentences, such as "Haar entropy".

    Returns
    -------
    RankStability

    Notes
    -----
    Windows are drawn again, not heads; pairs of a window with itself are left out. The interval of W follows
    from that of the mean rank correlation r by W = (1 + (m - 1) r) / m for m windows, which is exact without
    ties. Below 4 windows there are no intervals and no verdict. O(window^2 head).

    References
    ----------
    OA (arXiv 2506.15541), B.1, table 1; Kendall, Babington Smith, "The problem of m rankings", 1939.

    Examples
    --------
    >>> agreement = rank_stability([[1.0, 2.0, 3.0, 9.0], [2.0, 1.0, 5.0, 7.0]], share=0.25)
    >>> agreement.bottom_counts.tolist(), agreement.top_counts.tolist(), agreement.kendall_w.estimate
    ([1, 1, 0, 0], [0, 0, 0, 2], 0.9)
    """
    array = as_float_array(scores, "scores").astype(np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"scores must be a (window, head) array, but its shape is {array.shape}.")
    require_finite(array, "scores")
    if not 0 < share <= 0.5:
        raise InputError(f"share must be larger than 0 and at most 0.5, but is {share}.")
    ranks = np.asarray(stats.rankdata(array, axis=1))
    bottom, top = extreme_heads(array, share)
    options: dict[str, Any] = {"level": level, "n_resamples": n_resamples, "seed": seed}
    correlations = rank_correlations(ranks)
    mean = bootstrap_pairs(correlations, **options, within=(-1.0, 1.0))
    between = correlations[np.triu_indices(len(array), k=1)]
    return RankStability(
        bottom_counts=bottom.sum(axis=0),
        top_counts=top.sum(axis=0),
        mean_ranks=ranks.mean(axis=0),
        jaccard_bottom=bootstrap_pairs(jaccard_indices(bottom), **options, within=(0.0, 1.0)),
        jaccard_top=bootstrap_pairs(jaccard_indices(top), **options, within=(0.0, 1.0)),
        rank_correlation=mean,
        kendall_w=_concordance(kendall_w(ranks), mean, len(array)),
        correlation_range=(float(between.min()), float(between.max())) if len(between) else (np.nan, np.nan),
        n_windows=len(array),
        share=share,
        name=name,
    )


@dataclass(frozen=True)
class RankAgreement:
    """How well two rankings of the same heads agree, as means over windows."""

    rank_correlation: float
    jaccard_bottom: float


def rank_agreement(scores: FloatArray64, others: FloatArray64, share: float = 0.1) -> RankAgreement:
    """Compare two (window, head) arrays of scores window by window.

    Examples
    --------
    >>> agreement = rank_agreement(np.array([[1.0, 2.0, 3.0]]), np.array([[10.0, 20.0, 15.0]]))
    >>> round(agreement.rank_correlation, 12), agreement.jaccard_bottom
    (0.5, 1.0)
    """
    pairs = [np.stack(pair) for pair in zip(scores, others, strict=True)]
    correlations = [rank_correlations(np.asarray(stats.rankdata(pair, axis=1)))[0, 1] for pair in pairs]
    overlaps = [jaccard_indices(extreme_heads(pair, share)[0])[0, 1] for pair in pairs]
    return RankAgreement(float(np.mean(correlations)), float(np.mean(overlaps)))


def extreme_heads(scores: FloatArray64, share: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark in every row the lowest and the highest share of the scores, at least one each."""
    count = max(1, round(share * scores.shape[1]))
    order = np.argsort(scores, axis=1, kind="stable")
    bottom, top = np.zeros(scores.shape, dtype=bool), np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(bottom, order[:, :count], True, axis=1)
    np.put_along_axis(top, order[:, -count:], True, axis=1)
    return bottom, top


def jaccard_indices(sets: NDArray[np.bool_]) -> FloatArray64:
    """Return |A n B| / |A u B| for every pair of rows of marks (1 for two empty sets)."""
    common = sets.astype(np.float64) @ sets.T.astype(np.float64)
    size = sets.sum(axis=1)
    union = np.add.outer(size, size) - common
    return np.asarray(np.divide(common, union, out=np.ones_like(common), where=union > 0))


def rank_correlations(ranks: FloatArray64) -> FloatArray64:
    """Return Spearman's correlation between every pair of rows of ranks; 0 where a row is all ties."""
    centered = ranks - ranks.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(centered, axis=1, keepdims=True)
    unit = np.divide(centered, norm, out=np.zeros_like(centered), where=norm > 0)
    return np.asarray(unit @ unit.T)


def kendall_w(ranks: FloatArray64) -> float:
    """Return Kendall's coefficient of concordance of m rows of ranks, corrected for ties.

        W = 12 S / (m^2 (n^3 - n) - m sum of (t^3 - t) over groups of t ties)

    with S the sum of squared deviations of the column sums. NaN if all is tied.
    """
    m, n = ranks.shape
    deviations = ranks.sum(axis=0) - m * (n + 1) / 2
    ties = sum(
        float((counts**3 - counts).sum()) for row in ranks for counts in [np.unique_counts(row).counts]
    )
    most = m**2 * (n**3 - n) - m * ties
    return float(12 * (deviations**2).sum() / most) if most > 0 else float("nan")


def _concordance(w: float, mean: Interval, m: int) -> Interval:
    # W is never negative, whatever the lower bound of a mean correlation.
    low, high = np.maximum([(1 + (m - 1) * bound) / m for bound in (mean.low, mean.high)], 0.0)
    return Interval(w, float(low), float(high), mean.level)
