import numpy as np
import pytest

import headscape as hs
from headscape.geometry.affinity import emd_affinity
from headscape.geometry.builders.flexible import flexible_tree
from headscape.geometry.builders.grown import folder_counts, grown_tree
from headscape.geometry.builders.linkage import linkage_tree
from samples import same_folders, smooth_tensor


def distances(points):
    return np.linalg.norm(points[:, None] - points, axis=2)


def test_levels_have_the_sizes_of_the_flexible_tree():
    rng = np.random.default_rng(0)
    emd = distances(rng.normal(size=(60, 3)))
    flexible, _ = flexible_tree(emd_affinity(emd))
    tree, _, _ = grown_tree(emd_affinity(emd), emd, np.arange(60), kind="linkage")
    assert folder_counts(tree) == folder_counts(flexible)
    assert len(folder_counts(tree)) > 3


def test_folders_are_those_of_average_linkage():
    from scipy.cluster.hierarchy import average, fcluster
    from scipy.spatial.distance import squareform

    emd = distances(np.random.default_rng(1).normal(size=(40, 2)))
    tree = linkage_tree(emd, [3, 11])
    for level, k in ((1, 3), (2, 11)):
        wanted = fcluster(average(squareform(emd, checks=False)), k, "maxclust")
        assert len(set(zip(wanted, tree.labels[level], strict=True))) == k == tree.labels[level].max() + 1


def test_ties_are_not_cut():
    places = np.repeat([0.0, 1.0, 5.0], 3)[:, None]
    # Three places of three equal points: eight folders would cut duplicates apart.
    assert same_folders(
        linkage_tree(distances(places), [8]),
        [[list(range(9))], [[0, 1, 2], [3, 4, 5], [6, 7, 8]], [[i] for i in range(9)]],
    )
    flat = 1.0 - np.eye(6)
    assert linkage_tree(flat, [2, 3]) == hs.PartitionTree.trivial(6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_points(n):
    tree = linkage_tree(distances(np.arange(float(n))[:, None]), [2])
    assert tree.n_points == n


def test_every_axis_can_have_it():
    x = smooth_tensor((14, 12, 10), seed=2)
    linked = hs.organize(x, tree="linkage", n_iter=1)
    assert linked.parameters["tree"] == "linkage"
    assert {axis: tree.n_points for axis, tree in linked.trees.items()} == {
        "query": 14,
        "key": 12,
        "head": 10,
    }
    mixed = hs.organize(x, tree={"head": "linkage"}, n_iter=1)
    plain = hs.organize(x, n_iter=1)
    assert mixed.trees["query"] != linked.trees["query"] or mixed.trees["key"] != linked.trees["key"]
    # The head comes first in an iteration, so its EMDs do not see its own tree.
    np.testing.assert_array_equal(mixed.emd["head"], plain.emd["head"])
    wanted = linkage_tree(plain.emd["head"], folder_counts(plain.trees["head"]))
    assert same_folders(mixed.trees["head"], wanted.levels())
