from itertools import permutations

import numpy as np
import pytest

from headscape.analysis.tree_agreement import (
    _mutual_information,
    adjusted_mutual_information,
    agreement_of_trees,
    label_agreement,
    level_agreement,
    rank_correlation_of_emds,
    steadiness,
)
from headscape.geometry.builders.linkage import linkage_tree
from headscape.geometry.partition_tree import PartitionTree

LEVELS = [[range(12)], [range(6), range(6, 12)], [[i] for i in range(12)]]


def entropy(labels):
    share = np.unique_counts(labels).counts / len(labels)
    return -(share * np.log(share)).sum()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([0, 0, 1, 1, 2, 2, 2], [0, 1, 1, 1, 0, 0, 0]),
        ([0, 0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 1, 1]),
        ([0, 1, 2, 3, 4, 5, 5], [0, 0, 1, 1, 2, 2, 3]),
    ],
)
def test_adjusted_mutual_information_is_its_definition_over_all_permutations(a, b):
    a, b = np.array(a), np.array(b)
    mean = np.mean([_mutual_information(a, b[list(order)]) for order in permutations(range(7))])
    wanted = (_mutual_information(a, b) - mean) / ((entropy(a) + entropy(b)) / 2 - mean)
    assert adjusted_mutual_information(a, b) == pytest.approx(wanted, abs=1e-12)


def test_adjusted_mutual_information_agrees_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, rng.integers(1, 30), (2, 200))
        wanted = metrics.adjusted_mutual_info_score(a, b)
        assert adjusted_mutual_information(a, b) == pytest.approx(wanted, abs=1e-9)


def test_adjusted_mutual_information_at_its_ends():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 9, 270)
    assert adjusted_mutual_information(labels, 7 - labels) == pytest.approx(1)
    assert adjusted_mutual_information(np.zeros(5), np.zeros(5)) == 1
    assert adjusted_mutual_information(np.arange(5), np.arange(5)) == 1
    assert adjusted_mutual_information(np.zeros(5), np.arange(5)) == 0
    chance = [adjusted_mutual_information(labels, rng.permutation(labels)) for _ in range(200)]
    assert abs(np.mean(chance)) < 0.005


def test_labels_that_follow_the_tree_stand_out_and_others_do_not():
    tree = PartitionTree.from_levels(LEVELS)
    (same,) = label_agreement(tree, ["a"] * 6 + ["b"] * 6)
    assert same["folders"] == 2
    assert same["ami"] == pytest.approx(1)
    assert same["shuffled"] < 0.5
    (other,) = label_agreement(tree, [0, 1] * 6)
    assert other["ami"] <= other["shuffled"]


def test_wiring_that_is_only_depth_is_no_wiring():
    """The tree is the layers; key-value heads lie inside layers and agree with it for that reason alone."""
    layers, groups = np.repeat(np.arange(4), 6), np.repeat(np.arange(8), 3)
    tree = PartitionTree(np.stack([np.zeros(24, dtype=int), layers, np.arange(24)]))
    (plain,) = label_agreement(tree, groups)
    (inside,) = label_agreement(tree, groups, within=layers)
    assert plain["ami"] > plain["shuffled"] + 0.3
    assert inside["ami"] == pytest.approx(inside["shuffled"])


def test_steadiness_falls_with_the_noise():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 2))
    emd = np.linalg.norm(points[:, None] - points, axis=2)
    rows = steadiness(emd, lambda e: linkage_tree(e, [2, 8]), (1e-9, 0.5), draws=5)
    assert [(row["noise"], row["folders"]) for row in rows] == [(1e-9, 2), (1e-9, 8), (0.5, 2), (0.5, 8)]
    assert rows[0]["ami"] == rows[1]["lowest"] == pytest.approx(1)
    assert rows[3]["ami"] < 0.8


def test_trees_agree_with_themselves():
    tree = PartitionTree.from_levels(LEVELS)
    assert level_agreement(tree, tree).tolist() == pytest.approx([1.0])
    assert agreement_of_trees(tree, [tree, tree]) == [{"folders": 2.0, "ami": pytest.approx(1.0)}]
    assert level_agreement(PartitionTree.trivial(3), PartitionTree.trivial(3)).tolist() == []


def test_rank_correlation_of_windows():
    places = np.random.default_rng(0).normal(size=8)
    emd = np.abs(np.subtract.outer(places, places))
    np.testing.assert_allclose(rank_correlation_of_emds([emd, emd**2, 3 * emd]), [1, 1, 1])
    assert rank_correlation_of_emds([emd]).size == 0
    assert rank_correlation_of_emds([np.zeros((1, 1))] * 2).size == 0
