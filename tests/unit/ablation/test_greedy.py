"""Greedy removal against brute force, what a layer can lose, and the price of a head from its definition."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscape.ablation.activations import LayerSignals
from headscape.ablation.greedy import ScorePrices, greedy_removal, removable_units, single_heads
from headscape.ablation.scores.reconstruction import RIDGE, ReconstructionPrices
from headscape.models.anatomy import AttentionModule
from headscape.models.projection import Projection
from headscape.pruning.plan import removable

SHAPES = [(6, 6), (6, 2), (6, 3), (8, 4), (6, 1), (4, 2)]


def layers(count, n_heads=4, n_kv_heads=4):
    return [AttentionModule(None, f"layer{i}", "self", i, n_heads, n_kv_heads, 8) for i in range(count)]


class Pairwise:
    """Prices with interactions: two heads that stand in for each other cost more together."""

    def __init__(self, rng, n_heads):
        self.alone = rng.random(n_heads)
        self.together = rng.random((n_heads, n_heads))

    def price(self, gone):
        pairs = combinations(sorted(gone), 2)
        return float(self.alone[list(gone)].sum() + sum(self.together[pair] for pair in pairs))


def pairs_of(steps):
    return [(step.layer, head) for step in steps for head in step.heads]


@pytest.mark.parametrize("count", [1, 5, 12])
def test_prices_that_add_up_are_taken_in_their_order_and_are_the_cheapest_set(count):
    scores = np.random.default_rng(0).random((3, 4))
    sites = layers(3)
    steps = greedy_removal(sites, {i: ScorePrices(scores[i]) for i in range(3)}, single_heads, count)
    flat = np.argsort(scores.ravel())[:count]
    assert pairs_of(steps) == [divmod(int(i), 4) for i in flat]
    assert sum(step.price for step in steps) == pytest.approx(
        min(sum(chosen) for chosen in combinations(scores.ravel(), count))
    )


@pytest.mark.parametrize("seed", range(3))
def test_prices_that_do_not_add_up_are_asked_for_again_after_every_step(seed):
    rng = np.random.default_rng(seed)
    prices = {i: Pairwise(rng, 4) for i in range(3)}
    steps = greedy_removal(layers(3), prices, single_heads, 9)
    gone = {i: [] for i in range(3)}
    for step in steps:
        options = {
            (layer, head): prices[layer].price([*gone[layer], head]) - prices[layer].price(gone[layer])
            for layer in gone
            for head in range(4)
            if head not in gone[layer]
        }
        cheapest = min(options, key=options.get)
        assert (step.layer, *step.heads) == cheapest
        assert step.price == pytest.approx(options[cheapest])
        gone[step.layer].append(step.heads[0])
    assert len(steps) == 9


def test_the_price_of_a_move_is_shared_by_its_heads():
    # A group of three for 3.0 is cheaper per head than one of each of two groups for 2.2.
    scores = np.array([1.0, 1.0, 1.0, 1.2, 2.0, 2.0])
    [first] = greedy_removal(layers(1, 6, 2), {0: ScorePrices(scores)}, removable_units, 3)
    assert (first.heads, first.price) == ((0, 1, 2), 3.0)
    # With room for two only, the group does not fit.
    [first] = greedy_removal(layers(1, 6, 2), {0: ScorePrices(scores)}, removable_units, 2)
    assert first.heads == (0, 3)


def test_progress_is_told():
    told = []
    prices = {0: ScorePrices(np.arange(4.0))}
    greedy_removal(layers(1), prices, single_heads, 2, lambda *said: told.append(said))
    assert told == [("choosing heads", 1, 2), ("choosing heads", 2, 2)]


@given(shape=st.sampled_from(SHAPES), count=st.integers(0, 16), seed=st.integers(0, 2**16))
def test_every_prefix_can_be_cut_out_and_no_layer_is_emptied(shape, count, seed):
    n_heads, n_kv_heads = shape
    rng = np.random.default_rng(seed)
    sites = layers(2, n_heads, n_kv_heads)
    steps = greedy_removal(sites, {i: Pairwise(rng, n_heads) for i in range(2)}, removable_units, count)
    gone = {0: [], 1: []}
    for step in steps:
        assert not set(step.heads) & set(gone[step.layer])
        gone[step.layer] += step.heads
        assert set(removable(gone[step.layer], n_heads, n_kv_heads)) == set(gone[step.layer])
        assert len(gone[step.layer]) < n_heads
    taken = sum(map(len, gone.values()))
    assert taken <= count
    if n_kv_heads in (1, n_heads):  # every number of heads can go
        assert taken == min(count, 2 * (n_heads - 1))


@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**16))
def test_as_much_as_can_go_goes(shape, seed):
    n_heads, n_kv_heads = shape
    prices = {0: Pairwise(np.random.default_rng(seed), n_heads)}
    steps = greedy_removal(layers(1, n_heads, n_kv_heads), prices, removable_units, n_heads)
    assert len(pairs_of(steps)) == n_heads - 1


def test_one_of_each_group_is_the_cheapest_of_each():
    scores = ScorePrices(np.array([0.9, 0.1, 0.5, 0.4, 0.8, 0.7]))
    assert removable_units(layers(1, 6, 2)[0], frozenset(), scores) == [(0, 1, 2), (3, 4, 5), (1, 3)]
    assert removable_units(layers(1, 6, 2)[0], frozenset({1, 3}), scores) == [(0, 2), (4, 5), (2, 5)]
    assert removable_units(layers(1, 6, 2)[0], frozenset({0, 1, 2, 3}), scores) == [(5,)]
    assert removable_units(layers(1, 6, 2)[0], frozenset({0, 1, 2, 3, 5}), scores) == []


@pytest.fixture(scope="module")
def signals():
    """Activations of four heads of dimension 3 that depend on each other, and gradients, for 50 tokens."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(50, 12)) @ (np.eye(12) + 0.4 * rng.normal(size=(12, 12)))
    g, w = rng.normal(size=(50, 7)), rng.normal(size=(7, 12))
    return a, g, w


def prices_of(a, g, w):
    module = torch.nn.Linear(12, 7, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(w))
    half = len(a) // 2
    parts = [[torch.from_numpy(x[:half]).float(), torch.from_numpy(x[half:]).float()] for x in (a, g)]
    return ReconstructionPrices(LayerSignals(*parts), Projection(module, 4))


@pytest.mark.parametrize("gone", [[0], [2, 1], [0, 1, 3], [0, 1, 2, 3]])
def test_the_price_of_heads_from_its_definition(signals, gone):
    a, g, w = signals
    kept = [c for c in range(12) if c // 3 not in gone]
    # Re-fit towards the weights that are there: ordinary least squares with one more row per unknown.
    weight = np.sqrt(RIDGE * np.mean(np.sum(a**2, axis=0)))
    rows = np.vstack([a[:, kept], weight * np.eye(len(kept))])
    wanted = np.vstack([a @ w.T, weight * w[:, kept].T])
    fitted = np.linalg.lstsq(rows, wanted)[0].T if kept else np.zeros((7, 0))
    change = a @ w.T - a[:, kept] @ fitted.T
    price = np.sum(np.sum(g * change, axis=1) ** 2)
    assert prices_of(a, g, w).price(gone) == pytest.approx(price, rel=1e-4)


def test_heads_that_others_predict_are_free(signals):
    a, g, w = signals
    a = a.copy()
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    a[:, 3:6] = a[:, :3] @ rotation
    prices = prices_of(a, g, w)
    least = prices.price([2])
    assert prices.price([1]) < 1e-4 * least
    assert prices.price([0]) < 1e-4 * least
    assert prices.price([0, 1]) > 0.1 * least


def test_changes_that_the_loss_does_not_feel_are_free(signals):
    a, g, w = signals
    g = g - (g @ w[:, 6:9]) @ np.linalg.pinv(w[:, 6:9])  # no gradient along what head 2 writes
    assert prices_of(a, g, w).price([2]) == pytest.approx(0.0, abs=1e-6)
