import numpy as np
import pytest

import headscape as hs
from headscape.analysis.intervals import bootstrap_crossed, bootstrap_means, bootstrap_pairs


def test_interval_of_a_mean_has_the_width_that_theory_gives():
    values = np.random.default_rng(0).standard_normal(400)
    interval = hs.bootstrap(values)
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_coverage_of_many_intervals():
    rng = np.random.default_rng(1)
    samples = rng.standard_normal((30, 500))
    _, low, high = bootstrap_means(samples, n_resamples=500)
    covered = ((low < 0) & (high > 0)).mean()
    assert 0.9 < covered < 0.97


def test_any_statistic():
    values = np.random.default_rng(0).standard_normal((50, 3))
    interval = hs.bootstrap(values, lambda a: float(np.median(a[:, 1])))
    assert interval.estimate == np.median(values[:, 1])
    assert interval.estimate in interval


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
    one = hs.bootstrap(values[:, 2], n_resamples=4000)
    assert low[2] == pytest.approx(one.low, abs=0.1)
    assert high[2] == pytest.approx(one.high, abs=0.1)


def test_pairs_leave_out_a_unit_with_itself():
    values = np.full((5, 5), 0.3)
    np.fill_diagonal(values, 1.0)
    interval = bootstrap_pairs(values)
    np.testing.assert_allclose([interval.estimate, interval.low, interval.high], 0.3)


def test_pair_mean_is_over_pairs():
    values = np.array([[1.0, 0.1, 0.2], [0.1, 1.0, 0.6], [0.2, 0.6, 1.0]])
    assert bootstrap_pairs(values).estimate == pytest.approx(0.3)


def test_a_table_of_one_row_or_column_is_a_plain_sample():
    values = np.random.default_rng(0).standard_normal(15)
    for table, seed in ((values[None], 1), (values[:, None], 0)):
        found = bootstrap_crossed(table, seed=0)
        mean, low, high = bootstrap_means(values[:, None], seed=seed)
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


def test_coverage_of_tables():
    rng = np.random.default_rng(2)
    covered = []
    for _ in range(200):
        table = (
            rng.standard_normal((12, 1)) + rng.standard_normal((1, 12)) + 0.3 * rng.standard_normal((12, 12))
        )
        covered.append(0.0 in bootstrap_crossed(table, n_resamples=300))
    assert 0.88 < np.mean(covered) <= 0.98


def test_one_unit_has_no_interval():
    assert np.isnan(hs.bootstrap([2.0]).low)
    assert hs.bootstrap([2.0]).estimate == 2.0
    assert np.isnan(bootstrap_means([[1.0, 2.0]])[1]).all()
    assert np.isnan(bootstrap_pairs([[1.0]]).estimate)
    assert np.isnan(bootstrap_crossed([[1.0]]).low)
    assert bootstrap_crossed([[1.0]]).estimate == 1.0


def test_bad_input_is_refused():
    with pytest.raises(hs.HeadscapeError, match="at least one unit"):
        hs.bootstrap([])
    with pytest.raises(hs.HeadscapeError, match="level must be between 0 and 1, but is 95"):
        hs.bootstrap([1.0, 2.0], level=95)
    with pytest.raises(hs.HeadscapeError, match="square"):
        bootstrap_pairs(np.ones((2, 3)))
    with pytest.raises(hs.HeadscapeError, match=r"\(row unit, column unit\) array, but its shape is \(3,\)"):
        bootstrap_crossed([1.0, 2.0, 3.0])
