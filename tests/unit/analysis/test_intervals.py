import numpy as np
import pytest

import headscape as hs
from headscape.analysis.intervals import Interval, bootstrap_crossed, bootstrap_means, bootstrap_pairs

# Samples with mean 2 and standard deviation 1, of growing skewness.
SAMPLES = {
    "normal": lambda rng, *shape: 2 + rng.standard_normal(shape),
    "gamma": lambda rng, *shape: rng.gamma(4.0, 0.5, size=shape),
    "exponential": lambda rng, *shape: 1 + rng.exponential(size=shape),
}


def ratio(rows):
    return float(rows[:, 0].mean() / rows[:, 1].mean())


@pytest.mark.parametrize("kind", SAMPLES)
def test_means_of_six_units_are_covered(kind):
    samples = SAMPLES[kind](np.random.default_rng(0), 6, 4000)
    _, low, high = bootstrap_means(samples, n_resamples=1000)
    assert 0.92 <= ((low <= 2) & (high >= 2)).mean() <= 0.97


@pytest.mark.parametrize("kind", ["normal", "gamma"])
def test_ratios_of_six_units_are_covered(kind):
    pairs = SAMPLES[kind](np.random.default_rng(0), 2000, 6, 2) + 2
    found = [1.0 in hs.bootstrap(rows, ratio, n_resamples=1000) for rows in pairs]
    assert 0.92 <= np.mean(found) <= 0.97


@pytest.mark.parametrize("kind", ["normal", "gamma"])
def test_pairs_of_six_units_are_covered(kind):
    """Of v_ij = a_i a_j with independent a the mean is that of a, squared."""
    units = SAMPLES[kind](np.random.default_rng(0), 2000, 6) + 2
    found = [16.0 in bootstrap_pairs(np.outer(a, a), n_resamples=1000) for a in units]
    assert 0.92 <= np.mean(found) <= 0.97


@pytest.mark.parametrize("kind", ["normal", "gamma"])
@pytest.mark.parametrize("rows", [3, 10])
def test_tables_of_six_columns_are_covered(kind, rows):
    rng, draw = np.random.default_rng(0), SAMPLES[kind]
    tables = draw(rng, 800, rows, 1) + draw(rng, 800, 1, 6) + 0.3 * draw(rng, 800, rows, 6)
    found = [4.6 in bootstrap_crossed(table, n_resamples=500) for table in tables]
    assert 0.92 <= np.mean(found) <= 0.985


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_than_four_units_have_no_interval(n):
    values = np.arange(float(n))
    for found in (
        hs.bootstrap(values),
        hs.bootstrap(values, np.median),
        bootstrap_pairs(np.ones((n, n))),
        bootstrap_crossed(np.ones((5, n))),
    ):
        assert not found.has_bounds
        assert "no interval" in str(found)
    mean, low, high = bootstrap_means(np.stack([values, values], axis=1))
    assert mean.tolist() == [values.mean()] * 2
    assert np.isnan([*low, *high]).all()
    assert hs.bootstrap(values).estimate == values.mean()


def test_interval_of_a_mean_has_the_width_that_theory_gives():
    values = np.random.default_rng(0).standard_normal(400)
    interval = hs.bootstrap(values)
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


@pytest.mark.parametrize("n", [8, 50])
def test_any_statistic(n):
    values = np.random.default_rng(0).standard_normal((n, 3))
    interval = hs.bootstrap(values, lambda a: float(np.median(a[:, 1])))
    assert interval.estimate == np.median(values[:, 1])
    assert interval.estimate in interval


def test_a_mean_is_a_statistic_like_any_other():
    values = np.random.default_rng(0).standard_normal(9)
    plain, called = hs.bootstrap(values), hs.bootstrap(values, lambda a: float(a.mean()))
    assert (called.low, called.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


def test_bounds_stay_within_the_range_of_the_statistic():
    values = np.array([0.9, 1.0, 1.0, 1.0, 0.2])
    assert hs.bootstrap(values).high > 1
    assert hs.bootstrap(values, within=(0.0, 1.0)).high == 1


def test_equal_units_have_an_interval_without_width():
    found = hs.bootstrap(np.full(6, 0.3))
    assert (found.low, found.high) == (pytest.approx(0.3), pytest.approx(0.3))


def test_one_value_apart_does_not_make_the_interval_endless():
    found = hs.bootstrap([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    assert -1 < found.low < 0 < 0.5 < found.high < 3


def test_the_seed_decides():
    values = np.arange(10.0)
    assert hs.bootstrap(values, seed=3) == hs.bootstrap(values, seed=3)
    assert hs.bootstrap(values, seed=3) != hs.bootstrap(values, seed=4)


def test_higher_level_is_wider():
    values = np.arange(20.0)
    wide, narrow = hs.bootstrap(values, level=0.99), hs.bootstrap(values, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_columns_share_draws_and_match_single_means():
    values = np.random.default_rng(0).standard_normal((12, 4))
    mean, low, high = bootstrap_means(values)
    np.testing.assert_allclose(mean, values.mean(axis=0))
    one = hs.bootstrap(values[:, 2])
    assert (low[2], high[2]) == (pytest.approx(one.low), pytest.approx(one.high))


def test_pairs_leave_out_a_unit_with_itself():
    values = np.full((5, 5), 0.3)
    np.fill_diagonal(values, 1.0)
    interval = bootstrap_pairs(values)
    np.testing.assert_allclose([interval.estimate, interval.low, interval.high], 0.3)


def test_pair_mean_is_over_pairs():
    values = np.array([[1.0, 0.1, 0.2], [0.1, 1.0, 0.6], [0.2, 0.6, 1.0]])
    assert bootstrap_pairs(values).estimate == pytest.approx(0.3)
    assert np.isnan(bootstrap_pairs([[1.0]]).estimate)


def test_a_table_of_one_row_is_a_plain_sample():
    values = np.random.default_rng(0).standard_normal(15)
    found = bootstrap_crossed(values[None], seed=0)
    mean, low, high = bootstrap_means(values[:, None], seed=1)
    np.testing.assert_allclose([found.estimate, found.low, found.high], [mean[0], low[0], high[0]])


def test_the_width_for_a_table_is_that_of_rows_and_columns_together():
    rng = np.random.default_rng(0)
    rows, columns = rng.standard_normal((40, 1)), rng.standard_normal((1, 50))
    found = bootstrap_crossed(rows + columns, n_resamples=4000)
    error = np.sqrt(rows.var() / 40 + columns.var() / 50)
    assert found.estimate == pytest.approx((rows + columns).mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    # Drawing windows alone would miss that other random orders would have come out otherwise.
    widths = [(i := bootstrap_crossed(scale * rows + columns)).high - i.low for scale in (0.0, 0.5, 1.0, 3.0)]
    assert widths == sorted(widths)
    alone = hs.bootstrap(columns[0])
    assert widths[0] == pytest.approx(alone.high - alone.low, rel=0.1)


def test_intervals_in_words():
    assert str(Interval(0.871, 0.8, 0.93)) == "0.871 [0.8, 0.93]"
    assert 0.85 in Interval(0.871, 0.8, 0.93)
    assert 0.871 not in Interval(0.871, np.nan, np.nan)


def test_bad_input_is_refused():
    with pytest.raises(hs.HeadscapeError, match="at least one unit"):
        hs.bootstrap([])
    with pytest.raises(hs.HeadscapeError, match="level must be between 0 and 1, but is 95"):
        hs.bootstrap([1.0, 2.0], level=95)
    with pytest.raises(hs.HeadscapeError, match="square"):
        bootstrap_pairs(np.ones((2, 3)))
    with pytest.raises(hs.HeadscapeError, match=r"\(row unit, column unit\) array, but its shape is \(3,\)"):
        bootstrap_crossed([1.0, 2.0, 3.0])
