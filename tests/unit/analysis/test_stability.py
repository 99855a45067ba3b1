import numpy as np
import pytest
from scipy import stats

import headscape as hs
from headscape.analysis.stability import jaccard_indices, kendall_w, rank_agreement
from headscape.notices import UNSTABLE_RANKING


def test_same_ranks_in_all_windows():
    scores = np.arange(20.0) * np.array([[1.0], [2.0], [5.0], [7.0]])
    found = hs.rank_stability(scores, name="Haar entropy")
    for interval in (found.kendall_w, found.rank_correlation, found.jaccard_bottom, found.jaccard_top):
        np.testing.assert_allclose([interval.estimate, interval.low, interval.high], 1)
    assert found.bottom_counts.tolist() == [4, 4] + [0] * 18
    assert found.top_counts.tolist() == [0] * 18 + [4, 4]
    assert found.warnings == ()
    assert "The Haar entropy ranking of the heads is stable: Kendall's W 1" in found.verdict
    assert "over 4 windows" in found.verdict


def test_fewer_than_four_windows_allow_no_interval_and_no_verdict():
    scores = np.random.default_rng(0).standard_normal((3, 30))
    for windows in (1, 2, 3):
        found = hs.rank_stability(scores[:windows])
        assert not found.kendall_w.has_bounds
        assert not found.jaccard_bottom.has_bounds
        assert found.warnings == ()
        assert "At least 4 windows are needed" in found.verdict
        assert "stable:" not in found.verdict


def test_bounds_stay_in_the_range_of_the_measure():
    rng = np.random.default_rng(0)
    for spread in (0.05, 1.0, 30.0):
        found = hs.rank_stability(np.arange(30.0) + 10 * spread * rng.standard_normal((5, 30)))
        for interval, lowest in (
            (found.rank_correlation, -1),
            (found.kendall_w, 0),
            (found.jaccard_bottom, 0),
        ):
            assert lowest <= interval.low <= interval.estimate <= interval.high <= 1


def test_noise_is_named():
    found = hs.rank_stability(np.random.default_rng(0).standard_normal((6, 100)))
    assert found.kendall_w.estimate < 0.35
    assert found.jaccard_bottom.estimate < 0.2
    assert [w.name for w in found.warnings] == [UNSTABLE_RANKING]
    assert "is not stable" in found.verdict


def test_kendalls_w_against_friedmans_statistic_with_ties():
    ranks = stats.rankdata(np.random.default_rng(0).integers(0, 6, size=(5, 12)), axis=1)
    # Friedman's chi-squared is m (n - 1) W, ties corrected.
    chi = stats.friedmanchisquare(*ranks.T).statistic
    assert kendall_w(ranks) == pytest.approx(chi / (5 * 11))


def test_w_and_mean_correlation_belong_together_without_ties():
    found = hs.rank_stability(np.random.default_rng(0).standard_normal((7, 30)))
    assert found.kendall_w.estimate == pytest.approx((1 + 6 * found.rank_correlation.estimate) / 7)
    expected = stats.spearmanr(np.random.default_rng(0).standard_normal((7, 30)), axis=1).statistic
    low, high = found.correlation_range
    above = expected[np.triu_indices(7, 1)]
    assert (low, high) == (pytest.approx(above.min()), pytest.approx(above.max()))


def test_jaccard_by_hand():
    sets = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=bool)
    np.testing.assert_allclose(jaccard_indices(sets), [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]])


def test_most_frequent_heads_as_in_table_1():
    scores = np.array([[0.0, 1, 2, 3, 4, 5], [1.0, 0, 2, 3, 5, 4], [0.0, 1, 2, 4, 3, 5]])
    found = hs.rank_stability(scores, share=1 / 6)
    table = found.most_frequent([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], count=2)
    assert table["bottom"].tolist() == [(0, 0), (0, 1)]
    assert table["bottom_count"].tolist() == [2, 1]
    assert table["top"].tolist() == [(1, 2), (1, 1)]
    assert table["top_count"].tolist() == [2, 1]


def test_ties_in_the_counts_go_to_the_more_extreme_rank():
    scores = np.array([[1.0, 0, 5, 9], [1.0, 0, 5, 9]])
    table = hs.rank_stability(scores, share=0.5).most_frequent([(0, h) for h in range(4)], count=1)
    assert table["bottom"].tolist() == [(0, 1)]
    assert table["top"].tolist() == [(0, 3)]


@pytest.mark.parametrize("scores", [np.ones((4, 5)), np.arange(4.0)[:, None]])
def test_equal_scores_have_no_ranks(scores):
    found = hs.rank_stability(scores)
    assert np.isnan(found.kendall_w.estimate)
    assert found.warnings == ()
    assert "there is no ranking" in found.verdict


def test_agreement_of_two_rankings():
    a = np.arange(20.0)[None]
    assert rank_agreement(a, a**3).rank_correlation == pytest.approx(1)
    assert rank_agreement(a, -a).rank_correlation == pytest.approx(-1)
    assert rank_agreement(a, -a).jaccard_bottom == 0


def test_bad_input_is_refused():
    with pytest.raises(hs.HeadscapeError, match=r"\(window, head\) array"):
        hs.rank_stability(np.arange(4.0))
    with pytest.raises(hs.HeadscapeError, match=r"share must be larger than 0 and at most 0\.5"):
        hs.rank_stability(np.ones((2, 4)), share=0.6)
    with pytest.raises(hs.HeadscapeError, match="must be finite"):
        hs.rank_stability(np.array([[1.0, np.nan]]))
