import numpy as np
import pytest

import headscape as hs
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
