"""Which values stand out."""

import numpy as np

from headscape.energy.outliers import standing_out


def test_nothing_stands_out_of_ordinary_values():
    values = np.exp(np.random.default_rng(0).normal(0.4, 0.1, size=500))
    assert standing_out(values).sum() == 0


def test_both_sides_are_seen():
    values = np.r_[np.linspace(1.4, 1.7, 30), 40, 0.01]
    assert np.flatnonzero(standing_out(values)).tolist() == [30, 31]


def test_little_more_than_equal_values_is_no_outlier_and_nan_is_none():
    assert not standing_out([1.0, 1.0, 1.0, 1.0 + 1e-9, np.nan, 1.4]).any()
    assert standing_out([1.0, 1.0, 1.0, 1.6]).tolist() == [False, False, False, True]
    assert not standing_out([np.nan]).any()
