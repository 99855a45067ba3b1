"""The EMD against loops written from the definition, and against transport by linear programming."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import headscape as hs
from samples import random_tree


def emd_by_definition(x, trees, axis, alpha, beta):
    """Sum over all levels (not distinct folders) of all trees, slice by slice."""
    names = ("query", "key", "head")[: x.ndim]
    others = [a for a in names if a != axis]
    slices = np.moveaxis(x, names.index(axis), 0)
    n = len(slices)
    folders = [
        [
            (f, (len(f) / trees[a].n_points) ** beta * 2.0 ** (-alpha * level))
            for level, fs in enumerate(trees[a].levels())
            for f in fs
        ]
        for a in others
    ]
    out = np.zeros((n, n))
    for p, j in itertools.product(range(n), range(n)):
        difference = slices[p] - slices[j]
        for product in itertools.product(*folders):
            weight = np.prod([w for _, w in product])
            out[p, j] += weight * abs(difference[np.ix_(*(f for f, _ in product))].mean())
    return out


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (1.0, 0.0), (0.5, 0.7), (-1.0, 2.0)])
@pytest.mark.parametrize("shape", [(5, 4), (4, 5, 3)])
def test_definition(shape, alpha, beta):
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape)
    names = ("query", "key", "head")[: len(shape)]
    trees = {a: random_tree(n, rng) for a, n in zip(names, shape, strict=True)}
    for axis in names:
        found = hs.tree_emd(x, trees, axis, alpha, beta)
        np.testing.assert_allclose(
            found, emd_by_definition(x, trees, axis, alpha, beta), rtol=1e-12, atol=1e-14
        )


def transport(a, b, cost):
    """The cheapest way to move the masses a to b."""
    n, m = cost.shape
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    result = linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a, b]), bounds=(0, None)
    )
    assert result.success
    return result.fun


def tree_metric(tree, alpha, beta):
    """Path lengths on the tree with edges of length w(F) / |F| to the parent; the root's edge leads to the ground."""
    folders = tree.folders
    length = tree.weights(alpha, beta) / folders.size
    above = []
    for leaf in tree.leaf_folders:
        path = []
        while leaf >= 0:
            path.append(int(leaf))
            leaf = folders.parent[leaf]
        above.append(set(path))
    n = tree.n_points
    metric = np.zeros((n + 1, n + 1))
    for i, j in itertools.product(range(n), range(n)):
        metric[i, j] = sum(length[f] for f in above[i] ^ above[j])
    for i in range(n):
        metric[i, n] = metric[n, i] = sum(length[f] for f in above[i])
    return metric


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (1.0, 0.0), (0.4, 0.6)])
@pytest.mark.parametrize("equal_sums", [True, False])
def test_one_tree_is_transport(alpha, beta, equal_sums):
    rng = np.random.default_rng(2)
    for n in (3, 6, 9):
        tree = random_tree(n, rng)
        x = rng.random((2, n))
        if equal_sums:
            x /= x.sum(axis=1, keepdims=True)
        found = hs.tree_emd(x, {"key": tree}, "query", alpha, beta)[0, 1]
        # The ground takes what one slice has more than the other, at the length of the root's edge.
        a, b = x.sum(axis=1)
        start, end = np.append(x[0], max(b - a, 0)), np.append(x[1], max(a - b, 0))
        assert found == pytest.approx(transport(start, end, tree_metric(tree, alpha, beta)), rel=1e-9)


def test_two_trees_stay_below_transport():
    rng = np.random.default_rng(3)
    q, k = 3, 4
    trees = {"query": random_tree(q, rng), "key": random_tree(k, rng)}
    units = np.eye(q * k).reshape(q, k, q * k)
    ground = hs.tree_emd(units, trees, "head")
    ratios = []
    for _ in range(10):
        x = rng.random((q, k, 2))
        x /= x.sum(axis=(0, 1))
        emd = hs.tree_emd(x, trees, "head")[0, 1]
        w1 = transport(x[:, :, 0].ravel(), x[:, :, 1].ravel(), ground)
        ratios.append(emd / w1)
    assert max(ratios) <= 1 + 1e-9
    assert min(ratios) < 1 - 1e-6
