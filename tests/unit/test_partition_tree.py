import numpy as np
import pytest
from hypothesis import given

import headscape as hs
from headscape.errors import InputError
from samples import trees


def test_unchanged_folders_are_stored_once():
    tree = hs.PartitionTree.from_levels([[[0, 1, 2]], [[0, 1], [2]], [[0, 1], [2]], [[0], [1], [2]]])
    assert tree.n_folders == 5
    folders = tree.folders
    assert folders.first_level.tolist() == [0, 1, 1, 3, 3]
    assert folders.last_level.tolist() == [0, 2, 3, 3, 3]
    np.testing.assert_allclose(tree.weights(0, 1), [1, 2 * 2 / 3, 3 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(tree.weights(1, 0), [1, 0.75, 0.875, 0.125, 0.125])


def test_one_point():
    tree = hs.PartitionTree.trivial(1)
    assert (tree.depth, tree.n_folders, tree.order.tolist(), tree.levels()) == (1, 1, [0], [[[0]]])


def test_given_order_of_folders_is_kept_even_if_levels_disagree():
    tree = hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[2, 3], [0, 1]], [[0], [1], [3], [2]]])
    assert tree.order.tolist() == [3, 2, 0, 1]


def test_reordering_keeps_folders():
    tree = hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]]])
    turned = tree.reordered(np.array([3, 2, 0, 1]))
    assert turned.order.tolist() == [3, 2, 0, 1]
    assert sorted(turned.levels()[1]) == sorted(tree.levels()[1])
    with pytest.raises(hs.HeadscapeError, match="tears one apart"):
        tree.reordered(np.array([0, 2, 1, 3]))


def test_newick_names_are_quoted():
    tree = hs.PartitionTree.trivial(3)
    assert tree.to_newick(["a b", "it's", "c"]) == "('a b','it''s',c);"


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([], "at least one level"),
        ([[[0], [1]], [[0], [1]]], "level 0 of a tree must be one folder"),
        ([[[0, 1]], [[0, 1]]], "single points only"),
        ([[[0, 1, 2]], [[0, 1], [2]], [[0], [1, 2]], [[0], [1], [2]]], "level 2 one does not"),
        ([[[0, 1]], [[0], [0]]], "once each, but those of level 1"),
        ([[[0, 2]], [[0], [2]]], "points 0 to 1"),
    ],
)
def test_what_is_no_tree(levels, words):
    with pytest.raises(hs.HeadscapeError, match=words):
        hs.PartitionTree.from_levels(levels)


@pytest.mark.parametrize("labels", [np.zeros(3, int), np.zeros((0, 3), int), np.zeros((2, 2))])
def test_labels_of_the_wrong_kind(labels):
    with pytest.raises(hs.HeadscapeError, match="array of integers"):
        hs.PartitionTree(labels)


def test_folder_averages_need_a_tree_that_fits():
    with pytest.raises(hs.HeadscapeError, match="must have 4 points, but has 3"):
        hs.folder_averages(np.zeros(4), hs.PartitionTree.trivial(3))


@given(trees(min_points=1, max_points=16))
def test_cuts_give_every_number_of_clusters_and_refine_each_other(tree):
    before = None
    for k in range(1, tree.n_points + 1):
        labels = tree.cut(k)
        assert sorted(set(labels)) == list(range(k))
        if before is not None:
            assert len({*zip(before, labels, strict=True)}) == k
        before = labels


def test_cuts_of_whole_levels_are_those_levels():
    tree = hs.PartitionTree.from_levels([[[0, 1, 2, 3, 4]], [[0, 1], [2, 3, 4]], [[0], [1], [2], [3], [4]]])
    assert tree.cut(2).tolist() == [1, 1, 0, 0, 0]
    with pytest.raises(InputError, match="from 1 to the 5 points"):
        tree.cut(6)
