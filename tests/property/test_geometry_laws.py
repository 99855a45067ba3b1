"""Laws of trees, averages, EMDs, random walks and the whole questionnaire."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headscape as hs
from headscape.analysis.tree_levels import TreeLevels
from headscape.engine import LocalEngine
from headscape.geometry.affinity import emd_affinity
from headscape.geometry.data_order import data_order
from headscape.geometry.diffusion import fix_signs, markov_eigenpairs
from headscape.notices import DISCONNECTED_AFFINITY
from samples import random_tree, require_equivariance, smooth_tensor, trees


def averaged(x, tree, level):
    """Replace every value by the average over its folder of a level: the operator P^level of the package."""
    levels = TreeLevels.of(tree)
    means = levels.sums(x[tree.order], axis=0)[level] / levels.sizes[level]
    out = np.empty(tree.n_points)
    out[tree.order] = levels.to_points(means, 0, level)
    return out


@given(trees(), st.data())
def test_tower_law(tree, data):
    x = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal(tree.n_points)
    a, b = (data.draw(st.integers(0, tree.depth - 1)) for _ in range(2))
    np.testing.assert_allclose(
        averaged(averaged(x, tree, a), tree, b), averaged(x, tree, min(a, b)), atol=1e-12
    )


@given(trees(), st.integers(0, 99))
def test_both_ways_to_average_agree(tree, seed):
    x = np.random.default_rng(seed).standard_normal(tree.n_points)
    means = hs.folder_averages(x, tree)
    for index, (first, last) in enumerate(
        zip(tree.folders.first_level, tree.folders.last_level, strict=True)
    ):
        for level in (first, last):
            np.testing.assert_allclose(averaged(x, tree, level)[tree.folder(index)], means[index], atol=1e-12)


@given(trees(), st.integers(0, 99))
def test_folder_averages_are_the_means_of_the_folders(tree, seed):
    x = np.random.default_rng(seed).standard_normal((3, tree.n_points, 2))
    found = hs.folder_averages(x, tree, axis=1)
    assert found.shape == (3, tree.n_folders, 2)
    for index in range(tree.n_folders):
        np.testing.assert_allclose(found[:, index], x[:, tree.folder(index)].mean(axis=1), atol=1e-12)


@given(trees())
def test_levels_rebuild_the_tree(tree):
    assert hs.PartitionTree.from_levels(tree.levels()) == tree
    assert hs.PartitionTree(tree.labels) == tree


@given(trees(), st.floats(-1, 2), st.floats(-1, 2))
def test_merged_weights_are_sums_over_levels(tree, alpha, beta):
    by_folder: dict = {}
    for level, folders in enumerate(tree.levels()):
        for folder in folders:
            w = (len(folder) / tree.n_points) ** beta * 2.0 ** (-alpha * level)
            by_folder[frozenset(folder)] = by_folder.get(frozenset(folder), 0.0) + w
    assert len(by_folder) == tree.n_folders
    weights = tree.weights(alpha, beta)
    for index in range(tree.n_folders):
        assert weights[index] == pytest.approx(by_folder[frozenset(tree.folder(index).tolist())], rel=1e-9)


@given(trees(min_points=2))
def test_children_partition_their_parent(tree):
    folders = tree.folders
    for index in np.flatnonzero(folders.size > 1):
        children = range(folders.child_start[index], folders.child_stop[index])
        assert len(children) >= 2
        assert np.concatenate([tree.folder(c) for c in children]).tolist() == tree.folder(index).tolist()
        assert all(folders.parent[c] == index for c in children)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 7), st.integers(2, 6))
def test_emd_is_a_metric(seed, q, k, h):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((q, k, h))
    emd = hs.tree_emd(x, {"query": random_tree(q, rng), "key": random_tree(k, rng)}, "head")
    np.testing.assert_array_equal(emd, emd.T)
    assert (np.diag(emd) == 0).all()
    assert (emd[~np.eye(h, dtype=bool)] > 0).all()
    assert (emd[:, :, None] <= (emd[:, None, :] + emd.T[None, :, :]) * (1 + 1e-12)).all()


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_emd_scales_and_ignores_a_common_shift(seed, factor):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 5, 3))
    t = {"query": random_tree(4, rng), "key": random_tree(5, rng)}
    emd = hs.tree_emd(x, t, "head")
    np.testing.assert_allclose(hs.tree_emd(factor * x, t, "head"), factor * emd, rtol=1e-9)
    shift = rng.standard_normal((4, 5, 1))
    np.testing.assert_allclose(hs.tree_emd(x + shift, t, "head"), emd, rtol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_random_walk(seed, n):
    points = np.random.default_rng(seed).standard_normal((n, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    affinity = emd_affinity(distance)
    pairs = markov_eigenpairs(affinity, n_eigs=n)
    r = affinity.sum(axis=1)
    walk = affinity / np.multiply.outer(r, r)
    walk /= walk.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(walk.sum(axis=1), 1.0)
    assert pairs.values[0] == 1.0
    assert (pairs.values <= 1 + 1e-9).all()
    image = walk @ pairs.vectors
    np.testing.assert_allclose(np.abs(image), np.abs(pairs.vectors * pairs.values), atol=1e-8)


@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
def test_fixed_signs_ignore_the_solver_and_the_order(seed, n):
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((n, 3))
    once = fix_signs(v)
    np.testing.assert_array_equal(fix_signs(v * rng.choice([-1, 1], 3)), once)
    order = rng.permutation(n)
    np.testing.assert_array_equal(fix_signs(v[order]), once[order])


@pytest.mark.parametrize("kind", ["flexible", "binary", "linkage"])
@pytest.mark.parametrize("shape", [(14, 17, 9), (20, 16)])
@pytest.mark.parametrize("seed", range(3))
def test_permutation_equivariance(shape, seed, kind):
    x = smooth_tensor(shape, seed, noise=0.1)
    require_equivariance(x, seed + 100, tree=kind)


@pytest.mark.parametrize("kind", ["flexible", "binary", "linkage"])
@pytest.mark.parametrize("seed", range(8))
def test_two_isolated_keys_keep_trees_orders_and_entropies(seed, kind):
    """They are equally far from everything in the random walk: only the data can break such ties."""
    x = smooth_tensor((24, 32, 8), seed=0, noise=0.1)
    rng = np.random.default_rng(1)
    x[:, 5] += 200 * (1 + 0.1 * rng.random((24, 8)))
    x[:, 11] -= 200 * (1 + 0.1 * rng.random((24, 8)))
    plain = require_equivariance(x, seed, tree=kind)
    assert (DISCONNECTED_AFFINITY, "key") in {(w.name, w.axis) for w in plain.warnings}


@pytest.mark.parametrize("init", ["cosine", "gaussian"])
@pytest.mark.parametrize("seed", range(3))
def test_zero_and_equal_slices_keep_folders_and_entropies(seed, init):
    x = np.random.default_rng(seed).random((12, 14, 6))
    x[:, [2, 5, 7]] = 0
    x[3:6] = 0
    x[:, 9] = x[:, 10]
    require_equivariance(x, seed, init=init, same_order=False)


def test_data_order_is_by_total_then_norm_then_index():
    x = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 2.0], [2.0, 0.0]])
    rounding = np.array([0.0, 1e-15, 0.0, -1e-15])
    assert data_order(np.array([1.0, 2.0, 2.0, 2.0]) + rounding, x).tolist() == [0, 1, 2, 3]
    assert data_order(np.array([2.0, 2.0, 2.0, 1.0]) + rounding, x).tolist() == [3, 1, 2, 0]
    assert data_order(np.ones(4), x.T, axis=1).tolist() == [1, 2, 3, 0]


def test_duplicates_stay_together():
    x = smooth_tensor((12, 11, 6), seed=4, noise=0.1)
    twice = np.concatenate([x, x], axis=2)
    tree = hs.organize(twice).trees["head"]
    finest = [set(folder) for folder in tree.levels()[-2]]
    for head in range(6):
        assert any({head, head + 6} <= folder for folder in finest)
        position = tree.labels[-1]
        assert abs(int(position[head]) - int(position[head + 6])) == 1


@pytest.mark.parametrize("compiled", [True, False])
def test_any_number_of_threads_gives_the_same_bits(compiled, monkeypatch):
    monkeypatch.setattr("headscape.geometry.tree_emd.SMALL_WORK", 0 if compiled else 1e30)
    x = hs.planted_tensor(90, 80, 4, 10, noise=0.4).data
    results = [hs.organize(x, engine=LocalEngine(threads), n_iter=2) for threads in (1, 2, 5)]
    for other in results[1:]:
        for axis in other.axes:
            np.testing.assert_array_equal(other.emd[axis], results[0].emd[axis])
            assert other.trees[axis] == results[0].trees[axis]


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5)))
def test_save_and_load_give_the_same(tmp_path_factory, seed, shape):
    rng = np.random.default_rng(seed)
    tensor = hs.NetworkTensor(
        rng.standard_normal(shape),
        heads=[(h // 2, h % 2) for h in range(shape[2])],
        tokens=list("abcdefg"[: shape[0]]),
    )
    result = hs.organize(tensor, n_iter=2)
    path = tmp_path_factory.mktemp("store") / "organization"
    result.save(path)
    again = hs.Organization.load(path)
    assert again.parameters == result.parameters
    assert (again.heads, again.tokens, again.key_tokens, again.field) == (
        result.heads,
        result.tokens,
        result.key_tokens,
        result.field,
    )
    assert again.warnings == result.warnings
    assert again.input_hash == result.input_hash
    for axis in result.axes:
        assert again.trees[axis] == result.trees[axis]
        np.testing.assert_array_equal(again.emd[axis], result.emd[axis])
        np.testing.assert_array_equal(again.affinities[axis], result.affinities[axis])
        np.testing.assert_array_equal(again.eigenpairs[axis].vectors, result.eigenpairs[axis].vectors)
        np.testing.assert_array_equal(again.eigenpairs[axis].values, result.eigenpairs[axis].values)
        for mine, theirs in zip(again.history[axis], result.history[axis], strict=True):
            assert mine.tree == theirs.tree
            np.testing.assert_array_equal(
                [mine.emd_change, mine.folder_jaccard], [theirs.emd_change, theirs.folder_jaccard]
            )
