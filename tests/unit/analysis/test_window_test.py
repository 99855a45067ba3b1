"""Differences against the spread between windows: the level holds, planted differences are found, nothing is not."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from headscape.analysis.comparison.window_test import EVERYTHING, Block, unit_weights, window_test
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
        alarms += any(found.changed(name).any() for name in (*blocks, EVERYTHING))
    # Binomial with p = 0.05: more than 18 of 200 happens once in a hundred times.
    assert alarms <= 18


def test_p_values_of_other_windows_are_those_of_all_exchanges():
    rng = np.random.default_rng(1)
    found = window_test({"x": by_row_and_layer(drawn(rng), drawn(rng) + 9)}, paired=False)
    assert (found.splits, found.exact) == (comb(12, 6) // 2, True)
    # Half of the level is for all measures together, half for the units.
    np.testing.assert_allclose(found.p["x"], 2 / 462)
    np.testing.assert_allclose(found.p[EVERYTHING], 2 / 462)
    assert found.changed("x").all()


def test_many_small_differences_are_seen_by_all_measures_together():
    """Every measure is shifted by little: together they are certain far more often than any single one."""
    rng = np.random.default_rng(7)
    single = together = 0
    for seed in range(20):
        shifted = {
            f"m{i}": (drawn(rng, rows=1, features=1), drawn(rng, rows=1, features=1) + 1.2) for i in range(12)
        }
        blocks = {name: Block(a, b, np.ones((1, 1))) for name, (a, b) in shifted.items()}
        found = window_test(blocks, paired=False, seed=seed)
        single += any(found.changed(name).any() for name in blocks)
        together += bool(found.changed(EVERYTHING)[0])
    assert together >= 18
    assert single <= 12


def test_the_size_of_everything_follows_from_the_formula():
    rng = np.random.default_rng(8)
    blocks = {name: Block(drawn(rng, 5, 1, 1), drawn(rng, 5, 1, 1), np.ones((1, 1))) for name in ("x", "y")}
    found = window_test(blocks, paired=False)
    ratios = []
    for block in blocks.values():
        windows = np.concatenate([block.a, block.b])
        sizes = []
        for group in combinations(range(10), 5):
            rest = [i for i in range(10) if i not in group]
            one = Block(windows[list(group)], windows[rest], np.ones((1, 1)))
            sizes.append(window_test({"x": one}, paired=False).size["x"][0] if 0 in group else np.nan)
        ratios.append(sizes[0] / np.sqrt(np.nanmean(np.square(sizes))))
    assert found.size[EVERYTHING][0] == pytest.approx(np.sqrt(np.mean(np.square(ratios))))


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
