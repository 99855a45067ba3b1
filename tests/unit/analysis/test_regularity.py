import numpy as np
import pytest
from scipy import stats

import headscape as hs
from headscape.analysis.holder_constants import _point_pairs, axis_constants, mixed_constants
from headscape.analysis.regularity import _weighted_slope
from tree_shapes import balanced_tree, uneven_tree


def random_series(query, key, alpha, rng, heads=4):
    """A function whose mixed mean differences are uniform up to (|F| / n_q |G| / n_k)^alpha."""
    scale = []
    for tree in (query, key):
        w = hs.wavelets(tree)
        norm = np.where(w.j > 0, w.difference_norm, 1)
        scale.append(norm * (w.folder_size / tree.n_points) ** alpha)
    coefficients = rng.uniform(-1, 1, (query.n_points, key.n_points, heads))
    coefficients *= np.multiply.outer(*scale)[:, :, None]
    return hs.inverse_tensor_haar(coefficients, {"query": query, "key": key})


@pytest.mark.parametrize("alpha", [0.2, 0.4, 0.7])
@pytest.mark.parametrize("make", [lambda rng: balanced_tree(64), lambda rng: uneven_tree(70, rng)])
def test_mixed_exponent_of_random_series(alpha, make):
    rng = np.random.default_rng(7)
    query, key = make(rng), make(rng)
    x = random_series(query, key, alpha, rng)
    found = hs.holder_exponent(x, {"query": query, "key": key}, n_samples=100)
    np.testing.assert_allclose(found.mixed[:, 0], alpha, atol=0.02)
    assert found.in_range.all()


@pytest.mark.parametrize("alpha", [0.2, 0.5])
@pytest.mark.parametrize("make", [lambda rng: balanced_tree(256), lambda rng: uneven_tree(256, rng)])
def test_exponent_along_one_axis_over_all_columns(alpha, make):
    rng = np.random.default_rng(8)
    tree = make(rng)
    w = hs.wavelets(tree)
    scale = np.where(w.j > 0, w.difference_norm, 1) * (w.folder_size / 256) ** alpha
    x = hs.inverse_haar(rng.standard_normal((256, 256)) * scale[:, None], tree)
    other = hs.PartitionTree.trivial(256)
    found = hs.holder_exponent(x, {"query": tree, "key": other}, n_samples=100)
    assert found.query[0, 0] == pytest.approx(alpha, abs=0.05)
    turned = hs.holder_exponent(x.T, {"query": other, "key": tree}, n_samples=100)
    np.testing.assert_allclose(turned.key, found.query)


def test_smooth_functions_reach_the_cap_of_haar():
    t = (np.arange(256) + 0.5) / 256
    x = np.sin(3 * t[:, None] + 2 * t + t[:, None] * t)
    even = {"query": balanced_tree(256), "key": balanced_tree(256)}
    assert hs.holder_exponent(x, even, n_samples=100).mixed[0, 0] == pytest.approx(1, abs=0.02)
    rng = np.random.default_rng(0)
    uneven = {}
    for axis in ("query", "key"):
        tree = uneven_tree(256, rng)
        # The same folders with the points along the leaves, so that neighbors share folders.
        uneven[axis] = hs.PartitionTree(tree.labels[:, tree.order])
    assert 0.85 < hs.holder_exponent(x, uneven, n_samples=100).mixed[0, 0] < 0.98


def test_white_noise_has_minus_one_half():
    x = np.random.default_rng(0).standard_normal((128, 128, 3))
    found = hs.holder_exponent(x, {"query": balanced_tree(128), "key": balanced_tree(128)}, n_samples=100)
    np.testing.assert_allclose(found.mixed[:, 0], -0.5, atol=0.02)
    np.testing.assert_allclose(found.query[:, 0], -0.5, atol=0.03)
    assert not found.in_range.any()
    assert found.verdict.startswith("no head (of 3) is in the range 0 < alpha < 1/2")
    np.testing.assert_array_equal(found.alpha_mixed, 0.25)


def test_intervals_cover_the_exponent_about_as_often_as_they_say():
    rng = np.random.default_rng(2)
    tree = balanced_tree(64)
    x = random_series(tree, tree, 0.3, rng, heads=60)
    found = hs.holder_exponent(x, {"query": tree, "key": tree}, n_samples=100)
    covered = (found.mixed[:, 1] <= 0.3) & (found.mixed[:, 2] >= 0.3)
    assert 0.8 < covered.mean() <= 1
    assert found.head(0).estimate == found.mixed[0, 0]


def test_interval_is_that_of_a_weighted_line():
    rng = np.random.default_rng(0)
    at, weight = np.sort(rng.uniform(-8, 0, 9)), rng.integers(1, 50, 9)
    y = 0.3 * at + 0.1 * rng.standard_normal(9)
    (slope, _), covariance = np.polyfit(at, y, 1, w=np.sqrt(weight), cov=True)
    half = stats.t.ppf(0.975, 7) * np.sqrt(covariance[0, 0])
    np.testing.assert_allclose(_weighted_slope(at, y, weight, 0.95), [slope, slope - half, slope + half])


def test_sampled_pairs_come_from_different_children():
    tree = uneven_tree(20, np.random.default_rng(0))
    a, b, distance = _point_pairs(tree, 500, np.random.default_rng(1))
    assert (a != b).all()
    for p, q, d in zip(a, b, distance, strict=True):
        common = [f for f in range(tree.n_folders) if {p, q} <= set(tree.folder(f))]
        assert d == min(tree.folders.size[common]) / 20


def test_axis_constant_is_the_maximum_over_all_pairs():
    rng = np.random.default_rng(0)
    tree = uneven_tree(12, rng)
    x, alpha = rng.standard_normal((12, 3, 2)), np.array([0.3, 0.7])
    distance = np.ones((12, 12))
    for folder in range(tree.n_folders):
        points = tree.folder(folder)
        distance[np.ix_(points, points)] = len(points) / 12
    gaps = np.abs(x[:, None] - x[None, :])
    expected = (gaps / distance[:, :, None, None] ** alpha).max(axis=(0, 1, 2))
    np.testing.assert_allclose(axis_constants(x, tree, alpha), expected)


def test_mixed_constant_is_reached_by_sampling_and_never_passed():
    rng = np.random.default_rng(0)
    tree = hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]]])
    x, alpha = rng.standard_normal((4, 4, 1)), np.array([0.4])
    distance = np.where(np.add.outer([0, 0, 1, 1], [0, 0, 1, 1]) % 2, 1.0, 0.5)
    f = x[:, :, 0]
    best = 0.0
    for a, b, c, d in np.ndindex(4, 4, 4, 4):
        if a != b and c != d:
            gap = abs(f[b, d] - f[a, d] - f[b, c] + f[a, c])
            best = max(best, gap / (distance[a, b] * distance[c, d]) ** 0.4)
    assert mixed_constants(x, tree, tree, alpha, 20_000, 0)[0] == pytest.approx(best)
    assert mixed_constants(x, tree, tree, alpha, 5, 0)[0] <= best + 1e-12


def test_constants_grow_with_the_function():
    rng = np.random.default_rng(0)
    tree = balanced_tree(16)
    x = rng.standard_normal((16, 16, 1))
    both = np.concatenate([x, 3 * x], axis=2)
    found = hs.holder_exponent(both, {"query": tree, "key": tree}, n_samples=2000)
    for name in ("mixed", "query", "key"):
        constant = getattr(found, f"constant_{name}")
        assert constant[1] == pytest.approx(3 * constant[0])


def test_all_three_conditions_count():
    rng = np.random.default_rng(0)
    tree = balanced_tree(64)
    smooth = np.multiply.outer(np.linspace(0, 1, 64), np.linspace(0, 1, 64))
    # Noise that depends on the query alone leaves the mixed differences and those along the keys as they are.
    rough = smooth + 5 * rng.standard_normal((64, 1))
    found = hs.holder_exponent(np.stack([smooth, rough], axis=2), {"query": tree, "key": tree}, n_samples=10)
    np.testing.assert_allclose(found.mixed[:, 0], 1, atol=0.01)
    np.testing.assert_allclose(found.key[:, 0], 1, atol=0.01)
    assert found.query[1, 0] < -0.3
    assert found.in_range.tolist() == [True, False]
    assert found.verdict.startswith("1 of 2 heads are")


def test_frame_has_one_row_a_head():
    x = np.random.default_rng(0).standard_normal((16, 8, 3))
    frame = hs.holder_exponent(
        x, {"query": balanced_tree(16), "key": balanced_tree(8)}, n_samples=10
    ).to_frame()
    assert frame.shape[0] == 3
    assert {"holder_mixed", "holder_query_low", "constant_key", "in_theorem_range"} <= set(frame.columns)


def test_constant_and_tiny_heads_have_no_exponent_and_do_not_crash():
    found = hs.holder_exponent(np.ones((8, 8)), {"query": balanced_tree(8), "key": balanced_tree(8)})
    assert np.isnan(found.mixed).all()
    assert not found.in_range.any()
    one = hs.PartitionTree.trivial(1)
    tiny = hs.holder_exponent(np.ones((1, 1)), {"query": one, "key": one})
    assert np.isnan(tiny.mixed).all()
    assert "no head" in tiny.verdict


def test_bad_input_is_refused():
    trees = {"query": balanced_tree(8), "key": balanced_tree(8)}
    with pytest.raises(hs.HeadscapeError, match="fallback_alpha must be in"):
        hs.holder_exponent(np.ones((8, 8)), trees, fallback_alpha=0)
    with pytest.raises(hs.HeadscapeError, match="must be finite"):
        hs.holder_exponent(np.full((8, 8), np.nan), trees)
    with pytest.raises(hs.HeadscapeError, match="the query axis must have 4 points"):
        hs.holder_exponent(np.ones((4, 8)), trees)
