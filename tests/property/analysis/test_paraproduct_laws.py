"""Laws of the paraproduct that hold for every matrix and all trees."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headscape as hs
from headscape.analysis.tree_levels import TreeLevels
from samples import trees
from tree_shapes import relabeled

CUBE = (lambda x: x**3, lambda x: 3 * x**2, lambda x: 6 * x)


@st.composite
def cases(draw):
    query, key = draw(trees()), draw(trees())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=(query.n_points, key.n_points)), {"query": query, "key": key}, rng


@given(cases(), st.floats(-3, 3), st.floats(-3, 3))
def test_exact_for_linear_functions(case, slope, offset):
    f, pair, _ = case
    line = (lambda x: slope * x + offset, lambda x: np.full_like(x, slope), np.zeros_like)
    found = hs.paraproduct(f, pair, line)
    np.testing.assert_allclose(found.residual, 0, atol=1e-12)
    np.testing.assert_allclose(found.approximation, slope * f + offset, atol=1e-12)


@given(cases())
def test_moves_with_the_points(case):
    f, pair, rng = case
    rows, columns = rng.permutation(f.shape[0]), rng.permutation(f.shape[1])
    moved = {"query": relabeled(pair["query"], rows), "key": relabeled(pair["key"], columns)}
    found, other = hs.paraproduct(f, pair), hs.paraproduct(f[rows][:, columns], moved)
    np.testing.assert_allclose(other.approximation, found.approximation[rows][:, columns], atol=1e-12)
    np.testing.assert_allclose(other.contributions, found.contributions, atol=1e-12)


@given(cases())
def test_exchanging_the_axes_transposes_the_result(case):
    f, pair, _ = case
    swapped = {"query": pair["key"], "key": pair["query"]}
    found, other = hs.paraproduct(f, pair, CUBE), hs.paraproduct(f.T, swapped, CUBE)
    np.testing.assert_allclose(other.approximation, found.approximation.T, atol=1e-11)
    np.testing.assert_allclose(other.local_residuals, found.local_residuals.T, atol=1e-11)
    np.testing.assert_allclose(other.query_contributions, found.key_contributions, atol=1e-11)


@given(cases())
@settings(max_examples=30)
def test_the_paper_sum_is_the_sum_of_its_terms_and_the_complete_one_has_the_rest(case):
    f, pair, _ = case
    paper, complete = hs.paraproduct(f, pair, terms="paper"), hs.paraproduct(f, pair)
    total = np.zeros_like(f)
    for j, k in np.ndindex(*paper.contributions.shape):
        total += paper.term(j, k)
    np.testing.assert_allclose(paper.approximation, total, atol=1e-12)
    np.testing.assert_allclose(complete.approximation - paper.approximation, complete.one_axis, atol=1e-12)
    np.testing.assert_allclose(complete.target, paper.target, atol=1e-14)


@given(cases(), st.floats(-20, 20))
def test_a_shift_scales_the_exponential_form(case, shift):
    f, pair, _ = case
    found, other = hs.paraproduct(f, pair, "exp"), hs.paraproduct(f + shift, pair, "exp")
    np.testing.assert_allclose(
        other.approximation * np.exp(-shift), found.approximation, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(other.normalized, found.normalized, rtol=1e-9, atol=1e-9)


@given(trees(), st.integers(0, 2**32 - 1))
def test_averages_of_levels_obey_the_tower_law(tree, seed):
    x = np.random.default_rng(seed).normal(size=(tree.n_points, 3))
    levels = TreeLevels.of(tree)
    sums = levels.sums(x[levels.order], 0)
    for level, (size, total) in enumerate(zip(levels.sizes, sums, strict=True)):
        label = tree.labels[level]
        expected = np.array([x[label == folder].mean(axis=0) for folder in range(label.max() + 1)])
        np.testing.assert_allclose(total / size[:, None], expected, atol=1e-12)
        points = levels.to_points(total, 0, level)
        np.testing.assert_allclose(points, total[label[tree.order]], atol=0)
        for rows, fine in levels.parts(level, 2) if level < levels.n_steps else ():
            np.testing.assert_array_equal(
                levels.refine(total[rows], level, 0, rows), levels.refine(total, level, 0)[fine]
            )
