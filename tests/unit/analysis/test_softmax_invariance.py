import numpy as np
import pytest
from scipy import stats

import headscape as hs
from headscape.analysis.softmax_invariance import MEASURES, SoftmaxInvariance, _rank_correlation
from headscape.tensor.synthetic import planted_tensor

FAST = {"n_iter": 2}


@pytest.fixture(scope="module")
def study():
    return hs.softmax_invariance(planted_tensor(24, 20, layers=2, heads_per_layer=4, noise=0.2), **FAST)


def made(heads=40, windows=1, **values):
    """A study with given measures per head; the rest is ordinary."""
    ordinary = dict.fromkeys(MEASURES, 0.5) | values
    measures = {
        n: np.broadcast_to(np.asarray(v, float), (windows, heads)).copy() for n, v in ordinary.items()
    }
    return SoftmaxInvariance(tuple((i // 8, i % 8) for i in range(heads)), measures, {"seed": 0})


def test_every_head_is_measured_as_the_experiment_does(study):
    tensor = planted_tensor(24, 20, layers=2, heads_per_layer=4, noise=0.2)
    alone = hs.softmax_experiment(tensor.head(1, 2), **FAST).measures()
    place = study.heads.index((1, 2))
    assert {name: study.measures[name][0, place] for name in MEASURES} == alone


def test_organized_order_beats_shuffled_order_in_the_median(study):
    assert np.median(study.of_heads("residual")) < np.median(study.of_heads("residual_shuffled"))


def test_rank_correlation_is_spearmans(study):
    size, share = study.of_heads("mixed_size"), study.of_heads("share_explained")
    expected = stats.spearmanr(size, share).statistic
    assert study.correlation.estimate == pytest.approx(expected)
    assert study.correlation.low <= expected <= study.correlation.high
    assert study.window_correlations == pytest.approx([expected])
    assert _rank_correlation(np.array([[1.0, 2.0], [1.0, 3.0]])) == 0


def test_windows_are_medians(tmp_path):
    rng = np.random.default_rng(0)
    capture = hs.Capture.from_arrays(rng.normal(size=(3, 1, 2, 12, 4)), rng.normal(size=(3, 1, 2, 12, 4)))
    found = hs.softmax_invariance(capture, n_iter=1)
    assert found.measures["residual"].shape == (3, 2)
    np.testing.assert_allclose(found.of_heads("residual"), np.median(found.measures["residual"], axis=0))
    assert hs.softmax_invariance(capture, windows=1, n_iter=1).measures["mean"].shape == (1, 2)
    found.save(tmp_path / "study")
    again = hs.SoftmaxInvariance.load(tmp_path / "study")
    assert again.heads == found.heads
    assert again.verdict == found.verdict
    assert dict(again.parameters) == dict(found.parameters)
    for name in MEASURES:
        np.testing.assert_array_equal(again.measures[name], found.measures[name])


def test_missing_values_are_left_out_of_medians():
    found = made(heads=2, windows=2)
    found.measures["residual"][:] = [[np.nan, 1.0], [np.nan, np.nan]]
    np.testing.assert_array_equal(found.of_heads("residual"), [np.nan, 1.0])


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (
            0.004,
            "0.4 % of softmax in the median of 40 heads (at most 0.4 %): the corollary's assumptions do not",
        ),
        (
            0.6,
            "60 % of softmax in the median of 40 heads (at most 60 %): the corollary's assumptions hold in part",
        ),
        (0.95, "the corollary's assumptions hold for this network"),
    ],
)
def test_verdict_says_whether_the_corollary_holds(share, words):
    assert words in made(share_explained=share).verdict


@pytest.mark.parametrize(
    ("sign", "words"), [(1, "better, as the paper claims"), (-1, "worse, against"), (0, "is not seen")]
)
def test_verdict_tests_the_claim(sign, words):
    size = np.linspace(0.1, 1, 40)
    share = (
        0.05 + 0.04 * sign * size if sign else np.tile([0.01, 0.03, 0.02, 0.04, 0.03, 0.01, 0.04, 0.02], 5)
    )
    assert words in made(mixed_size=size, share_explained=share).verdict


def test_few_heads_do_not_test_the_claim():
    found = made(heads=2)
    assert np.isnan(found.correlation.estimate)
    assert "too few heads" in found.verdict
    assert "in the one head:" in made(heads=1).verdict


def test_verdict_counts_regular_heads_and_names_an_unknown_mean():
    exponents = {"holder_mixed": np.linspace(-1, 1, 40), "holder_query": 0.3, "holder_key": 0.2}
    text = made(**exponents, mean=np.nan).verdict
    assert "20 of 40 heads are as regular as theorem 1 asks" in text
    assert "the mean is not known" in text
    assert "constant in every head" in made(share_explained=np.nan).verdict


def test_residuals_as_large_as_the_field_are_named():
    assert made().warnings == ()
    (warning,) = made(residual=np.r_[np.ones(7), np.full(33, 0.2)]).warnings
    assert warning.name == "paraproduct-residual-as-large-as-the-field"
    assert "7 heads (0.0, 0.1, 0.2, 0.3, 0.4 and others)" in warning.message


def test_examples_are_worst_median_and_best():
    residual = np.r_[np.nan, np.arange(1, 40)] / 50
    assert made(residual=residual).examples() == ((4, 7), (2, 4), (0, 1))
    assert made(heads=1).examples() == ((0, 0),)


def test_frame_has_one_row_a_head(study):
    frame = study.to_frame()
    assert list(frame.columns) == ["layer", "head", *MEASURES]
    assert len(frame) == 8
    np.testing.assert_array_equal(frame["residual"], study.of_heads("residual"))


def test_the_mean_is_not_known_from_probabilities():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(9), size=(9, 2)).swapaxes(1, 2)
    found = hs.softmax_invariance(hs.NetworkTensor(p, field="probs"), n_iter=1)
    assert np.isnan(found.measures["mean"]).all()
    assert np.isfinite(found.measures["residual"]).all()


def test_chosen_heads_and_progress():
    told = []
    x = np.random.default_rng(0).normal(size=(8, 8, 4))
    found = hs.softmax_invariance(x, heads=[(0, 2)], n_iter=1, progress=lambda *words: told.append(words))
    assert found.heads == ((0, 2),)
    assert told[-1][1] == told[-1][2]
    with pytest.raises(hs.HeadscapeError, match="windows must be from 1 to 1, but is 0"):
        hs.softmax_invariance(x, windows=0)
    with pytest.raises(hs.HeadscapeError, match="name must be one of residual"):
        found.of_heads("entropy")
