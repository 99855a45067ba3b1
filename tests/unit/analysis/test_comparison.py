"""Pairs of heads, effect sizes, tree shapes and maps of networks against slow loops and known cases."""

from itertools import permutations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from headscape.analysis.comparison.assignment import assigned_heads, cross_emd
from headscape.analysis.comparison.effects import cliffs_delta, effect_over_windows
from headscape.analysis.comparison.network_map import network_map
from headscape.analysis.comparison.tree_shape import tree_shape
from headscape.errors import InputError
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Questionnaire
from headscape.geometry.tree_emd import tree_emd


def test_the_assignment_has_the_smallest_sum_of_all():
    costs = np.random.default_rng(0).random((5, 5))
    found = assigned_heads(costs)
    best = min(permutations(range(5)), key=lambda order: costs[range(5), order].sum())
    assert found.columns.tolist() == list(best)
    np.testing.assert_allclose(found.cost, costs[range(5), best])
    with pytest.raises(InputError, match="array of numbers"):
        assigned_heads([[np.nan]])


def test_distances_between_two_networks_are_those_of_one_network_with_all_heads():
    rng = np.random.default_rng(1)
    a, b = rng.random((12, 12, 5)), rng.random((12, 12, 4))
    trees = Questionnaire(n_iter=1).fit(a).trees_
    both = tree_emd(np.concatenate([a, b], axis=2), trees, "head")
    np.testing.assert_allclose(cross_emd(a, b, trees), both[:5, 5:])
    with pytest.raises(InputError, match="same queries and keys"):
        cross_emd(a, b[:10], trees)


def test_cliffs_delta_counts_pairs():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 6, 15), rng.integers(1, 7, 11)
    expected = np.mean([np.sign(y - x) for x in a for y in b])
    assert cliffs_delta(a, b) == pytest.approx(expected)


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_of_an_effect_holds_the_effect_of_all_windows(paired):
    """Two networks whose heads differ by a known shift: 95 % intervals hold delta at least nine times in ten."""
    rng = np.random.default_rng(3)
    heads = rng.normal(size=20)
    truth = cliffs_delta(heads, heads + 0.7)
    held = 0
    for _ in range(100):
        shared = rng.normal(size=(8, 20))
        noise = (shared, shared) if paired else (shared, rng.normal(size=(8, 20)))
        a, b = heads + 0.5 * noise[0], heads + 0.7 + 0.5 * noise[1]
        found = effect_over_windows(a, b, paired=paired)
        held += found.low <= truth <= found.high
    assert held >= 90
    assert np.isnan(effect_over_windows(a[:3], b[:3], paired=paired).low)


def test_points_of_the_plane_are_placed_at_their_distances():
    points = np.random.default_rng(4).normal(size=(6, 2))
    placed = network_map(cdist(points, points))
    np.testing.assert_allclose(cdist(placed, placed), cdist(points, points), atol=1e-9)
    np.testing.assert_allclose(network_map([[0.0, 2.0], [2.0, 0.0]])[:, 1], 0)


def test_shapes_of_trees():
    uneven = tree_shape(PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1, 2], [3]], [[0], [1], [2], [3]]]))
    assert (uneven["depth"], uneven["folders"], uneven["first_folders"]) == (2, 1, 2)
    assert uneven["largest_share"] == 0.75
    assert uneven["balance"] == pytest.approx(-(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)))
