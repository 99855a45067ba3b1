"""The Gromov-Wasserstein distance against POT, the definition, and geometries whose distance is known."""

from itertools import permutations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

pytest.importorskip("ot")

import ot

from headscape.analysis.comparison.gromov_wasserstein import (
    distortion,
    gromov_wasserstein,
    ordered_plan,
    profile_plan,
)
from headscape.errors import InputError


def distances(n, seed=0):
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return cdist(points, points)


@pytest.mark.parametrize(("n", "m"), [(12, 12), (9, 14)])
def test_from_the_same_start_it_is_the_distance_of_pot(n, m):
    a, b = distances(n), distances(m, seed=1)
    p, q = np.full(n, 1 / n), np.full(m, 1 / m)
    plan, log = ot.gromov.gromov_wasserstein(a, b, p, q, "square_loss", log=True)
    ours = gromov_wasserstein(a, b, start=np.outer(p, q), one_start=True)
    np.testing.assert_allclose(ours.plan, plan, atol=1e-12)
    assert ours.distance == pytest.approx(np.sqrt(log["gw_dist"]), rel=1e-9)
    # Further starts can only lower it.
    assert gromov_wasserstein(a, b, start=np.outer(p, q)).distance <= ours.distance


def test_the_distance_is_that_of_its_plan_by_the_definition():
    a, b = distances(5), distances(7, seed=1)
    found = gromov_wasserstein(a, b)
    total = sum(
        (a[i, k] - b[j, m]) ** 2 * found.plan[i, j] * found.plan[k, m]
        for i in range(5)
        for j in range(7)
        for k in range(5)
        for m in range(7)
    )
    assert found.distance == pytest.approx(np.sqrt(total))
    np.testing.assert_allclose(found.plan.sum(axis=1), 1 / 5)
    np.testing.assert_allclose(found.plan.sum(axis=0), 1 / 7)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_never_below_the_best_permutation_of_small_geometries(seed):
    """Euclidean distances are conditionally negative definite, so that a permutation is among the best plans."""
    a, b = distances(5, seed), distances(5, seed + 100)
    best = min(distortion(a, b[np.ix_(order, order)]) for order in permutations(range(5)))
    found = gromov_wasserstein(a, b).distance
    assert best - 1e-9 <= found <= 1.25 * best


def test_the_same_points_in_another_order_are_at_distance_zero():
    a, order = distances(30), np.random.default_rng(2).permutation(30)
    found = gromov_wasserstein(a, a[np.ix_(order, order)])
    assert found.distance == pytest.approx(0, abs=1e-7)
    assert order[found.plan.argmax(axis=1)].tolist() == list(range(30))


def test_points_that_are_there_twice_change_nothing():
    a = distances(6)
    twice = np.repeat(np.repeat(a, 2, axis=0), 2, axis=1)
    assert gromov_wasserstein(a, twice).distance == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 5), (7, 2)])
def test_starts_are_plans(n, m):
    for plan in (ordered_plan(n, m), profile_plan(distances(n), distances(m, seed=1))):
        np.testing.assert_allclose(plan.sum(axis=1), 1 / n)
        np.testing.assert_allclose(plan.sum(axis=0), 1 / m)


@pytest.mark.parametrize("bad", [np.ones((2, 3)), np.full((2, 2), np.nan), np.empty((0, 0)), np.ones(4)])
def test_what_is_not_a_matrix_of_distances_is_refused(bad):
    with pytest.raises(InputError, match="square array of finite distances"):
        gromov_wasserstein(distances(3), bad)
