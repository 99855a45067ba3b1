"""Differences against the spread between windows: the level holds, planted differences are found, nothing is not."""

from math import comb

import numpy as np
import pytest

from headscape.analysis.comparison.window_test import Block, unit_weights, window_test
from headscape.errors import InputError


def drawn(rng, windows=6, rows=8, features=3):
    return rng.normal(size=(windows, rows, features))


def by_row_and_layer(a, b):
    """Return a block whose units are all rows, two layers of four rows, and every row."""
    units = np.vstack([unit_weights([range(8), range(4), range(4, 8)], 8), np.eye(8)])
    return Block(a, b, units, ["network", "layer", "layer", *["head"] * 8])


def test_the_level_holds_over_all_measures_and_units_together():
    rng = np.random.default_rng(0)
    alarms = 0
    for seed in range(200):
        blocks = {name: by_row_and_layer(drawn(rng), drawn(rng)) for name in ("x", "y")}
        found = window_test(blocks, paired=False, level=0.05, seed=seed)
        alarms += any(found.changed(name).any() for name in blocks)
    # Binomial with p = 0.05: more than 18 of 200 happens once in a hundred times.
    assert alarms <= 18


def test_p_values_of_other_windows_are_those_of_all_exchanges():
    rng = np.random.default_rng(1)
    found = window_test({"x": by_row_and_layer(drawn(rng), drawn(rng) + 9)}, paired=False)
    assert (found.splits, found.exact) == (comb(12, 6) // 2, True)
    np.testing.assert_allclose(found.p["x"], 1 / 462)
    assert found.changed("x").all()


@pytest.mark.parametrize("paired", [True, False])
def test_a_planted_row_is_found_with_its_layer_and_no_other(paired):
    rng = np.random.default_rng(2)
    a, b = drawn(rng), drawn(rng)
    if paired:
        b = a.copy()
    b[:, 5] += 6
    changed = window_test({"x": by_row_and_layer(a, b)}, paired=paired).changed("x")
    assert changed[3:].tolist() == [False] * 5 + [True] + [False] * 2
    assert changed[1:3].tolist() == [False, True]


def test_the_same_windows_are_zero_and_a_difference_without_noise_is_infinite():
    rng = np.random.default_rng(3)
    a = drawn(rng)
    same = window_test({"x": by_row_and_layer(a, a)}, paired=True)
    assert set(same.times_noise["x"]) == {0.0}
    flat = np.zeros_like(a)
    apart = window_test({"x": by_row_and_layer(flat, flat + 1)}, paired=True)
    assert np.isinf(apart.times_noise["x"]).all()


def test_the_size_follows_from_the_formula():
    rng = np.random.default_rng(4)
    a, b = drawn(rng, windows=5, rows=1, features=2), drawn(rng, windows=7, rows=1, features=2)
    variance = (4 * a.var(axis=0, ddof=1) + 6 * b.var(axis=0, ddof=1)) / 10
    squared = (a.mean(axis=0) - b.mean(axis=0)) ** 2 / (0.5 * (variance + variance.mean()) * (1 / 5 + 1 / 7))
    found = window_test({"x": Block(a, b, np.ones((1, 1)))}, paired=False)
    assert found.size["x"][0] == pytest.approx(np.sqrt(squared.mean()))


def test_too_few_windows_and_bad_levels_are_refused():
    rng = np.random.default_rng(5)
    block = {"x": by_row_and_layer(drawn(rng, windows=1), drawn(rng, windows=1))}
    with pytest.raises(InputError, match="2 windows of each"):
        window_test(block, paired=False)
    with pytest.raises(InputError, match="level"):
        window_test(block, paired=False, level=0)
    uneven = {"x": by_row_and_layer(drawn(rng), drawn(rng)), "y": by_row_and_layer(drawn(rng, 5), drawn(rng))}
    with pytest.raises(InputError, match="same windows"):
        window_test(uneven, paired=False)
