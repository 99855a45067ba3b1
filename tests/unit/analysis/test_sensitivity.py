import numpy as np
import pytest

import headscape as hs
from headscape.analysis.sensitivity import Rerun, Sensitivity
from headscape.notices import PARAMETER_SENSITIVE
from headscape.tensor.synthetic import planted_tensor


@pytest.fixture(scope="module")
def tensor():
    return planted_tensor(20, 20, layers=3, heads_per_layer=4, groups=3)


def test_default_grid_is_around_the_chosen_values(tensor):
    told = []
    found = hs.sensitivity(tensor, k=80, n_iter=1, progress=lambda *a: told.append(a[1:]))
    frame = found.to_frame()
    assert list(zip(frame["parameter"], frame["value"], strict=True)) == [
        ("eps_scale", "0.5"),
        ("eps_scale", "2.0"),
        ("alpha, beta", "(0.5, 1.0)"),
        ("alpha, beta", "(0.0, 0.5)"),
        ("init", "gaussian"),
        ("tree", "binary"),
        ("k", "40"),
        ("k", "160"),
    ]
    assert told[-1] == (8, 8)
    assert (frame["emd_correlation"] > 0.5).all()
    # Other k leave trees and EMDs as they are.
    of_k = frame[frame["parameter"] == "k"]
    np.testing.assert_allclose(of_k[["emd_correlation", "tree_jaccard"]], 1)


def test_reruns_are_what_a_user_would_run(tensor):
    found = hs.sensitivity(tensor, k=80, n_iter=1, grid={"eps_scale": [3.0]}).reruns[0]
    base, other = hs.organize(tensor, n_iter=1), hs.organize(tensor, n_iter=1, eps_scale=3.0)
    a, b = (hs.head_entropy(tensor, o.trees, 80) for o in (base, other))
    ranks = [np.argsort(np.argsort(e)) for e in (a, b)]
    assert found.rank_correlation == pytest.approx(np.corrcoef(ranks)[0, 1])


def test_other_k_are_tried_on_the_same_trees(tensor):
    found = hs.sensitivity(tensor, k=300, n_iter=1, grid={"k": [2]}).reruns[0]
    trees = hs.organize(tensor, n_iter=1).trees
    ranks = [np.argsort(np.argsort(hs.head_entropy(tensor, trees, k))) for k in (300, 2)]
    assert found.rank_correlation == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert found.rank_correlation < 0.999


def test_other_fields_are_organized_for_themselves(tensor):
    fields = {"same": tensor.data, "noise": np.random.default_rng(0).standard_normal(tensor.shape)}
    found = hs.sensitivity(tensor, k=80, n_iter=1, grid={}, fields=fields)
    same, noise = found.reruns
    assert (same.emd_correlation, same.tree_jaccard, same.jaccard_bottom) == (pytest.approx(1), 1, 1)
    assert noise.emd_correlation < 0.5
    assert [w.name for w in found.warnings] == [PARAMETER_SENSITIVE]
    assert "with field = noise instead" in found.warnings[0].message


def test_warning_names_what_moved():
    robust = Rerun("eps_scale", "2.0", 0.95, 0.1, 0.99, 1.0)
    moved = Rerun("init", "gaussian", 0.95, 0.9, 0.99, 0.2)
    assert robust.warning is None
    study = Sensitivity((robust, moved))
    (warning,) = study.warnings
    assert "init = gaussian" in warning.message
    assert "lowest 10 % 0.20" in warning.message
    assert "correlation" not in warning.message
    assert study.to_frame()["robust"].tolist() == [True, False]


def test_bad_input_is_refused(tensor):
    with pytest.raises(hs.HeadscapeError, match="axes query, key, head"):
        hs.sensitivity(tensor.data[:, :, 0])
    with pytest.raises(hs.HeadscapeError, match=r"eps_scale.*but has 'epsilon'"):
        hs.sensitivity(tensor, k=80, n_iter=1, grid={"epsilon": [1.0]})
