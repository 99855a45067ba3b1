import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscape.analysis.redundancy import redundancy_order
from headscape.errors import InputError
from headscape.geometry.head_geometry import head_geometry
from headscape.geometry.partition_tree import PartitionTree
from samples import random_tree, trees


def distances(n, seed):
    """Generic distances of points in the plane."""
    points = np.random.default_rng(seed).normal(size=(n, 2))
    return np.linalg.norm(points[:, None] - points, axis=2)


@given(tree=trees(), seed=st.integers(0, 2**16))
def test_it_is_a_permutation(tree, seed):
    order = redundancy_order(distances(tree.n_points, seed), tree)
    assert sorted(order.tolist()) == list(range(tree.n_points))


@given(n=st.integers(3, 16), seed=st.integers(0, 2**16))
def test_points_may_be_numbered_otherwise(n, seed):
    rng = np.random.default_rng(seed)
    # Not symmetric, so that of two points in a folder one is the better representative, whatever its number.
    tree, emd = random_tree(n, rng), rng.random((n, n))
    new = rng.permutation(n)  # point i is called new[i]
    labels, moved = np.empty_like(tree.labels), np.empty_like(emd)
    labels[:, new], moved[np.ix_(new, new)] = tree.labels, emd
    renumbered = redundancy_order(moved, PartitionTree(labels))
    assert renumbered.tolist() == new[redundancy_order(emd, tree)].tolist()


def test_every_folder_is_emptied_down_to_its_median_before_the_next_level():
    tree = PartitionTree.from_levels(
        [[list(range(8))], [[0, 1, 2], [3, 4, 5, 6, 7]], [[i] for i in range(8)]]
    )
    places = np.array([0.0, 1.0, 2.5, 10.0, 10.4, 10.9, 13.0, 10.7])
    order = redundancy_order(np.abs(places[:, None] - places), tree).tolist()
    # 0.2, 0.3 and 0.7 away from 7, 1.0 and 1.5 away from 1, and 2.3 away from 7.
    assert order[:6] == [5, 4, 3, 0, 2, 6]
    assert set(order[6:]) == {1, 7}


def test_duplicates_go_first():
    emd = distances(8, seed=3) + 1.0 - np.eye(8)
    for a, b in ((1, 6), (2, 4)):
        emd[b], emd[:, b] = emd[a], emd[:, a]
        emd[a, b] = emd[b, a] = emd[b, b] = 0.0
    tree = PartitionTree.from_levels(
        [[list(range(8))], [[1, 6], [2, 4], [0, 3], [5, 7]], [[i] for i in range(8)]]
    )
    first, second, *_ = redundancy_order(emd, tree).tolist()
    assert {first, second} == {6, 4}


def test_the_tree_of_the_mean_distances_finds_duplicates():
    rng = np.random.default_rng(0)
    windows = []
    for scale in (1.0, 40.0, 0.01):  # windows count alike, whatever the size of their distances
        points = np.vstack([rng.normal(size=(3, 2)) * 0.1 + center for center in ([0, 0], [4, 0], [0, 5])])
        points[7] = points[6]
        windows.append(scale * np.linalg.norm(points[:, None] - points, axis=2))
    heads = head_geometry(windows)
    assert redundancy_order(heads.emd, heads.tree)[0] in (6, 7)
    assert [[0, 1, 2], [3, 4, 5], [6, 7, 8]] in [sorted(map(sorted, level)) for level in heads.tree.levels()]
    medians = [np.median(window) for window in windows]
    wanted = np.mean([window / median for window, median in zip(windows, medians, strict=True)], axis=0)
    np.testing.assert_allclose(heads.emd, wanted * np.mean(medians))


def test_heads_that_are_all_alike_are_still_ordered():
    heads = head_geometry([np.zeros((5, 5))])
    assert np.isfinite(heads.emd).all()
    assert sorted(redundancy_order(heads.emd, heads.tree).tolist()) == list(range(5))


def test_one_point():
    assert redundancy_order(np.zeros((1, 1)), PartitionTree.trivial(1)).tolist() == [0]


def test_distances_of_other_points():
    with pytest.raises(
        InputError, match=r"emd must be \(3, 3\) like the tree's points, but its shape is \(2, 2\)"
    ):
        redundancy_order(np.zeros((2, 2)), PartitionTree.trivial(3))
