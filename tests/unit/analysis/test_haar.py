import numpy as np
import pytest

import headscape as hs
from headscape.analysis.sparsity import sparsity_curves
from headscape.analysis.supports import top_supports
from tree_shapes import balanced_tree, uneven_tree


@pytest.fixture
def tree():
    return hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[3], [0, 1, 2]], [[3], [2], [0], [1]]])


def test_largest_child_comes_first_and_equal_ones_keep_the_order_of_the_tree(tree):
    w = hs.wavelets(tree)
    sides = [[side.tolist() for side in w.points(i)] for i in range(1, 4)]
    assert sides == [[[2, 0, 1], [3]], [[2], [0, 1]], [[0], [1]]]
    assert list(zip(w.level, w.folder, w.j, w.support, strict=True)) == [
        (0, 0, 0, 4),
        (0, 0, 1, 4),
        (1, 2, 1, 3),
        (1, 2, 2, 2),
    ]
    assert w.to_frame().loc[2].to_dict() == {
        "level": 1,
        "folder": 2,
        "j": 1,
        "support": 3,
        "first_side": 1,
        "rest": 2,
    }


def test_level_is_the_last_one_before_the_split():
    stays = hs.PartitionTree.from_levels([[[0, 1, 2]], [[0, 1], [2]], [[0, 1], [2]], [[0], [1], [2]]])
    assert hs.wavelets(stays).level.tolist() == [0, 0, 2]


def test_values_of_a_wavelet(tree):
    vector = hs.haar_basis(tree)[:, 1]
    a, b = 3, 1
    np.testing.assert_allclose(vector[[0, 1, 2]], np.sqrt(b / (a * (a + b))))
    np.testing.assert_allclose(vector[3], -np.sqrt(a / (b * (a + b))))


def test_coefficient_over_norm_is_the_difference_of_the_side_means(tree):
    x = np.array([1.0, 5.0, -2.0, 7.0])
    w = hs.wavelets(tree)
    for i in range(1, 4):
        first, rest = w.points(i)
        expected = x[first].mean() - x[rest].mean()
        np.testing.assert_allclose(hs.haar(x, tree)[i] / w.difference_norm[i], expected)


def test_a_single_point_has_only_the_constant():
    one = hs.PartitionTree.trivial(1)
    assert hs.haar(np.array([3.0]), one).tolist() == [3.0]
    assert hs.haar_basis(one).tolist() == [[1.0]]


def test_piecewise_constant_head_has_as_many_coefficients_as_pieces():
    rng = np.random.default_rng(0)
    query, key = uneven_tree(40, rng), balanced_tree(32)
    q, k = query.labels[2], key.labels[3]
    values = rng.standard_normal((q.max() + 1, k.max() + 1))
    head = values[np.ix_(q, k)]
    coefficients = hs.tensor_haar(head, {"query": query, "key": key})
    assert (np.abs(coefficients) > 1e-12).sum() == values.size


@pytest.mark.parametrize(("given", "kept"), [("f4", "f4"), ("f2", "f4"), ("i8", "f8"), ("f8", "f8")])
def test_dtypes(tree, given, kept):
    assert hs.haar(np.arange(4, dtype=given), tree).dtype == kept
    assert hs.inverse_haar(np.arange(4, dtype=given), tree).dtype == kept


def test_input_is_left_alone(tree):
    x = np.arange(4.0)
    hs.haar(x, tree)
    hs.inverse_haar(x, tree)
    assert x.tolist() == [0, 1, 2, 3]


def test_axes_by_name_and_by_number_agree(tree):
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    assert np.array_equal(hs.haar(x, tree, "key"), hs.haar(x, tree, 1))
    assert np.array_equal(hs.haar(x, tree, -2), hs.haar(x, tree, 1))


def test_network_tensors_are_arrays_too(tree):
    x = np.random.default_rng(0).standard_normal((4, 2, 3))
    assert np.array_equal(hs.haar(hs.NetworkTensor(x), tree, "query"), hs.haar(x, tree, 0))


def test_trees_that_do_not_fit_are_refused(tree):
    with pytest.raises(hs.HeadscapeError, match=r"the tree for axis 0 must have 5 points, but has 4"):
        hs.haar(np.zeros(5), tree)
    with pytest.raises(hs.HeadscapeError, match=r"the tree for the key axis must have 5 points, but has 4"):
        hs.tensor_haar(np.zeros((4, 5)), {"query": tree, "key": tree})
    with pytest.raises(hs.HeadscapeError, match=r"the tree for the query axis must have 5 points"):
        hs.inverse_tensor_haar(np.zeros((5, 4)), {"query": tree})


def test_unknown_axes_are_refused(tree):
    with pytest.raises(hs.HeadscapeError, match=r"axis must be one of query, key .* but is 'head'"):
        hs.haar(np.zeros((4, 4)), tree, "head")
    with pytest.raises(hs.HeadscapeError, match="axis must be from -2 to 1"):
        hs.haar(np.zeros((4, 4)), tree, 2)


@pytest.mark.parametrize(
    "function",
    [
        hs.head_entropy,
        hs.network_entropy,
        hs.tensor_haar,
        hs.inverse_tensor_haar,
        hs.sparsity_curve,
        hs.denoise,
        lambda x, trees: sparsity_curves(x, trees, draws=1).shuffled,
        lambda x, trees: hs.best_approximation(x, trees, 3),
        lambda x, trees: hs.holder_exponent(x, trees).mixed,
        lambda x, trees: hs.tree_emd(x, trees, "query"),
        lambda x, trees: top_supports(trees, 20).used,
    ],
)
def test_an_organization_is_as_good_as_its_trees(function):
    x = np.random.default_rng(0).random((8, 7, 3))
    organization = hs.organize(x, n_iter=1)
    np.testing.assert_array_equal(function(x, organization), function(x, dict(organization.trees)))
    for wrong in (3, "trees", {"query": 3}, organization.trees["query"]):
        with pytest.raises(
            hs.HeadscapeError, match="dict from axis names to PartitionTree, or what organize"
        ):
            function(x, wrong)


def test_a_matrix_and_its_organization():
    x = np.random.default_rng(0).random((8, 7))
    organization = hs.organize(x, n_iter=1)
    for function in (hs.paraproduct, lambda f, trees: hs.softmax_experiment(f, trees=trees).complete):
        a, b = (function(x, trees).approximation for trees in (organization, organization.trees))
        np.testing.assert_array_equal(a, b)
