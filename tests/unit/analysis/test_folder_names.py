import numpy as np
import pytest

from headscape.analysis.folder_names import (
    MIXED,
    FolderAttributes,
    discoveries,
    folder_effects,
    folder_names,
)
from headscape.geometry.partition_tree import PartitionTree
from samples import random_tree


def flat_tree(*sizes):
    """A tree of folders of these sizes, each splitting into points."""
    level = np.repeat(np.arange(len(sizes)), sizes)
    return PartitionTree(np.stack([np.zeros_like(level), level, np.arange(len(level))]))


def random_attributes(n, rng, scores=6):
    layers = np.arange(n) // 6
    return FolderAttributes(layers, {f"score_{i}": rng.random(n) for i in range(scores)}, np.arange(n) // 3)


def test_a_planted_pattern_names_its_folder():
    rng = np.random.default_rng(0)
    tree = flat_tree(20, 31, 29)
    first = 0.2 + 0.05 * rng.random(80)
    first[20:51] += 0.6
    known = FolderAttributes(
        rng.permutation(np.arange(80) // 4), {"self": rng.random(80), "first_token": first}
    )
    names = folder_names(tree, known)
    assert names[0] == ""
    medians = [np.median(first[20:51]), np.median(np.r_[first[:20], first[51:]])]
    assert names[2].startswith("31 heads, layers ")
    assert (
        f": attend to the first token (median score {medians[0]:.2f}; other heads {medians[1]:.2f})"
        in names[2]
    )
    assert "self" not in names[2]
    assert names[4:] == [""] * 80


def test_layers_in_the_middle_name_a_folder():
    layers = np.r_[np.arange(12) % 2 + 12, np.arange(60) // 2]
    names = folder_names(flat_tree(12, 60), FolderAttributes(layers, {}))
    assert names[1:3] == ["12 heads, layers 12-13", MIXED]


def test_heads_that_share_keys_name_a_folder_and_depth_alone_does_not():
    layers = np.repeat(np.arange(10), 9)
    groups = np.arange(90) // 3
    together = np.isin(groups, np.arange(0, 30, 3))  # one whole group of each layer
    order = np.argsort(~together, kind="stable")
    names = folder_names(flat_tree(30, 60), FolderAttributes(layers[order], {}, groups[order]))
    assert names[1].startswith("30 heads, layers 0-9: 30 pairs share a key-value head (")
    assert folder_names(flat_tree(9, 81), FolderAttributes(layers, {}, groups))[1] == "9 heads, layer 0"


def test_what_has_no_support_or_few_heads_gets_no_name():
    tree = flat_tree(2, 10, 20)
    known = FolderAttributes(np.arange(32) // 4, {"self": np.linspace(0, 1, 32)})
    assert [bool(name) for name in folder_names(tree, known)[:4]] == [False, False, True, True]
    support = np.ones(tree.n_folders)
    support[2] = 0.4
    assert [bool(name) for name in folder_names(tree, known, support)[:4]] == [False, False, False, True]


def test_a_difference_that_nobody_sees_gives_no_name():
    score = np.r_[np.full(15, 0.03), np.full(45, 0.01)] + 1e-4 * np.arange(60)
    known = FolderAttributes(np.tile(np.arange(6), 10), {"self": score})
    effects = folder_effects(flat_tree(15, 45), known, np.array([1]))
    assert effects.effect[0, 0] == pytest.approx(1)
    assert folder_names(flat_tree(15, 45), known)[1] == MIXED


def test_two_scores_that_say_the_same_are_named_once():
    sink = np.r_[np.full(15, 0.9), np.full(45, 0.1)] + 0.01 * np.random.default_rng(0).random(60)
    known = FolderAttributes(np.tile(np.arange(6), 10), {"sink": sink, "first_token": sink**2})
    assert folder_names(flat_tree(15, 45), known)[1].count("median") == 1


def test_rank_biserial_by_its_definition():
    rng = np.random.default_rng(4)
    tree, values = random_tree(24, rng), rng.integers(0, 9, 24).astype(float)
    chosen = np.flatnonzero((tree.folders.size > 2) & (tree.folders.size < 24))
    effects = folder_effects(tree, FolderAttributes(np.arange(24), {"x": values}), chosen, shuffles=9)
    for row, index in enumerate(chosen):
        inside = np.isin(np.arange(24), tree.folder(index))
        signs = np.sign(np.subtract.outer(values[inside], values[~inside]))
        assert effects.effect[row, 0] == pytest.approx(signs.mean())


def test_shuffled_labels_are_mixed():
    """Every name is false here, so at most 5 % of the shuffles may give one."""
    rng = np.random.default_rng(7)
    tree = flat_tree(
        5, 6, 8, 10, 12, 19
    )  # few enough tests that 999 shuffles can reach the smallest p-value needed
    wrong = 0
    for seed in range(200):
        known = random_attributes(60, rng, scores=4)
        order = rng.permutation(60)
        moved = FolderAttributes(
            known.layers[order], {k: v[order] for k, v in known.scores.items()}, known.groups[order]
        )
        names = folder_names(tree, moved, shuffles=999, seed=seed)
        wrong += any(name not in ("", MIXED) for name in names)
    assert wrong <= 17  # 10 expected at most; 17 is its 99 % quantile


def test_discoveries_keep_the_rate():
    rng = np.random.default_rng(0)
    assert discoveries(np.empty((0, 3))).shape == (0, 3)
    false = [discoveries(np.r_[np.full(20, 1e-6), rng.random(80)])[20:].sum() for _ in range(300)]
    assert np.mean(np.array(false) / (20 + np.array(false))) < 0.05
