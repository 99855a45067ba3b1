"""The leaf order against all orders that the flips of a binary tree allow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import average
from scipy.spatial.distance import squareform

import headscape as hs
from headscape.geometry.leaf_order import optimal_leaf_order, ordered_leaves


def random_joints(n, rng):
    """Join random parts until one is left."""
    parts, joints = list(range(n)), []
    while len(parts) > 1:
        a, b = (parts.pop(int(rng.integers(len(parts)))) for _ in range(2))
        joints.append((a, b))
        parts.append(n + len(joints) - 1)
    return np.array(joints)


def all_orders(joints, part):
    n = len(joints) + 1
    if part < n:
        return {(part,)}
    a, b = (all_orders(joints, int(side)) for side in joints[part - n])
    return {order for first in a for second in b for order in (first + second, second + first)}


def length(order, distance):
    return distance[list(order[:-1]), list(order[1:])].sum()


def distances(n, rng, ties):
    d = rng.integers(0, 4, (n, n)).astype(float) if ties else rng.random((n, n))
    return np.triu(d, 1) + np.triu(d, 1).T


@given(st.integers(2, 8), st.integers(0, 2**32 - 1), st.booleans())
def test_no_flip_gives_a_shorter_path(n, seed, ties):
    rng = np.random.default_rng(seed)
    joints, d = random_joints(n, rng), distances(n, rng, ties)
    possible = all_orders(joints, 2 * n - 2)
    found = optimal_leaf_order(joints, d)
    assert tuple(found.tolist()) in possible
    assert length(found, d) == pytest.approx(min(length(order, d) for order in possible), rel=1e-9)


@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_the_compiled_order_is_the_same_to_the_last_leaf(n, seed, ties):
    rng = np.random.default_rng(seed)
    joints, d = random_joints(n, rng), distances(n, rng, ties)
    with pytest.MonkeyPatch.context() as patch:
        orders = []
        for loaded in (False, True):
            patch.setattr("headscape.geometry.leaf_order.kernels_are_loaded", lambda loaded=loaded: loaded)
            orders.append(optimal_leaf_order(joints, d).tolist())
    assert orders[0] == orders[1]


def test_long_thin_trees_and_broad_ones_need_no_recursion():
    n = 1500
    chain = np.array([(0, 1), *((i, n + i - 2) for i in range(2, n))])
    places = np.random.default_rng(0).random(n)
    found = optimal_leaf_order(chain, np.abs(places[:, None] - places))
    assert sorted(found) == list(range(n))


def test_loop_over_slices_equals_one_array_of_all_sums(monkeypatch):
    rng = np.random.default_rng(1)
    d = distances(40, rng, ties=False)
    joints = average(squareform(d))[:, :2].astype(int)
    whole = optimal_leaf_order(joints, d)
    monkeypatch.setattr("headscape.geometry.leaf_order._AT_ONCE", 0)
    np.testing.assert_array_equal(optimal_leaf_order(joints, d), whole)


@given(st.integers(0, 2**32 - 1))
def test_folders_of_two_children_are_ordered_optimally(seed):
    """A partition tree that is binary already keeps its joints."""
    rng = np.random.default_rng(seed)
    tree = hs.PartitionTree.from_levels(
        [[range(8)], [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1], [2, 3], [4, 5], [6, 7]], [[i] for i in range(8)]]
    )
    joints = np.array([(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13)])
    d = distances(8, rng, ties=False)
    found = ordered_leaves(tree, d, np.arange(8.0)[:, None]).order
    assert length(found, d) == pytest.approx(min(length(order, d) for order in all_orders(joints, 14)))
