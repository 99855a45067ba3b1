import numpy as np
import pytest
from scipy.special import log_softmax as scipy_log_softmax

import headscape as hs
from headscape.analysis.log_softmax import as_visibility, filled_logits, log_softmax


def test_agrees_with_scipy_without_a_mask():
    f = np.random.default_rng(0).normal(size=(5, 9)) * 400
    np.testing.assert_allclose(log_softmax(f), scipy_log_softmax(f, axis=1), rtol=1e-13)


def test_visible_probabilities_sum_to_one_and_the_rest_is_the_row_mean():
    f = np.random.default_rng(0).normal(size=(6, 6)) * 50
    visible = np.tri(6, dtype=bool)
    g = log_softmax(np.where(visible, f, np.nan), visible)
    for i in range(6):
        np.testing.assert_allclose(g[i, : i + 1], scipy_log_softmax(f[i, : i + 1]), atol=1e-12)
        np.testing.assert_allclose(g[i, i + 1 :], g[i, : i + 1].mean(), atol=1e-12)


def test_a_sink_takes_its_share():
    g = log_softmax(np.zeros((2, 3)), sink=np.log(2.0))
    np.testing.assert_allclose(np.exp(g), 1 / 5)
    high = log_softmax(np.full((1, 2), -900.0), sink=0.0)
    np.testing.assert_allclose(high, -900)


def test_rows_that_see_nothing_get_the_mean_of_all():
    visible = np.array([[True, True], [False, False]])
    np.testing.assert_array_equal(filled_logits(np.array([[1.0, 3.0], [7.0, 9.0]]), visible)[1], [2.0, 2.0])
    assert np.isfinite(log_softmax(np.array([[1.0, 3.0], [7.0, 9.0]]), visible)).all()


def test_input_is_not_changed():
    f = np.arange(6.0).reshape(2, 3)
    filled_logits(f)[:] = 0
    assert f.sum() == 15


def test_all_visible_is_no_mask():
    assert as_visibility(np.ones((2, 2), dtype=bool), (2, 2)) is None


def test_visible_entries_must_be_finite():
    with pytest.raises(hs.HeadscapeError, match="where visible"):
        filled_logits(np.array([[np.inf, 0.0]]), np.array([[True, False]]))
