"""Laws of the Haar transforms on random trees."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import headscape as hs
from samples import random_tree, trees
from tree_shapes import relabeled

seeds = st.integers(0, 2**32 - 1)


@given(trees())
def test_basis_is_orthonormal(tree):
    basis = hs.haar_basis(tree)
    np.testing.assert_allclose(basis.T @ basis, np.eye(tree.n_points), atol=1e-12)


@given(trees())
def test_wavelets_live_where_their_index_says(tree):
    basis, index = hs.haar_basis(tree), hs.wavelets(tree)
    folders = tree.folders
    for i in range(1, len(index)):
        first, rest = index.points(i)
        vector = basis[:, i]
        assert set(np.flatnonzero(vector > 1e-15)) == set(first)
        assert set(np.flatnonzero(vector < -1e-15)) == set(rest)
        assert index.support[i] == len(first) + len(rest)
        folder = index.folder[i]
        assert set(first) | set(rest) <= set(tree.folder(folder))
        children = [
            frozenset(tree.folder(c)) for c in range(folders.child_start[folder], folders.child_stop[folder])
        ]
        assert frozenset(first) in children
        assert len(first) >= max(len(c) for c in children if c <= frozenset(rest))
        assert folders.last_level[folder] == index.level[i]


@given(trees(), seeds)
def test_transform_is_the_product_with_the_basis_and_comes_back(tree, seed):
    x = np.random.default_rng(seed).standard_normal((3, tree.n_points, 2))
    coefficients = hs.haar(x, tree, axis=1)
    expected = np.einsum("apb,pi->aib", x, hs.haar_basis(tree))
    np.testing.assert_allclose(coefficients, expected, atol=1e-12)
    np.testing.assert_allclose(hs.inverse_haar(coefficients, tree, "key"), x, atol=1e-12)


@given(trees(max_points=10), trees(max_points=10), trees(max_points=6), seeds)
def test_tensor_transform_keeps_energy_and_comes_back(query, key, head, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((query.n_points, key.n_points, head.n_points))
    both = {"query": query, "key": key, "head": head}
    coefficients = hs.tensor_haar(x, both)
    np.testing.assert_allclose((coefficients**2).sum(), (x**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(hs.inverse_tensor_haar(coefficients, both), x, atol=1e-12)


@given(seeds)
def test_entropy_travels_with_permutations_of_every_axis(seed):
    rng = np.random.default_rng(seed)
    shape = (9, 12, 5)
    x = rng.standard_normal(shape)
    old = {axis: random_tree(n, rng) for axis, n in zip(("query", "key", "head"), shape, strict=True)}
    q, k, h = (rng.permutation(n) for n in shape)
    # Canonical numbering keeps the leaf order, so equal-size children stay in their order.
    new = {axis: relabeled(old[axis], p) for axis, p in (("query", q), ("key", k), ("head", h))}
    moved = x[np.ix_(q, k, h)]
    np.testing.assert_allclose(hs.head_entropy(moved, new, 30), hs.head_entropy(x, old, 30)[h], rtol=1e-12)
    np.testing.assert_allclose(hs.network_entropy(moved, new, 30), hs.network_entropy(x, old, 30), rtol=1e-12)


@given(trees(max_points=12), trees(max_points=12), seeds)
def test_entropy_grows_with_k_up_to_all_wavelets(query, key, seed):
    x = np.random.default_rng(seed).standard_normal((query.n_points, key.n_points))
    both = {"query": query, "key": key}
    sums = [hs.head_entropy(x, both, k)[0] for k in sorted({1, x.size // 2 or 1, x.size})]
    assert all(a <= b + 1e-12 for a, b in pairwise(sums))
    np.testing.assert_allclose(sums[-1], np.abs(hs.tensor_haar(x, both)).sum(), rtol=1e-12)


@given(trees(max_points=12), trees(max_points=12), st.integers(0, 4), seeds)
def test_best_approximation_error_is_what_the_curve_leaves_out(query, key, tenths, seed):
    x = np.random.default_rng(seed).standard_normal((query.n_points, key.n_points))
    both = {"query": query, "key": key}
    m = tenths * x.size // 4
    error = ((x - hs.best_approximation(x, both, m)) ** 2).sum() / (x**2).sum()
    np.testing.assert_allclose(error, 1 - hs.sparsity_curve(x, both)[m], atol=1e-12)
