"""The EMD from a sample of its terms: close to the exact one, by about as much as it says."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import headscape as hs
from headscape.engine import LocalEngine
from headscape.errors import InputError
from headscape.geometry.sampled_emd import inclusion_probabilities, sampled_head_emd
from headscape.geometry.streamed_emd import HeadBlocks, streamed_head_emd


@pytest.fixture(scope="module")
def case():
    """48 heads in 6 clusters, 64 tokens: queries and keys of a cluster are alike."""
    rng = np.random.default_rng(0)
    cluster = np.arange(48) % 6
    queries, keys = (
        rng.normal(size=(6, 64, 8))[cluster] + 0.4 * rng.normal(size=(48, 64, 8)) for _ in range(2)
    )
    capture = hs.Capture.from_arrays(1.5 * queries[None, None], keys[None, None])
    trees = hs.organize(capture.tensor(0), n_iter=1).trees
    return capture, trees, HeadBlocks.of(capture, 0, trees, 0.0, 1.0, "probs", np.float64)


def test_close_to_the_exact_distances(case):
    capture, trees, blocks = case
    exact = streamed_head_emd(capture, 0, trees, dtype=np.float64)
    found = sampled_head_emd(blocks, 0.1, seed=1)
    assert 0.08 < found.share < 0.12
    above = np.triu_indices(48, 1)
    error = np.abs(found.emd - exact)[above] / exact[above]
    assert np.quantile(error, 0.95) < 0.08  # few features; the error falls with their root
    assert spearmanr(found.emd[above], exact[above]).statistic > 0.9
    assert (
        0.4 < np.mean(error) / np.mean(np.sqrt(2 / np.pi) * found.standard_error[above] / exact[above]) < 2.5
    )
    assert (found.emd == found.emd.T).all()
    assert (np.diag(found.emd) == 0).all()


def test_unbiased(case):
    capture, trees, blocks = case
    exact = streamed_head_emd(capture, 0, trees, dtype=np.float64)
    mean = np.mean([sampled_head_emd(blocks, 0.05, seed=seed).emd for seed in range(12)], axis=0)
    one = sampled_head_emd(blocks, 0.05, seed=0).emd
    assert np.linalg.norm(mean - exact) < 0.5 * np.linalg.norm(one - exact)


def test_all_terms_are_the_exact_distances(case):
    capture, trees, blocks = case
    found = sampled_head_emd(blocks, 1.0)
    np.testing.assert_allclose(found.emd, streamed_head_emd(capture, 0, trees, dtype=np.float64), rtol=1e-10)
    assert found.relative_error() == 0
    assert found.share == 1.0


def test_blocks_and_threads_change_nothing(case):
    blocks = case[2]
    expected = sampled_head_emd(blocks, 0.1, block=1000)
    found = sampled_head_emd(blocks, 0.1, block=3, engine=LocalEngine(2))
    np.testing.assert_allclose(found.emd, expected.emd, rtol=1e-10)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-6, atol=1e-14)


def test_probabilities_sum_to_the_share():
    spread = np.random.default_rng(0).pareto(1.0, size=5000)
    for share in (0.01, 0.1, 0.9):
        probability = inclusion_probabilities(spread, share)
        assert probability.sum() == pytest.approx(share * 5000)
        assert (probability > 0).all()
        assert probability.max() <= 1
    assert inclusion_probabilities(np.zeros(10), 0.3) == pytest.approx(0.3)


def test_bad_shares(case):
    with pytest.raises(InputError, match="share"):
        sampled_head_emd(case[2], 0.0)
    with pytest.raises(InputError, match="pilot"):
        sampled_head_emd(case[2], 0.1, pilot=1)
