import numpy as np
import pytest

import headscape as hs
from headscape.geometry.l1_kernel import l1_distances
from samples import random_tree


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 31, 33, 66])
@pytest.mark.parametrize("features", [1, 7, 1024, 1025, 2500])
def test_compiled_kernel_equals_the_plain_sum(n, features):
    x = np.random.default_rng(n * features).standard_normal((n, features))
    plain = np.abs(x[:, None] - x[None]).sum(axis=2)
    for small in (True, False):
        np.testing.assert_allclose(l1_distances(x, small=small), plain, rtol=1e-12)
        np.testing.assert_allclose(
            l1_distances(x.astype(np.float32), small=small), plain, rtol=1e-5, atol=1e-4
        )


def test_float32_partial_sums_stay_accurate_over_many_terms():
    x = np.zeros((2, 3_000_000), dtype=np.float32)
    x[0] = 0.1
    # One float32 accumulator would be off by per cents here.
    assert l1_distances(x, small=False)[0, 1] == pytest.approx(3e6 * float(np.float32(0.1)), rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1e3])
def test_a_common_offset_costs_no_more_digits_than_its_sums(offset, monkeypatch):
    # Distances come from sums of minima, which are as large as the numbers themselves unless these are shifted first.
    rng = np.random.default_rng(0)
    x = (offset + rng.standard_normal((30, 24, 48))).astype(np.float32)
    trees = {a: random_tree(n, rng) for a, n in zip(("query", "key", "head"), x.shape, strict=True)}
    monkeypatch.setattr("headscape.geometry.tree_emd.SMALL_WORK", 0.0)
    found, exact = (hs.tree_emd(array, trees, "head") for array in (x, x.astype(np.float64)))
    np.testing.assert_allclose(found, exact, rtol=3e-7 + 2e-7 * offset)
    rows = x.reshape(-1, 48).T
    plain = np.abs(rows[:, None].astype(np.float64) - rows).sum(axis=2)
    np.testing.assert_allclose(l1_distances(rows, small=False), plain, rtol=3e-7)


@pytest.mark.parametrize("hidden", [False, True])
def test_equal_slices_have_distance_zero_to_the_last_bit(hidden, monkeypatch):
    x = np.random.default_rng(0).standard_normal((30, 24, 40)).astype(np.float32)
    x[:, :, 33] = x[:, :, 5]
    if hidden:
        x[10:20, :, 16:32] = 0.0
    trees = {
        "query": random_tree(30, np.random.default_rng(1)),
        "key": random_tree(24, np.random.default_rng(2)),
    }
    monkeypatch.setattr("headscape.geometry.tree_emd.SMALL_WORK", 0.0)
    found = hs.tree_emd(x, trees, "head")
    assert found[33, 5] == 0.0
    assert (found >= 0).all()
    assert np.count_nonzero(found[5] == 0.0) == 2
    assert l1_distances(x.reshape(-1, 40).T, small=False)[33, 5] == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 21), (8, 10, 7), (5, 4, 6, 3)])
def test_compiled_and_plain_path_of_the_emd_agree(shape, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(dtype)
    names = ("query", "key", "head", "axis3")[: len(shape)]
    trees = {a: random_tree(n, rng) for a, n in zip(names, shape, strict=True)}
    for axis in names:
        found = []
        for limit in (0.0, 1e30):
            monkeypatch.setattr("headscape.geometry.tree_emd.SMALL_WORK", limit)
            found.append(hs.tree_emd(x, trees, axis, 0.3, 0.6))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-12 if dtype is np.float64 else 1e-5)


def _hidden(mask, shape):
    queries, keys = np.ogrid[: shape[0], : shape[1]]
    return {
        "causal": keys > queries,
        "band": abs(keys - queries) > 5,
        "shuffled": (keys > queries)[np.random.default_rng(1).permutation(shape[0])],
        "no keys": keys < 20,
        "everything": keys < shape[1],
    }[mask]


@pytest.mark.parametrize("mask", ["causal", "band", "shuffled", "no keys", "everything"])
def test_blocks_of_zeros_are_left_out_exactly(mask, monkeypatch):
    rng = np.random.default_rng(0)
    shape = (50, 40, 21)
    # Negative numbers too: what is left out must not rely on probabilities.
    x = np.where(_hidden(mask, shape)[:, :, None], 0.0, rng.standard_normal(shape))
    trees = {a: random_tree(n, rng) for a, n in zip(("query", "key", "head"), shape, strict=True)}
    for axis in trees:
        plain = hs.tree_emd(x, trees, axis, 0.3, 0.6)
        monkeypatch.setattr("headscape.geometry.tree_emd.SMALL_WORK", 0.0)
        found = hs.tree_emd(x, trees, axis, 0.3, 0.6)
        monkeypatch.undo()
        np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-14)


def test_left_out_blocks_cost_nothing():
    from headscape.geometry import _l1_numba

    tree = random_tree(64, np.random.default_rng(0))
    rows = np.zeros((64, 64, 64))
    rows[:, :, 48:] = np.random.default_rng(1).random((64, 64, 16))
    filled, kept = np.zeros(4, dtype=bool), np.zeros(tree.n_folders, dtype=np.int64)
    n = _l1_numba._find_filled(rows[0], tree.leaf_folders, tree.folders.parent, filled, kept)
    assert filled.tolist() == [False, False, False, True]
    assert n == tree.n_folders
    rows[0, 10:] = 0
    n = _l1_numba._find_filled(rows[0], tree.leaf_folders, tree.folders.parent, filled, kept)
    assert 10 <= n < tree.n_folders
    assert set(tree.leaf_folders[:10]) <= set(kept[:n])
