"""The paraproduct against slow sums written from the definition, and against the reference sums of OA (12)."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from tree_shapes import uneven_tree

DATA = Path(__file__).parents[2] / "data" / "paraproduct_case_a.npz"
SQUARE = (lambda x: x**2, lambda x: 2 * x, lambda x: np.full_like(x, 2))
EXP = (np.exp, np.exp, np.exp)
SINE = (np.sin, np.cos, lambda x: -np.sin(x))


def averages(f, trees, j, k):
    """P^j P'^k f as a full matrix, by projection matrices; below the points nothing changes."""
    parts = []
    for tree, level in ((trees["query"], j), (trees["key"], k)):
        label = tree.labels[min(level, tree.depth - 1)]
        same = (label[:, None] == label[None, :]).astype(float)
        parts.append(same / same.sum(axis=1, keepdims=True))
    return parts[0] @ f @ parts[1].T


def by_definition(f, trees, functions, steps):
    """All pieces of the paraproduct, pair by pair of levels."""
    a, first, second = functions
    rows, columns = steps
    p = [[averages(f, trees, j, k) for k in range(columns + 1)] for j in range(rows + 1)]
    terms, local = {}, {}
    for j in range(rows):
        for k in range(columns):
            u, v = p[j + 1][k] - p[j][k], p[j][k + 1] - p[j][k]
            w = p[j + 1][k + 1] - p[j][k + 1] - p[j + 1][k] + p[j][k]
            terms[j, k] = (first(p[j][k]) * w, second(p[j][k]) * u * v)
            double = a(p[j + 1][k + 1]) - a(p[j][k + 1]) - a(p[j + 1][k]) + a(p[j][k])
            local[j, k] = double - sum(terms[j, k])
    one_axis = a(p[0][0])
    one_axis = one_axis + sum(a(p[j + 1][0]) - a(p[j][0]) for j in range(rows))
    one_axis = one_axis + sum(a(p[0][k + 1]) - a(p[0][k]) for k in range(columns))
    return terms, local, one_axis


@pytest.fixture(params=[(19, 12), (12, 19), (16, 1), (2, 30)], ids=str)
def case(request):
    rng = np.random.default_rng(sum(request.param))
    queries, keys = request.param
    trees = {"query": uneven_tree(queries, rng), "key": uneven_tree(keys, rng)}
    return rng.normal(size=request.param), trees


@pytest.mark.parametrize("functions", [SQUARE, EXP, SINE], ids=["square", "exp", "sine"])
@pytest.mark.parametrize("levels", [None, 2, {"query": 1}])
def test_every_piece_is_the_definition(case, functions, levels):
    f, trees = case
    steps = [trees[axis].depth - 1 for axis in ("query", "key")]
    if levels == 2:
        steps = [min(2, s) for s in steps]
    elif levels is not None:
        steps[0] = min(1, steps[0])
    terms, local, one_axis = by_definition(f, trees, functions, steps)
    paper = hs.paraproduct(f, trees, functions, terms="paper", levels=levels)
    complete = hs.paraproduct(f, trees, functions, levels=levels)
    double_sum = sum((sum(pair) for pair in terms.values()), np.zeros_like(f))
    np.testing.assert_allclose(paper.approximation, double_sum, atol=1e-12)
    np.testing.assert_allclose(complete.one_axis, one_axis, atol=1e-12)
    np.testing.assert_allclose(complete.approximation, double_sum + one_axis, atol=1e-12)
    np.testing.assert_allclose(paper.residual, functions[0](f) - double_sum, atol=1e-12)
    assert complete.contributions.shape == tuple(steps)
    for pair, (first, second) in terms.items():
        np.testing.assert_allclose(paper.term(*pair), first + second, atol=1e-12)
        sizes = [
            getattr(complete, name)[pair]
            for name in ("first_order", "second_order", "contributions", "local_residuals")
        ]
        expected = [np.sqrt((x**2).mean()) for x in (first, second, first + second, local[pair])]
        np.testing.assert_allclose(sizes, expected, atol=1e-12)


def test_one_axis_contributions(case):
    f, trees = case
    found = hs.paraproduct(f, trees, SQUARE)
    along = [averages(f, trees, j, 0) ** 2 for j in range(trees["query"].depth)]
    expected = [np.sqrt(((b - a) ** 2).mean()) for a, b in pairwise(along)]
    np.testing.assert_allclose(found.query_contributions, expected, atol=1e-12)
    along = [averages(f, trees, 0, k) ** 2 for k in range(trees["key"].depth)]
    expected = [np.sqrt(((b - a) ** 2).mean()) for a, b in pairwise(along)]
    np.testing.assert_allclose(found.key_contributions, expected, atol=1e-12)


def test_square_leaves_exactly_the_higher_products(case):
    f, trees = case
    expected = np.zeros_like(f)
    for j in range(trees["query"].depth - 1):
        for k in range(trees["key"].depth - 1):
            here = averages(f, trees, j, k)
            u, v = averages(f, trees, j + 1, k) - here, averages(f, trees, j, k + 1) - here
            w = averages(f, trees, j + 1, k + 1) - here - u - v
            expected += w**2 + 2 * w * (u + v)
    np.testing.assert_allclose(hs.paraproduct(f, trees, SQUARE).residual, expected, atol=1e-13)


def test_masked_entries_are_filled_and_only_visible_ones_scored(case):
    f, trees = case
    rng = np.random.default_rng(1)
    visible = rng.random(f.shape) < 0.6
    visible[:, 0] = True
    means = np.array([row[seen].mean() for row, seen in zip(f, visible, strict=True)])
    filled = np.where(visible, f, means[:, None])
    steps = [trees[axis].depth - 1 for axis in ("query", "key")]
    terms, local, one_axis = by_definition(filled, trees, EXP, steps)
    found = hs.paraproduct(np.where(visible, f, -np.inf), trees, "exp", visible=visible)
    approximation = sum((sum(pair) for pair in terms.values()), one_axis)
    np.testing.assert_allclose(found.approximation, np.where(visible, approximation, 0), atol=1e-12)
    np.testing.assert_allclose(found.residual, np.where(visible, np.exp(f) - approximation, 0), atol=1e-12)
    for pair in terms:
        rms = np.sqrt((local[pair][visible] ** 2).mean())
        np.testing.assert_allclose(found.local_residuals[pair], rms, atol=1e-12)
    error = np.linalg.norm((np.exp(f) - approximation)[visible])
    whole = np.linalg.norm((np.exp(f) - np.exp(filled.mean()))[visible])
    np.testing.assert_allclose(found.relative_residual, error / whole, atol=1e-12)


def test_paper_terms_are_the_reference_sums_of_equation_12():
    with np.load(DATA, allow_pickle=False) as golden:
        f = golden["f"]
        found = hs.paraproduct(f, hs.dyadic_trees(f.shape), "exp", terms="paper", levels=3)
        np.testing.assert_allclose(found.approximation, golden["total"], rtol=0, atol=1e-10)
        first = hs.paraproduct(
            f, hs.dyadic_trees(f.shape), (np.exp, np.exp, np.zeros_like), terms="paper", levels=3
        )
        np.testing.assert_allclose(first.approximation, golden["first"], rtol=0, atol=1e-10)
        second = hs.paraproduct(
            f, hs.dyadic_trees(f.shape), (np.exp, np.zeros_like, np.exp), terms="paper", levels=3
        )
        np.testing.assert_allclose(second.approximation, golden["second"], rtol=0, atol=1e-10)
