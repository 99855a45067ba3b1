"""Agreement with the reference results for a 32 x 40 x 24 tensor (child order: the reverse of ``nested``)."""

import numpy as np
import pytest

import headscape as hs
from samples import DATA, reference

AXES = ("query", "key", "head")


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "haar_case_b.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(params=["a0b1", "a1b0"])
def case(request, golden):
    prefix = request.param
    values = {name.split("/")[1]: array for name, array in golden.items() if name.startswith(prefix)}
    trees = {axis: hs.PartitionTree(values[f"tree_{axis}"]) for axis in AXES}
    return reference("b")[0]["X"], trees, values


def columns(tree, reference):
    """For every column of the reference, the wavelet that equals it."""
    distance = np.abs(reference[:, :, None] - hs.haar_basis(tree)[:, None, :]).max(axis=0)
    return distance.argmin(axis=1)


def test_basis_vectors_are_those_of_the_reference(case):
    _, trees, values = case
    for axis, tree in trees.items():
        reference = values[f"haar_{axis}"]
        found = columns(tree, reference)
        assert sorted(found) == list(range(tree.n_points))
        np.testing.assert_allclose(hs.haar_basis(tree)[:, found], reference, rtol=0, atol=1e-12)


def test_bi_haar_coefficients(case):
    x, trees, values = case
    q, k = (columns(trees[axis], values[f"haar_{axis}"]) for axis in ("query", "key"))
    coefficients = hs.tensor_haar(x[:, :, [0, 7]], {axis: trees[axis] for axis in ("query", "key")})
    np.testing.assert_allclose(coefficients[np.ix_(q, k)], values["bihaar_heads_0_7"], rtol=0, atol=1e-10)


def test_tri_haar_coefficients(case):
    x, trees, values = case
    index = [columns(trees[axis], values[f"haar_{axis}"])[::4] for axis in AXES]
    coefficients = hs.tensor_haar(x, trees)[np.ix_(*index)]
    np.testing.assert_allclose(coefficients, values["trihaar_every_4th"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("k", [100, 400])
def test_entropies_with_all_ties_at_the_cut(case, k):
    x, trees, values = case
    np.testing.assert_allclose(hs.head_entropy(x, trees, k), values[f"entropy_k{k}"], rtol=1e-10)
    np.testing.assert_allclose(hs.network_entropy(x, trees, k), values[f"entropy_net_k{k}"], rtol=1e-10)


@pytest.mark.parametrize("k", [100, 400])
def test_number_of_wavelets_used(case, k):
    _, trees, values = case
    top = hs.top_supports({axis: trees[axis] for axis in ("query", "key")}, k)
    assert [top.cut, top.used] == values[f"used_k{k}"].tolist()
    assert top.total == 32 * 40
