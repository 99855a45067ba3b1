"""Which values stand out."""

import numpy as np

from headscape.energy.outliers import standing_out


def test_nothing_stands_out_of_ordinary_values():
    values = np.exp(np.random.default_rng(0).normal(0.4, 0.1, size=500))
    assert standing_out(values).sum() == 0


def test_both_sides_are_seen():
    values = np.r_[np.linspace(1.4, 1.7, 30), 40, 0.01]
    assert np.flatnonzero(standing_out(values)).tolist() == [30, 31]


def test_three_interquartile_ranges_are_the_rule():
    # Quartiles 1.47 and 1.74, as those of the key incoherence of a real model: 2.55 is the limit.
    values = np.r_[np.interp(np.linspace(0, 1, 1001), [0, 0.25, 0.75, 1], [1.2, 1.47, 1.74, 2.3]), 2.54, 2.67]
    assert np.flatnonzero(standing_out(values)).tolist() == [1002]
    assert np.flatnonzero(standing_out(values, distance=2.5)).tolist() == [1001, 1002]


def test_rounding_makes_no_outlier_and_nan_is_none():
    assert not standing_out([1.0, 1.0, 1.0, 1.0 + 1e-9, np.nan]).any()
    assert standing_out([1.0, 1.0, 1.0, 1.6]).tolist() == [False, False, False, True]
    assert not standing_out([np.nan]).any()
