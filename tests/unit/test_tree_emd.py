import itertools

import numpy as np
import pytest

import headscape as hs
from headscape.engine import LocalEngine
from headscape.geometry.arranged import arranged
from samples import random_tree

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 5, 4))
TREES = {"query": random_tree(6, RNG), "key": random_tree(5, RNG), "head": random_tree(4, RNG)}


def test_memory_bound_changes_blocks_not_results():
    plain = hs.tree_emd(X, TREES, "head")
    np.testing.assert_allclose(hs.tree_emd(X, TREES, "head", max_bytes=1), plain, rtol=1e-13)


def test_progress_reaches_the_end():
    seen = []
    hs.tree_emd(X, TREES, "key", progress=lambda *now: seen.append(now))
    assert seen[-1][0] == "EMD of key"
    assert seen[-1][1] == seen[-1][2] == len(seen)


def test_accepts_a_network_tensor():
    np.testing.assert_array_equal(
        hs.tree_emd(hs.NetworkTensor(X), TREES, "key"), hs.tree_emd(X, TREES, "key")
    )


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_extreme_scales_of_float32(scale):
    x = X.astype(np.float32)
    huge = hs.tree_emd(x * np.float32(scale), TREES, "query")
    np.testing.assert_allclose(huge / scale, hs.tree_emd(x, TREES, "query"), rtol=1e-5)


@pytest.mark.parametrize(
    ("x", "trees", "axis", "words"),
    [
        (X, {"query": TREES["query"]}, "head", "no.*key|none for key"),
        (X, {**TREES, "key": TREES["query"]}, "head", "must have 5 points, but has 6"),
        (X, TREES, "row", "axis must be one of query, key, head"),
        (X[0, 0], TREES, "query", "at least 2 axes"),
        (np.where(X > 2, np.nan, X), TREES, "head", "must be finite"),
        (X.astype(object), TREES, "head", "real numbers"),
        (X.astype(complex), TREES, "head", "real numbers"),
    ],
)
def test_bad_input(x, trees, axis, words):
    with pytest.raises(hs.HeadscapeError, match=words):
        hs.tree_emd(x, trees, axis)


def test_bad_memory_bound():
    with pytest.raises(hs.HeadscapeError, match="max_bytes must be positive"):
        hs.tree_emd(X, TREES, "head", max_bytes=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(40, 33, 18), (130, 17, 20), (20, 150, 16), (9, 40, 12), (1, 40, 20)])
def test_slices_are_arranged_whatever_their_order_in_memory(dtype, shape):
    rng = np.random.default_rng(0)
    values = rng.random(shape).astype(dtype) * (rng.random(shape) < 0.7)
    for memory in itertools.permutations(range(3)):
        x = np.ascontiguousarray(values.transpose(memory)).transpose(np.argsort(memory))
        for axis in range(3):
            slices = x.transpose(*(number for number in range(3) if number != axis), axis)
            found = arranged(slices, LocalEngine(2))
            n = len(found.order)
            np.testing.assert_array_equal(found.rows[:, :, :n], slices[:, :, found.order])
            assert not found.rows[:, :, n:].any()
            filled = np.count_nonzero(found.rows[:, :, :n], axis=(0, 1))
            alike = (
                filled.min() * 16 > filled.max() * 15
            )  # then an order would leave no panel of 16 without entries
            assert alike or (np.diff(filled) >= 0).all() or (np.diff(filled) <= 0).all()
