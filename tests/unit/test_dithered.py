"""Distances from features of 8 bits: close to the exact ones, unbiased, by about as much as they say."""

import numpy as np
import pytest

from headscape.geometry._l1_bytes import GROUP, VECTOR_BYTES, add_byte_distances, write_bytes
from headscape.geometry.dithered import LEVELS, DitheredDistances, variance
from headscape.geometry.feature_sample import FeatureSample
from headscape.geometry.l1_kernel import l1_distances


def dithered(features, seed):
    found = DitheredDistances(len(features))
    width = features.shape[1]
    found.add(
        features.astype(np.float32),
        FeatureSample.of(np.arange(width), np.ones(width), np.random.default_rng(seed)),
    )
    sums, n = found.sums(), len(features)
    np.testing.assert_array_equal(variance(sums), sums[n : 2 * n])  # nothing is left out
    return sums[:n], sums[n : 2 * n]


@pytest.mark.parametrize("n", [1, 8, 19, 130])
@pytest.mark.parametrize("width", [1, 31, 32, 200])
def test_distances_of_bytes(n, width):
    """Whole numbers of units are bytes already: every distance is exact, zeros at the end left out or not."""
    rng = np.random.default_rng(n * width)
    features = rng.integers(0, 255, size=(n, width)).astype(np.float32)
    for i in range(1, n):
        features[i, rng.integers(0, width + 1) :] = 0
    features[0], features[-1] = 254, 0
    features *= 255.9999 / LEVELS  # all features have a range just below 256, and so the unit 256 / LEVELS
    emd, variance = dithered(features, 0)
    if n == 1:
        assert emd.tolist() == [[0]]
        return
    np.testing.assert_allclose(emd, l1_distances(features.astype(float)), rtol=1e-5)
    assert (variance >= 0).all()


def test_groups_of_zeros_are_not_read():
    """Bytes beyond those that are said to be filled do not count."""
    n, vectors = 2 * GROUP, 3
    features = np.random.default_rng(0).random((n, vectors * VECTOR_BYTES), dtype=np.float32)
    features[GROUP:, VECTOR_BYTES:] = 0
    width = features.shape[1]
    x, first, scale = np.zeros((n, width), np.uint8), np.array([0, vectors]), np.array([2.0])
    filled, sums = np.zeros((1, 2), np.int64), np.zeros(n)
    given = (np.zeros(width, np.float32), np.full(width, 254.0), np.full(width, 0.5), np.arange(width))
    write_bytes(features, *given, first, scale, x, filled, sums)
    assert filled.tolist() == [[3, 1]]
    assert (sums == 2.0 * x.sum(axis=1)).all()
    expected = np.abs(x[:, None].astype(int) - x).sum(axis=2)
    x[GROUP:, VECTOR_BYTES:] = 7
    out = np.zeros((2, n, n))
    add_byte_distances(x, first, np.array([width]), scale, filled, sums, out)
    above = np.triu_indices(n, 1)
    assert (out[0][above] == 2.0 * expected[above]).all()


def test_unbiased_and_within_the_stated_error():
    rng = np.random.default_rng(1)
    features = rng.gamma(0.3, size=(24, 400))
    exact = l1_distances(features)
    found = np.array([dithered(features, seed) for seed in range(60)])
    above = np.triu_indices(24, 1)
    spread = found[:, 0].std(axis=0)[above]
    stated = np.sqrt(found[:, 1].mean(axis=0))[above]
    bias = np.abs(found[:, 0].mean(axis=0) - exact)[above]
    assert np.mean(bias < 3 * spread / np.sqrt(60)) > 0.95
    assert (spread < 1.3 * stated).all()  # a bound, up to the noise of 60 draws
    assert np.median(stated / spread) < 1.5
    assert np.quantile(np.abs(found[0, 0] - exact)[above] / exact[above], 0.95) < 0.02


def test_constant_and_shifted_features():
    """What all points have in common does not count, however large."""
    rng = np.random.default_rng(2)
    features = rng.random((16, 64))
    assert not np.any(dithered(np.ones((16, 64)), 0))
    moved = features + 1000 * np.arange(64)
    np.testing.assert_allclose(dithered(moved, 3)[0], dithered(features, 3)[0], rtol=0.01, atol=1e-3)
