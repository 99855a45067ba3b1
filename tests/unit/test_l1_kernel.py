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
