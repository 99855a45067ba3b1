import numpy as np
import pytest

import headscape as hs
from headscape.analysis.entropy import coefficients_by_support
from tree_shapes import balanced_tree, uneven_tree


@pytest.fixture
def trees():
    rng = np.random.default_rng(0)
    return {"query": uneven_tree(10, rng), "key": uneven_tree(8, rng), "head": uneven_tree(3, rng)}


def test_constant_head_has_only_its_mean(trees):
    np.testing.assert_allclose(hs.head_entropy(np.full((10, 8, 3), 2.0), trees, 40), 2 * np.sqrt(80))


def test_one_matrix_is_one_head(trees):
    x = np.random.default_rng(1).standard_normal((10, 8))
    pair = {axis: trees[axis] for axis in ("query", "key")}
    assert hs.head_entropy(x, pair, 20).shape == (1,)
    np.testing.assert_allclose(hs.head_entropy(x, pair, 20), hs.head_entropy(x[:, :, None], pair, 20))


def test_k_may_be_a_share_of_all_wavelets(trees):
    x = np.random.default_rng(1).standard_normal((10, 8, 3))
    np.testing.assert_array_equal(hs.head_entropy(x, trees, 0.25), hs.head_entropy(x, trees, 20))


def test_entropy_scales_with_the_head(trees):
    x = np.random.default_rng(1).standard_normal((10, 8, 3))
    for p in (0.5, 1.0, 2.0):
        np.testing.assert_allclose(hs.head_entropy(3 * x, trees, 30, p), 3 * hs.head_entropy(x, trees, 30, p))


def test_coefficients_are_listed_by_falling_support_and_sum_to_the_entropy(trees):
    x = np.random.default_rng(1).standard_normal((10, 8, 3))
    pair = {axis: trees[axis] for axis in ("query", "key")}
    listed = coefficients_by_support(x, pair, 30)
    assert (np.diff(listed.supports) <= 0).all()
    assert len(listed.supports) == hs.top_supports(pair, 30).used
    np.testing.assert_allclose(np.abs(listed.values).sum(axis=0), hs.head_entropy(x, trees, 30))
    network = coefficients_by_support(x, trees, 30)
    np.testing.assert_allclose(np.abs(network.values).sum(), hs.network_entropy(x, trees, 30))


def test_dyadic_cut_counts_all_ties():
    top = hs.top_supports({"query": balanced_tree(4), "key": balanced_tree(4)}, 5)
    # Supports 4, 4, 2, 2 on each axis: 16 (4 times), 8 (8 times), 4 (4 times).
    assert (top.cut, top.used, top.total) == (8, 12, 16)


def test_bad_k_and_p_are_refused(trees):
    x = np.zeros((10, 8, 3))
    for k in (0, -3):
        with pytest.raises(hs.HeadscapeError, match="k must be a whole number from 1 up"):
            hs.head_entropy(x, trees, k)
    for k in (1.5, 0.0, float("nan")):
        with pytest.raises(hs.HeadscapeError, match="or a share in"):
            hs.head_entropy(x, trees, k)
    with pytest.raises(hs.HeadscapeError, match="p must be larger than 0"):
        hs.head_entropy(x, trees, 10, p=0)


def test_all_wavelets_are_used_if_there_are_fewer_than_k(trees):
    x = np.random.default_rng(0).random((10, 8, 3))
    np.testing.assert_array_equal(hs.head_entropy(x, trees), hs.head_entropy(x, trees, 80))
    assert hs.network_entropy(x, trees, 241) == hs.network_entropy(x, trees, 240)
    found = hs.top_supports({axis: trees[axis] for axis in ("query", "key")}, 400)
    assert (found.k, found.used, found.total, found.share) == (80, 80, 80, 1.0)


def test_missing_and_wrong_trees_are_refused(trees):
    x = np.zeros((10, 8, 3))
    with pytest.raises(
        hs.HeadscapeError, match="trees must have a tree for the key axis, but has only: query"
    ):
        hs.head_entropy(x, {"query": trees["query"]}, 10)
    with pytest.raises(hs.HeadscapeError, match="the tree for the query axis must have 8 points, but has 10"):
        hs.head_entropy(x.swapaxes(0, 1), trees, 10)
    with pytest.raises(hs.HeadscapeError, match="a tree for the head axis"):
        hs.network_entropy(x, {axis: trees[axis] for axis in ("query", "key")}, 10)
    with pytest.raises(hs.HeadscapeError, match="at least one tree"):
        hs.top_supports({}, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_are_found(trees, bad):
    x = np.zeros((10, 8, 3))
    x[4, 2, 1] = bad
    with pytest.raises(hs.HeadscapeError, match=r"the first is at index \(4, 2, 1\)"):
        hs.head_entropy(x, trees, 10)
