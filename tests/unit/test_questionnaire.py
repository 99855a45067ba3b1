"""Degenerate inputs end in trees and warnings; parameters are checked; planted groups are found."""

import dataclasses
import inspect

import numpy as np
import pytest

import headscape as hs
from headscape import notices as states
from headscape.engine import LocalEngine
from headscape.geometry.builders.flexible import flexible_tree
from headscape.geometry.questionnaire import folder_jaccard
from headscape.geometry.slices import ArraySlices
from samples import smooth_tensor

RNG = np.random.default_rng(0)
BASE = RNG.random((13, 15, 8))


def identical_heads():
    return np.repeat(BASE[:, :, :1], 8, axis=2)


def zero_heads():
    x = BASE.copy()
    x[:, :, [2, 5]] = 0
    return x


def one_outlier():
    x = BASE.copy()
    x[0, 0, 0] = 1e6
    return x


def sink():
    """Causal probabilities with most mass on the first key: its slice is far from all others."""
    logits = RNG.standard_normal((6, 40, 40))
    logits[:, :, 0] += 8
    visible = np.tril(np.ones((40, 40), dtype=bool))
    p = np.where(visible, np.exp(logits), 0.0)
    return np.moveaxis(p / p.sum(axis=2, keepdims=True), 0, 2)


DEGENERATE = {
    "identical heads": identical_heads(),
    "zero heads": zero_heads(),
    "all zero": np.zeros((7, 8, 5)),
    "constant": np.full((7, 8, 5), 3.0),
    "huge": BASE * 1e30,
    "huge float32": (BASE * 1e29).astype(np.float32),
    "tiny": BASE * 1e-300,
    "one outlier": one_outlier(),
    "sink": sink(),
    "identity": np.repeat(np.eye(9)[:, :, None], 4, axis=2),
    **{
        str(shape): RNG.random(shape)
        for shape in [(1, 1), (1, 1, 1), (1, 5, 3), (2, 2, 2), (3, 3, 3), (2, 7, 1)]
    },
    **{str(shape): RNG.random(shape) for shape in [(12, 12, 12), (3, 30, 2), (7, 1), (2, 3), (4, 3, 3, 2)]},
}


@pytest.mark.parametrize("options", [{}, {"tree": "binary"}, {"init": "gaussian"}], ids=str)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_input_ends_in_a_tree(name, options):
    x = DEGENERATE[name]
    with np.errstate(all="raise", under="ignore"):
        q = hs.Questionnaire(**options).fit(x, "query,key,head,axis3" if x.ndim == 4 else None)
    for axis, n in zip(q.trees_, x.shape, strict=True):
        assert q.trees_[axis].n_points == n
        assert np.isfinite(q.emd_[axis]).all()
        assert np.isfinite(q.affinities_[axis]).all()
        assert np.isfinite(q.eigenpairs_[axis].vectors).all()


def found(x, **options):
    return {(w.name, w.axis) for w in hs.organize(x, **options).warnings}


def test_identical_heads_are_named_flat():
    assert {(states.FLAT_GEOMETRY, "head"), (states.TREE_CLOSED, "head")} <= found(identical_heads())
    assert (states.TREE_CLOSED, "head") in found(identical_heads(), tree="binary")


def test_noise_is_named_flat_and_structure_is_not():
    noise = np.random.default_rng(1).standard_normal((40, 40, 30))
    assert {(states.FLAT_GEOMETRY, axis) for axis in ("query", "key", "head")} <= found(noise)
    assert found(hs.planted_tensor(40, 40, 3, 8)) == set()


def test_a_sink_is_named_disconnected_and_its_tree_travels_with_permutations():
    x = sink()
    assert (states.DISCONNECTED_AFFINITY, "key") in found(x)
    shuffle = np.random.default_rng(3).permutation(40)
    plain, moved = hs.organize(x), hs.organize(x[:, shuffle])
    levels = [sorted(sorted(shuffle[f].tolist()) for f in level) for level in moved.trees["key"].levels()]
    assert levels == [sorted(level) for level in plain.trees["key"].levels()]


def test_unsettled_emds_are_named():
    x = np.random.default_rng(5).random((12, 12, 12))
    q = hs.Questionnaire(n_iter=2).fit(x)
    assert q.history_["head"][-1].emd_change > 0.03
    assert states.EMD_NOT_SETTLED in {w.name for w in q.warnings_ if w.axis == "head"}
    assert np.isnan(q.history_["head"][0].emd_change)


def test_equally_distant_points_close_the_tree():
    affinity = np.full((30, 30), 0.2) + 0.8 * np.eye(30)
    tree, warnings = flexible_tree(affinity)
    assert tree.n_points == 30
    assert [w.name for w in warnings] == [states.TREE_CLOSED]


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_planted_groups_are_found_at_some_level(seed, noise):
    tensor = hs.planted_tensor(48, 40, 4, 8, groups=4, noise=noise, seed=seed)
    tree = hs.organize(tensor).trees["head"]
    assert max(adjusted_rand(tensor.provenance["groups"], level) for level in tree.labels) > 0.95


def adjusted_rand(a, b):
    """Hubert and Arabie's index, from the contingency table."""
    _, a = np.unique(a, return_inverse=True)
    _, b = np.unique(b, return_inverse=True)
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)

    def pairs(n):
        return (n * (n - 1) / 2).sum()

    both, one, other, total = (
        pairs(table),
        pairs(table.sum(1)),
        pairs(table.sum(0)),
        pairs(np.array([len(a)])),
    )
    chance = one * other / total
    half = (one + other) / 2
    return 1.0 if half == chance else (both - chance) / (half - chance)


def test_axes_can_have_different_trees():
    x = smooth_tensor((16, 16, 9), seed=2)
    trees = hs.organize(x, tree={"head": "binary"}).trees
    sizes = np.diff(
        np.append(np.flatnonzero(np.diff(trees["head"].labels[1][trees["head"].order], prepend=-1)), 9)
    )
    assert sizes.tolist() in ([5, 4], [4, 5])
    assert (
        trees["query"].levels() == hs.Questionnaire(tree={"head": "binary"}).fit(x).trees_["query"].levels()
    )


def test_larger_tree_constant_gives_more_folders():
    x = smooth_tensor((40, 30), seed=3)
    few, many = (hs.organize(x, tree_constant=c).trees["query"].n_folders for c in (0.5, 8.0))
    assert many > few


def test_folder_jaccard():
    tree = hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]]])
    other = hs.PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2], [3]], [[0], [1], [2], [3]]])
    assert folder_jaccard(tree, other) == 6 / 7
    assert folder_jaccard(tree, tree) == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_iter": 0}, "n_iter must be a whole number from 1 to 1000"),
        ({"init": "euclid"}, "init must be one of cosine, gaussian"),
        ({"tree": "ternary"}, "'flexible', 'binary' or 'linkage'"),
        ({"tree": {"row": "binary"}}, "says 'binary' for row"),
        ({"head_trees": "old"}, "'latest' or 'initial'"),
        ({"eps_scale": 0}, "eps_scale must be a number from 1e-06"),
        ({"tree_constant": -1}, "tree_constant must be a number from"),
        ({"n_eigs": 1}, "n_eigs must be a whole number from 2"),
        ({"n_iter": 10**20}, "n_iter must be a whole number from 1 to 1000"),
        ({"n_iter": 2.5}, "n_iter must be a whole number"),
        ({"n_eigs": 10**20}, "n_eigs must be a whole number from 2 to 10000"),
        ({"eps_scale": np.inf}, "eps_scale must be a number"),
        ({"tree": 3}, "tree must be 'flexible'"),
        ({"alpha": "1"}, "alpha must be a number"),
        ({"alpha": np.nan}, "alpha must be a number from -16 to 16"),
    ],
)
def test_bad_parameters(options, words):
    with pytest.raises(hs.HeadscapeError, match=words):
        hs.organize(BASE, **options)


def test_organize_shows_the_parameters_of_the_questionnaire():
    shown = inspect.signature(hs.organize).parameters
    for parameter in dataclasses.fields(hs.Questionnaire):
        assert parameter.name in shown
        if parameter.name != "engine":
            assert shown[parameter.name].default == parameter.default
    with pytest.raises(TypeError, match="iterations"):
        hs.organize(BASE, iterations=3)


def test_stacked_attentions_need_their_axes_named():
    x = np.moveaxis(BASE, 2, 0).reshape(2, 4, 13, 15)
    for refused in (hs.organize, hs.Questionnaire().fit):
        with pytest.raises(hs.HeadscapeError, match=r"\(2, 4, 13, 15\).*axes='layer,head,query,key'"):
            refused(x)
    named = hs.organize(x, axes="layer,head,query,key", n_iter=1)
    plain = hs.organize(hs.NetworkTensor.from_layers(x), n_iter=1)
    assert named.trees == plain.trees
    assert named.heads == plain.heads == tuple((layer, head) for layer in range(2) for head in range(4))
    assert hs.Questionnaire(n_iter=1).fit(x, "layer, head, query, key").trees_ == plain.trees
    with pytest.raises(hs.HeadscapeError, match="a NetworkTensor knows its axes"):
        hs.organize(hs.NetworkTensor(BASE), axes="query,key,head")


def test_more_axes_are_organized_by_each_other_if_named():
    x = RNG.random((4, 3, 3, 2))
    assert hs.organize(x, axes="query,key,head,axis3", n_iter=1).axes == ("query", "key", "head", "axis3")


def test_an_isolated_key_is_said_to_be_harmless_for_the_heads():
    keys = [
        w for w in hs.organize(sink()).warnings if (w.name, w.axis) == (states.DISCONNECTED_AFFINITY, "key")
    ]
    assert "1 of 40 keys is isolated" in keys[0].message
    assert not keys[0].affects_heads


def test_notices_of_the_heads_affect_them():
    found = hs.organize(identical_heads()).warnings
    assert {w.affects_heads for w in found if w.axis == "head"} == {True}
    assert "all 8 heads are identical" in " ".join(w.message for w in found)


def test_progress_names_iteration_and_stage():
    seen = []
    hs.organize(BASE, n_iter=2, progress=lambda stage, done, total: seen.append(stage))
    assert "iteration 2/2: EMD of key" in seen
    assert "query: initial affinity" in seen


def test_organized_tensor_and_its_errors():
    result = hs.organize(BASE, n_iter=1)
    moved = result.organized(BASE)
    assert moved[0, 0, 0] == BASE[result.order["query"][0], result.order["key"][0], result.order["head"][0]]
    with pytest.raises(hs.HeadscapeError, match="must have the shape"):
        result.organized(BASE[1:])
    with pytest.raises(hs.HeadscapeError, match="axis must be one of"):
        result.diffusion_map("layer")


@pytest.mark.parametrize("options", [{}, {"head_trees": "initial"}])
def test_what_is_prepared_ahead_changes_no_bit(options, monkeypatch):
    x = np.tril(np.random.default_rng(0).random((12, 40, 36))).transpose(1, 2, 0)
    for name in ("tree_emd", "slices"):
        monkeypatch.setattr(f"headscape.geometry.{name}.SMALL_WORK", 0.0)
    alone, beside = (hs.Questionnaire(engine=LocalEngine(threads), **options).fit(x) for threads in (1, 2))
    monkeypatch.setattr(ArraySlices, "prepare", lambda *_: None)
    never = hs.Questionnaire(engine=LocalEngine(2), **options).fit(x)
    for axis in ("query", "key", "head"):
        for other in (beside, never):
            np.testing.assert_array_equal(alone.emd_[axis], other.emd_[axis])
            np.testing.assert_array_equal(alone.trees_[axis].order, other.trees_[axis].order)
