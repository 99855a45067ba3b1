"""Agreement with the published numbers, and recovery of the hidden order."""

import numpy as np
import pytest

import headscape as hs
from samples import AXIS, WEIGHTS, reference, roughness, same_folders

CASES = [(case, p) for case in "ab" for p in WEIGHTS]


def names(case: str) -> dict[str, str]:
    return {k: v for k, v in AXIS.items() if case == "b" or k != "chan"}


@pytest.fixture(scope="module")
def fitted() -> dict:
    return {
        (case, p, trees): hs.Questionnaire(alpha=WEIGHTS[p][0], beta=WEIGHTS[p][1], head_trees=trees).fit(
            reference(case)[0]["X"]
        )
        for case, p in CASES
        for trees in ("initial", "latest")
    }


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 1e-5)])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("built_with", WEIGHTS)
@pytest.mark.parametrize("name", AXIS)
def test_emd_on_given_trees(name, built_with, weights, dtype, rtol):
    arrays, levels = reference("b")
    trees = {AXIS[a]: hs.PartitionTree.from_levels(t[-1]) for a, t in levels[built_with].items()}
    found = hs.tree_emd(arrays["X"].astype(dtype), trees, AXIS[name], *WEIGHTS[weights])
    np.testing.assert_allclose(
        found, arrays[f"{built_with}/emd_on_final_trees/{weights}/{name}"], rtol=rtol, atol=0
    )


@pytest.mark.parametrize(("case", "p"), CASES)
def test_trees_of_every_iteration(fitted, case, p):
    q = fitted[case, p, "initial"]
    for name, axis in names(case).items():
        expected = reference(case)[1][p][name]
        found = [q.initial_trees_[axis]] if axis in q.initial_trees_ else []
        found += [step.tree for step in q.history_[axis]]
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            assert same_folders(mine, theirs)


@pytest.mark.parametrize(("case", "p"), CASES)
def test_emds_and_affinities_of_the_whole_run(fitted, case, p):
    q = fitted[case, p, "initial"]
    for name, axis in names(case).items():
        arrays = reference(case)[0]
        np.testing.assert_allclose(q.emd_[axis], arrays[f"{p}/emd_{name}_it2"], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(q.affinities_[axis], arrays[f"{p}/aff_{name}"], rtol=1e-9)


@pytest.mark.parametrize("p", WEIGHTS)
def test_latest_trees_move_the_heads_away_from_the_published_numbers(fitted, p):
    latest, initial = fitted["b", p, "latest"], fitted["b", p, "initial"]
    assert not np.allclose(latest.emd_["head"], initial.emd_["head"], rtol=1e-3)


@pytest.mark.parametrize("p", WEIGHTS)
def test_diffusion_coordinates(p):
    arrays, _ = reference("b")
    affinity = arrays[f"{p}/aff_chan"]
    # The reference holds eigenvectors of D^-1/2 G D^-1/2: undo the step back to the random walk.
    found = hs.diffusion_map(affinity, 3, t=0) * np.sqrt(affinity.sum(axis=1))[:, None]
    expected = arrays[f"{p}/diffusion_top_coords"]
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-10)


@pytest.mark.parametrize("trees", ["initial", "latest"])
@pytest.mark.parametrize(("case", "p"), CASES)
def test_recovery_of_the_hidden_order(fitted, case, p, trees):
    arrays, _ = reference(case)
    rng = np.random.default_rng(0)
    for place, (name, axis) in enumerate(names(case).items()):
        x = arrays["X"]
        found = roughness(x, fitted[case, p, trees].trees_[axis].order, place)
        hidden = roughness(x, np.argsort(arrays[f"lat_{name}"]), place)
        random = np.mean([roughness(x, rng.permutation(x.shape[place]), place) for _ in range(20)])
        assert found <= 1.5 * hidden
        assert found <= (0.35 if (case, name) == ("b", "chan") else 0.25) * random
