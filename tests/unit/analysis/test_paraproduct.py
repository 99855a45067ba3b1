import numpy as np
import pytest

import headscape as hs
from headscape.analysis import paraproduct_pass
from headscape.analysis.paraproduct import INVARIANT
from headscape.analysis.tree_levels import TreeLevels
from tree_shapes import balanced_tree, uneven_tree

SQUARE = (lambda x: x**2, lambda x: 2 * x, lambda x: np.full_like(x, 2))
ALPHA = 0.4


def holder_series(n, alpha, seed):
    """A mixed alpha-Hoelder function on dyadic trees, with max|f| = 1: all differences at their bound."""
    rng = np.random.default_rng(seed)
    tree = balanced_tree(n)
    w = hs.wavelets(tree)
    scale = np.where(w.j > 0, w.difference_norm, np.sqrt(n)) * (w.folder_size / n) ** alpha
    coefficients = rng.choice([-1.0, 1.0], (n, n)) * np.multiply.outer(scale, scale)
    f = hs.inverse_tensor_haar(coefficients, {"query": tree, "key": tree})
    return f / np.abs(f).max(), {"query": tree, "key": tree}


def slope(values):
    """Minus the slope of log2 of the values, per level."""
    return -np.polyfit(np.arange(len(values)), np.log2(values), 1)[0]


def mean_residuals(nonlinearity, n=256, seeds=8):
    found = [
        hs.paraproduct(*holder_series(n, ALPHA, seed), nonlinearity).local_residuals for seed in range(seeds)
    ]
    return np.sqrt(np.mean(np.square(found), axis=0))


@pytest.mark.parametrize("nonlinearity", [SQUARE, "exp"], ids=["square", "exp"])
def test_local_residuals_fall_with_three_alpha_on_the_diagonal_and_alpha_at_the_edge(nonlinearity):
    residuals = mean_residuals(nonlinearity)
    assert slope(np.diag(residuals)[1:]) == pytest.approx(3 * ALPHA, rel=0.1)
    assert slope(residuals[2:, 0]) == pytest.approx(ALPHA, rel=0.1)
    assert slope(residuals[0, 2:]) == pytest.approx(ALPHA, rel=0.1)


@pytest.mark.parametrize("nonlinearity", [SQUARE, "exp"], ids=["square", "exp"])
def test_residual_is_of_second_order_in_the_amplitude(nonlinearity):
    f, trees = holder_series(64, ALPHA, 0)
    f = f - f.mean()
    sizes = 2.0 ** -np.arange(3, 9)
    norms = [np.linalg.norm(hs.paraproduct(eps * f, trees, nonlinearity).residual) for eps in sizes]
    assert np.polyfit(np.log(sizes), np.log(norms), 1)[0] == pytest.approx(2, rel=0.1)


def test_counter_example_to_the_regularity_of_the_residual():
    """A = x^2 and f = r(x) (1 + h(y)): the residual is 2h + h^2, as rough as f itself, not twice as regular."""
    n, alpha = 1024, 0.3
    rng = np.random.default_rng(0)
    tree = balanced_tree(n)
    w = hs.wavelets(tree)
    h = hs.inverse_haar(
        np.where(w.j > 0, w.difference_norm * (w.folder_size / n) ** alpha, 0) * rng.choice([-1, 1], n), tree
    )
    h *= 0.5 / np.abs(h).max()
    r = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    f = np.multiply.outer(r[::128], 1 + h)
    trees = {"query": balanced_tree(8), "key": tree}
    found = hs.paraproduct(f, trees, SQUARE)
    np.testing.assert_allclose(found.approximation, 1, atol=1e-12)
    np.testing.assert_allclose(found.residual, np.broadcast_to(2 * h + h**2, f.shape), atol=1e-12)
    exponent = hs.holder_exponent(found.residual, trees, n_samples=10).key[0, 0]
    assert exponent == pytest.approx(alpha, abs=0.03)
    assert exponent < 2 * alpha - 0.2


def test_log_softmax_aims_at_the_softmax():
    f = np.random.default_rng(0).normal(size=(12, 17)) * 30
    found = hs.paraproduct(f, hs.dyadic_trees(f.shape))
    e = np.exp(f - f.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found.target, e / e.sum(axis=1, keepdims=True), atol=1e-14)
    np.testing.assert_allclose(found.normalized, found.approximation, atol=1e-12)


def test_exponential_form_approximates_the_softmax_after_normalization():
    wave = np.sin(np.linspace(0, 3, 16))
    f = np.add.outer(np.linspace(3, 3.5, 16), np.linspace(0, 0.1, 16)) + 0.01 * np.outer(wave, wave)
    found = hs.paraproduct(f, hs.dyadic_trees((16, 16)), "exp")
    target = found.target / found.target.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.normalized, target, rtol=0.02)
    assert np.abs(found.approximation / target).min() > 10


def test_causal_heads_score_visible_entries_only():
    f = np.random.default_rng(0).normal(size=(20, 20))
    trees = hs.dyadic_trees(f.shape)
    found = hs.paraproduct(np.where(np.tri(20, dtype=bool), f, -np.inf), trees, visible="causal")
    upper = ~np.tri(20, dtype=bool)
    assert (found.approximation[upper] == 0).all()
    assert (found.residual[upper] == 0).all()
    np.testing.assert_allclose(found.target.sum(axis=1), 1, atol=1e-12)
    assert 0 < found.relative_residual < 2
    again = hs.paraproduct(np.where(upper, 99.0, f), trees, visible="causal")
    np.testing.assert_array_equal(found.approximation, again.approximation)


def test_rectangular_causal_heads_see_from_the_end():
    f = np.random.default_rng(0).normal(size=(5, 8))
    found = hs.paraproduct(f, hs.dyadic_trees(f.shape), visible="causal")
    assert found.scored[0].sum() == 4
    assert found.scored[-1].all()


def test_residuals_are_relative_to_what_the_sums_are_to_give():
    f, trees = holder_series(32, ALPHA, 3)
    complete, paper = hs.paraproduct(f, trees, "exp"), hs.paraproduct(f, trees, "exp", terms="paper")
    error = np.linalg.norm(np.exp(f) - complete.approximation)
    assert complete.constant == pytest.approx(np.exp(f.mean()))
    assert complete.relative_residual == pytest.approx(error / np.linalg.norm(np.exp(f) - np.exp(f.mean())))
    assert complete.mixed_residual == pytest.approx(error / np.linalg.norm(np.exp(f) - complete.one_axis))
    assert paper.relative_residual > complete.relative_residual


def test_the_invariant_form_is_the_mixed_part_and_products_of_differences():
    f = np.random.default_rng(0).normal(size=(2, 2))
    found = hs.paraproduct(f, hs.dyadic_trees((2, 2)), INVARIANT, terms="paper")
    u, v = f.mean(axis=1, keepdims=True) - f.mean(), f.mean(axis=0, keepdims=True) - f.mean()
    np.testing.assert_allclose(found.approximation, f - u - v - f.mean() + u * v, atol=1e-14)


def test_without_a_mixed_part_there_is_nothing_to_be_relative_to():
    trees = hs.dyadic_trees((4, 4))
    assert np.isnan(hs.paraproduct(np.zeros((4, 4)), trees, "exp").relative_residual)
    assert np.isnan(hs.paraproduct(np.add.outer(np.arange(4.0), np.zeros(4)), trees, "exp").mixed_residual)


def test_one_point_axes_are_exact():
    f = np.random.default_rng(0).normal(size=(1, 9))
    found = hs.paraproduct(f, hs.dyadic_trees(f.shape), "exp")
    assert found.contributions.shape == (0, 4)
    np.testing.assert_allclose(found.residual, 0, atol=1e-14)


def test_197_tokens_stay_197():
    f = np.random.default_rng(0).normal(size=(197, 197))
    found = hs.paraproduct(f, hs.dyadic_trees(f.shape))
    assert found.approximation.shape == (197, 197)
    assert found.contributions.shape == (8, 8)
    np.testing.assert_allclose(found.target.sum(axis=1), 1)


def test_steps_below_the_points_add_nothing():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(9, 20))
    trees = {"query": hs.PartitionTree.trivial(9), "key": uneven_tree(20, rng)}
    all_levels, many = hs.paraproduct(f, trees, "exp"), hs.paraproduct(f, trees, "exp", levels=50)
    np.testing.assert_array_equal(all_levels.approximation, many.approximation)


def test_pieces_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(40, 30))
    trees = {"query": uneven_tree(40, rng), "key": uneven_tree(30, rng)}
    whole = hs.paraproduct(f, trees)
    monkeypatch.setattr(paraproduct_pass, "_PIECE", 7)
    small = hs.paraproduct(f, trees)
    np.testing.assert_allclose(small.approximation, whole.approximation, atol=1e-15)
    np.testing.assert_allclose(small.local_residuals, whole.local_residuals, rtol=1e-12)


def test_sums_of_wide_folders_agree_with_narrow_ones():
    x = np.random.default_rng(0).normal(size=(50, 3))
    wide = TreeLevels.of(hs.PartitionTree.trivial(50)).sums(x, 0)
    np.testing.assert_allclose(wide[0][0], x.sum(axis=0))
    narrow = TreeLevels.of(hs.dyadic_trees((50, 2))["query"]).sums(x, 0)
    np.testing.assert_allclose(narrow[0], wide[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"terms": "all"}, "terms must be 'complete' or 'paper', but is 'all'"),
        ({"nonlinearity": "softmax"}, r"'exp' or three functions \(A, A', A''\), but is 'softmax'"),
        ({"nonlinearity": (np.exp, np.exp)}, "three functions"),
        ({"nonlinearity": (np.sum, np.exp, np.exp)}, "A must act entry by entry"),
        ({"levels": 0}, "levels must be a number from 1 up"),
        ({"levels": {"head": 2}}, "levels must be a number from 1 up"),
        ({"visible": "full"}, "visible must be 'causal'"),
        ({"visible": np.ones((2, 2), bool)}, "boolean array of the shape"),
        ({"visible": np.zeros((4, 4), bool)}, "at least one key"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(hs.HeadscapeError, match=message):
        hs.paraproduct(np.ones((4, 4)), hs.dyadic_trees((4, 4)), **arguments)


def test_bad_matrices_are_refused():
    trees = hs.dyadic_trees((4, 4))
    with pytest.raises(hs.HeadscapeError, match=r"f must be one head.*\(4, 4, 2\)"):
        hs.paraproduct(np.ones((4, 4, 2)), trees)
    with pytest.raises(hs.HeadscapeError, match="must be finite"):
        hs.paraproduct(np.full((4, 4), -np.inf), trees)
    with pytest.raises(hs.HeadscapeError, match="overflows"):
        hs.paraproduct(np.full((4, 4), 800.0), trees, "exp")
    with pytest.raises(hs.HeadscapeError, match="points"):
        hs.paraproduct(np.ones((5, 4)), trees)
    with pytest.raises(hs.HeadscapeError, match="query level must be from 0 to 1, but is 2"):
        hs.paraproduct(np.ones((4, 4)), trees).term(2, 0)
