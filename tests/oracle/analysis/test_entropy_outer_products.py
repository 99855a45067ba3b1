"""Entropies against slow loops written from the definition: dense bases, all products, outer products."""

import numpy as np
import pytest

import headscape as hs
from tree_shapes import uneven_tree


def all_supports(*trees):
    supports = np.ones((), dtype=int)
    for tree in trees:
        supports = np.multiply.outer(supports, (hs.haar_basis(tree) != 0).sum(axis=0))
    return supports


@pytest.fixture
def tensor():
    rng = np.random.default_rng(3)
    trees = {"query": uneven_tree(13, rng), "key": uneven_tree(17, rng), "head": uneven_tree(5, rng)}
    return rng.standard_normal((13, 17, 5)), trees


@pytest.mark.parametrize("k", [1, 2, 40, 13 * 17])
@pytest.mark.parametrize("p", [1.0, 0.5, 2.0])
def test_head_entropy_is_the_sum_over_outer_products(tensor, k, p):
    x, trees = tensor
    q, c = hs.haar_basis(trees["query"]), hs.haar_basis(trees["key"])
    supports = all_supports(trees["query"], trees["key"])
    cut = np.sort(supports.ravel())[::-1][k - 1]
    expected = np.zeros(5)
    for i, j in np.argwhere(supports >= cut):
        wavelet = np.outer(q[:, i], c[:, j])
        expected += np.abs((x * wavelet[:, :, None]).sum(axis=(0, 1))) ** p
    np.testing.assert_allclose(hs.head_entropy(x, trees, k, p), expected ** (1 / p), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 17, 100, 13 * 17 * 5])
def test_network_entropy_is_the_sum_over_three_way_products(tensor, k):
    x, trees = tensor
    bases = [hs.haar_basis(trees[axis]) for axis in ("query", "key", "head")]
    supports = all_supports(*trees.values())
    cut = np.sort(supports.ravel())[::-1][k - 1]
    coefficients = np.einsum("qkh,qa,kb,hc->abc", x, *bases)
    np.testing.assert_allclose(
        hs.network_entropy(x, trees, k), np.abs(coefficients[supports >= cut]).sum(), rtol=1e-12
    )


@pytest.mark.parametrize("k", [1, 7, 60, 221, 0.1, 1.0])
def test_cut_and_count_against_the_sorted_list_of_all_products(tensor, k):
    trees = {axis: tensor[1][axis] for axis in ("query", "key")}
    supports = np.sort(all_supports(*trees.values()).ravel())[::-1]
    wanted = k if isinstance(k, int) else int(np.ceil(k * len(supports)))
    top = hs.top_supports(trees, k)
    assert (top.k, top.cut) == (wanted, supports[wanted - 1])
    assert top.used == (supports >= top.cut).sum()
    assert top.share == top.used / len(supports)


def test_memory_order_does_not_matter(tensor):
    x, trees = tensor
    strided = np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    np.testing.assert_allclose(hs.head_entropy(strided, trees, 50), hs.head_entropy(x, trees, 50), rtol=1e-13)


def test_single_precision_stays_close(tensor):
    x, trees = tensor
    single = hs.head_entropy(x.astype(np.float32), trees, 60)
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, hs.head_entropy(x, trees, 60), rtol=1e-5)
