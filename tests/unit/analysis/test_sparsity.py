import numpy as np
import pytest

import headscape as hs
from tree_shapes import balanced_tree, uneven_tree


@pytest.fixture
def smooth():
    """A smooth head with shuffled points, and the trees that undo the shuffle."""
    rng = np.random.default_rng(0)
    q, k = rng.permutation(64), rng.permutation(64)
    t = (np.arange(64) + 0.5) / 64
    x = np.sin(3 * t[:, None] + 2 * t)[np.ix_(q, k)]
    labels = balanced_tree(64).labels
    return x, {"query": hs.PartitionTree(labels[:, q]), "key": hs.PartitionTree(labels[:, k])}


def test_organized_is_sparser_than_original_and_shuffled(smooth):
    curves = hs.sparsity_curves(*smooth)
    needed = curves.needed((0.9, 0.99))
    assert needed["organized"][1] < 0.2 * min(needed["original"][1], needed["shuffled"][1])
    for order in ("organized", "original", "shuffled"):
        curve = getattr(curves, order)
        assert curve[0] == 0
        assert curve[-1] == pytest.approx(1)
        assert (np.diff(curve) >= 0).all()


def test_original_order_is_organized_order_when_nothing_was_shuffled():
    x = np.random.default_rng(0).standard_normal((16, 16))
    trees = {"query": balanced_tree(16), "key": balanced_tree(16)}
    curves = hs.sparsity_curves(x, trees)
    np.testing.assert_array_equal(curves.organized, curves.original)


def test_shuffles_follow_the_seed(smooth):
    a, b, c = (hs.sparsity_curves(*smooth, draws=1, seed=s).shuffled for s in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_coefficients_needed_is_the_first_place_that_reaches_the_share():
    trees = {"query": hs.PartitionTree.trivial(1), "key": balanced_tree(4)}
    x = hs.inverse_tensor_haar(np.sqrt([[0.5, 0.3, 0.15, 0.05]]), trees)
    assert hs.coefficients_needed(x, trees, (0.4, 0.6, 0.9, 0.96)) == (1, 2, 3, 4)


def test_a_zero_head_needs_nothing():
    trees = {"query": balanced_tree(2), "key": balanced_tree(2)}
    assert hs.sparsity_curve(np.zeros((2, 2)), trees).tolist() == [0, 1, 1, 1, 1]


def test_denoising_removes_most_of_the_noise(smooth):
    _, trees = smooth
    rng = np.random.default_rng(1)
    blocks = rng.standard_normal((4, 4))[np.ix_(trees["query"].labels[2], trees["key"].labels[2])]
    noisy = blocks + 0.1 * rng.standard_normal(blocks.shape)
    for mode in ("hard", "soft"):
        error = np.sqrt(((hs.denoise(noisy, trees, mode=mode) - blocks) ** 2).mean())
        assert error < 0.03


def test_the_mean_survives_any_threshold_on_axes_with_and_without_trees():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 6, 3))
    trees = {"key": uneven_tree(6, rng), "query": uneven_tree(8, rng)}
    flat = hs.denoise(x, trees, threshold=1e9)
    np.testing.assert_allclose(flat, np.broadcast_to(x.mean(axis=(0, 1)), x.shape))


def test_threshold_zero_changes_nothing(smooth):
    x, trees = smooth
    np.testing.assert_allclose(hs.denoise(x, trees, threshold=0), x, atol=1e-12)


def test_bad_arguments_are_refused(smooth):
    x, trees = smooth
    with pytest.raises(
        hs.HeadscapeError, match="m must be from 0 to the number of coefficients, 4096, but is 5000"
    ):
        hs.best_approximation(x, trees, 5000)
    with pytest.raises(hs.HeadscapeError, match="mode must be 'hard' or 'soft', but is 'firm'"):
        hs.denoise(x, trees, mode="firm")
    with pytest.raises(hs.HeadscapeError, match="threshold must be 0 or larger"):
        hs.denoise(x, trees, threshold=-1)
    with pytest.raises(hs.HeadscapeError, match=r"between 0 and 1, but one is 1\.5"):
        hs.coefficients_needed(x, trees, (1.5,))
    with pytest.raises(hs.HeadscapeError, match="draws must be a whole number from 1"):
        hs.sparsity_curves(x, trees, draws=0)
    with pytest.raises(hs.HeadscapeError, match="must be finite"):
        hs.sparsity_curve(x * np.nan, trees)
