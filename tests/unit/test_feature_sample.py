"""Features drawn by their ranges: as many as wanted, with the probabilities that are stated."""

import numpy as np
import pytest

from headscape.geometry.dithered import DitheredDistances, variance
from headscape.geometry.feature_sample import FLOOR, feature_sample, folder_shares, pilots, probabilities
from headscape.geometry.l1_kernel import l1_distances


@pytest.mark.parametrize("count", [0.5, 3, 7.2, 50, 99.5])
def test_probabilities_add_up_to_the_wanted_number(count):
    size = np.random.default_rng(0).gamma(0.2, size=100) + 1e-9
    p = probabilities(size, count)
    assert p.sum() == pytest.approx(count)
    assert p.max() <= 1
    below = p < 1
    np.testing.assert_allclose(p[below] / size[below], p[below][0] / size[below][0])
    assert (size[~below] >= size[below].max()).all()
    assert (probabilities(size, 100) == 1).all()


def test_features_are_kept_as_often_as_stated():
    rng = np.random.default_rng(1)
    ranges = rng.gamma(0.2, size=60)
    ranges[::7] = 0
    expected = probabilities(ranges + FLOOR * ranges.mean(), 0.3 * np.count_nonzero(ranges))
    hits = np.zeros(60)
    for _ in range(3000):
        sample = feature_sample(ranges, 0.3, rng)
        assert abs(len(sample) - expected.sum()) < 1
        np.testing.assert_array_equal(sample.probability, expected[sample.kept])
        hits[sample.kept] += 1
    np.testing.assert_allclose(hits / 3000, expected, atol=4 * np.sqrt(0.25 / 3000))


def test_features_that_are_constant_over_the_pilots_have_a_chance():
    assert (feature_sample(np.zeros(10), 1.0, np.random.default_rng(0)).kept == np.arange(10)).all()
    found = [feature_sample(np.zeros(10), 0.2, np.random.default_rng(seed)).kept for seed in range(50)]
    assert {len(one) for one in found} == {2}
    assert set(np.concatenate(found)) == set(range(10))


def test_heavy_folders_keep_more_and_the_share_is_that_of_all():
    weights = np.repeat([1.0, 0.25, 1 / 64], [1, 4, 64])
    shares = folder_shares(weights, 0.3)
    assert shares.mean() == pytest.approx(0.3)
    assert shares[0] == 1
    assert shares[1] / shares[-1] == pytest.approx(4)


def test_pilots_are_spread_evenly():
    assert pilots(5).tolist() == [0, 1, 2, 3, 4]
    assert pilots(1).tolist() == [0]
    steps = np.diff(pilots(1000))
    assert steps.max() - steps.min() <= 1


def estimated(features, seed, parts=1, step=1):
    """Distances and their variances, with ranges from every ``step``-th point."""
    rng = np.random.default_rng(seed)
    found = DitheredDistances(len(features))
    for some in np.array_split(features.astype(np.float32), parts, axis=1):
        sample = feature_sample(np.ptp(some[::step], axis=0), 0.3, rng)
        found.add(some[:, sample.kept], sample)
    sums = found.sums()
    return sums[: len(features)], variance(sums)


@pytest.mark.parametrize("missed", [0, 40])
def test_unbiased_and_within_the_stated_error(missed):
    """Also where the pilots, every third point, miss what others do; then the stated error does so at times."""
    rng = np.random.default_rng(2)
    features = rng.gamma(0.3, size=(24, 600)) * rng.gamma(0.3, size=600)
    features[::3, :missed] = 0
    exact = l1_distances(features)
    step = 3 if missed else 1
    found = np.array([estimated(features, seed, parts=3, step=step) for seed in range(200)])
    above = np.triu_indices(24, 1)
    spread = found[:, 0].std(axis=0)[above]
    bias = np.abs(found[:, 0].mean(axis=0) - exact)[above]
    stated = np.sqrt(found[:, 1].mean(axis=0))[above]
    assert np.mean(bias < 3 * spread / np.sqrt(200)) > 0.95
    assert (spread < 1.3 * stated).all()
    assert np.median(stated / spread) < 2
    covered = np.abs(found[:, 0] - exact) < 2 * np.sqrt(found[:, 1])
    assert covered[:, above[0], above[1]].mean() > (0.75 if missed else 0.93)


def test_equal_points_stay_equal():
    features = np.random.default_rng(3).gamma(0.3, size=(12, 300))
    features[5] = features[2]
    emd, spread = estimated(features, 0)
    assert emd[2, 5] == spread[2, 5] == 0
    assert (emd[2] == emd[5]).all()
