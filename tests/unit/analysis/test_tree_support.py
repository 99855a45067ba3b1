import time

import numpy as np
import pytest

from headscape.analysis.tree_support import consensus_tree, folder_support, noisy_emd, tree_support
from headscape.geometry.affinity import emd_affinity
from headscape.geometry.builders.grown import grown_tree
from headscape.geometry.data_order import data_order
from headscape.geometry.head_geometry import head_geometry
from headscape.geometry.partition_tree import PartitionTree
from samples import random_tree, same_folders


def grow(kind):
    return lambda emd: grown_tree(emd_affinity(emd), emd, data_order(emd.sum(axis=1)), kind=kind)[0]


def planted_windows(windows=6, groups=4, size=12, noise=0.05, seed=0):
    """EMDs of heads in groups; inside a group only the noise of a window tells heads apart."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    far = np.where(group[:, None] == group, 1.0, 3.0)
    np.fill_diagonal(far, 0.0)
    return group, [noisy_emd(far, noise, rng) for _ in range(windows)]


@pytest.mark.parametrize("kind", ["flexible", "linkage"])
def test_planted_folders_have_support_and_splits_of_noise_have_none(kind):
    group, emds = planted_windows()
    tree = head_geometry(emds, tree=kind).tree
    found = tree_support(tree, emds, [grow(kind)(emd) for emd in emds], grow(kind))
    planted, noise = [], []
    for index in range(tree.n_folders):
        members = tree.folder(index)
        if np.unique(group[members]).size == 1 and len(members) >= 3:
            (planted if len(members) == 12 else noise).append(index)
    assert len(planted) == 4
    assert len(noise) >= 4
    for values in (found.windows, found.noise, found.both):
        assert values[planted].min() >= 0.9
    assert found.windows[noise].mean() < 0.15
    assert found.both[noise].mean() < 0.25


def test_splits_smaller_than_the_noise_do_not_come_back():
    _, emds = planted_windows(windows=1, noise=1e-6)
    tree = grow("flexible")(emds[0])
    found = tree_support(tree, emds, [tree], grow("flexible"))
    np.testing.assert_array_equal(found.both, found.noise)
    size = tree.folders.size
    assert found.both[size == 12].min() == 1
    inside = (size >= 3) & (size < 12)
    assert inside.sum() >= 4
    assert found.both[inside].mean() < 0.15


def test_support_equals_a_loop_over_sets():
    rng = np.random.default_rng(5)
    tree, *others = (random_tree(14, rng) for _ in range(6))
    wanted = []
    for index in range(tree.n_folders):
        own = set(tree.folder(index).tolist())
        trivial = len(own) in (1, 14)
        hits = 0
        for other in others:
            sets = [set(other.folder(i).tolist()) for i in range(other.n_folders)]
            hits += any(len(own & s) / len(own | s) >= 0.6 for s in sets if trivial or 1 < len(s) < 14)
        wanted.append(hits / len(others))
    np.testing.assert_allclose(folder_support(tree, others, same=0.6), wanted)


def test_the_root_vouches_for_no_other_folder():
    big = PartitionTree.from_levels([[range(10)], [range(9), [9]], [[i] for i in range(10)]])
    assert folder_support(big, [PartitionTree.trivial(10)])[1] == 0


def test_noise_is_symmetric_relative_and_of_the_stated_size():
    emd = np.abs(np.subtract.outer(np.arange(60.0), np.arange(60.0)))
    noisy = noisy_emd(emd, 0.01, np.random.default_rng(0))
    np.testing.assert_array_equal(noisy, noisy.T)
    assert not np.diag(noisy).any()
    upper = np.triu_indices(60, 1)
    assert np.std(noisy[upper] / emd[upper] - 1) == pytest.approx(0.01, rel=0.05)


def test_the_consensus_has_what_most_trees_have():
    levels = [
        [[0, 1, 2, 3, 4], [5, 6, 7]],
        [[0, 1, 2, 3, 4], [5, 6], [7]],
        [[0, 1, 2, 5], [3, 4, 6, 7]],
    ]
    fine = [[0, 1], [2], [3], [4], [5], [6], [7]]
    trees = [
        PartitionTree.from_levels([[range(8)], level, [[i] for i in range(8)]]) for level in levels[:2]
    ] + [PartitionTree.from_levels([[range(8)], levels[2], fine, [[i] for i in range(8)]])]
    exact = consensus_tree(trees, same=1.0)
    assert same_folders(exact, [[list(range(8))], [[0, 1, 2, 3, 4], [5], [6], [7]], [[i] for i in range(8)]])
    assert same_folders(consensus_tree([trees[2]]), trees[2].levels())


def test_the_consensus_is_a_tree_of_majority_folders():
    rng = np.random.default_rng(2)
    group, emds = planted_windows(noise=0.2)
    trees = [grow("flexible")(emd) for emd in emds]
    tree = consensus_tree(trees)
    proper = [i for i in range(tree.n_folders) if 1 < tree.folders.size[i] < tree.n_points]
    assert (folder_support(tree, trees)[proper] > 0.5).all()
    planted = [sorted(np.flatnonzero(group == g).tolist()) for g in range(4)]
    found = [sorted(tree.folder(i).tolist()) for i in proper]
    assert all(folder in found for folder in planted)
    unrelated = consensus_tree([random_tree(30, rng) for _ in range(7)])
    assert unrelated.n_folders < 35


@pytest.mark.parametrize("n", [1, 2])
def test_few_heads(n):
    emd = 1.0 - np.eye(n)
    tree = PartitionTree.trivial(n)
    found = tree_support(tree, [emd, emd], [tree, tree], grow("flexible"), draws=2)
    assert found.both.tolist() == [1.0] * tree.n_folders
    assert consensus_tree([tree, tree]) == tree


def test_a_thousand_heads_take_little_time():
    rng = np.random.default_rng(0)
    trees = [random_tree(1024, rng) for _ in range(27)]
    start = time.perf_counter()
    folder_support(trees[0], trees[1:])
    assert time.perf_counter() - start < 20
