"""The stage "folders": one geometry over all windows, and what its folders have in common."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

import headscape as hs
from headscape.errors import InputError
from headscape.geometry.head_geometry import mean_emd
from headscape.study.stages.context import Context
from headscape.study.stages.folders import Folders
from headscape.study.stages.stage import Outcome
from studies import small_capture, small_study


@dataclass(frozen=True)
class Patterns:
    """What the folders read of the stage "patterns"."""

    table: pd.DataFrame
    scores: tuple[str, ...]


@pytest.fixture(scope="module")
def study():
    return small_study(windows=3, layers=4, heads=6, stages=["folders"])


def with_patterns(study, **columns):
    """Sum up the folders again, with patterns of the heads."""
    context = Context(study.data, study.parameters, study.options, study.organizations)
    table = context.frame({**columns, "pattern": ["mixed"] * len(study.heads)})
    detail = Patterns(table, tuple(columns))
    known = replace(context, earlier={"patterns": Outcome(table, detail=detail)})
    return Folders().sum_up(known, study.results["folders"])


def test_it_runs_whenever_the_geometry_does(study):
    assert [stage.name for stage in study.stages] == ["pictures", "geometry", "folders"]
    assert "folders" in hs.analyze(small_capture(windows=1), stages=["entropy"], n_iter=1)
    assert "folders" not in hs.analyze(small_capture(windows=1), stages=["energy"])


def test_the_columns_come_from_the_mean_geometry(study):
    geometry = study["folders"].geometry
    emd = mean_emd([organization.emd["head"] for organization in study.organizations])
    np.testing.assert_array_equal(geometry.emd, emd)
    assert study.heads["place"].tolist() == np.argsort(geometry.tree.order).tolist()
    np.fill_diagonal(emd, np.inf)
    assert study.heads["nearest_emd"].tolist() == emd.min(axis=1).tolist()
    assert study.nearest(1, 2, count=1)["emd"][0] == study.heads.loc[(1, 2), "nearest_emd"]


def test_one_window_keeps_its_geometry():
    study = small_study(windows=1, stages=["folders"])
    first, found = study.organization, study["folders"]
    assert found.geometry.tree == first.trees["head"] == found.consensus
    np.testing.assert_array_equal(found.geometry.emd, first.emd["head"])
    assert found.repetitions.emd_correlations.size == 0
    assert not any("from window to window" in sentence for sentence in study.findings)


def test_windows_and_trees_are_compared_in_words(study):
    repetitions = study["folders"].repetitions
    text = " ".join(study.findings)
    assert f"rank correlation {repetitions.emd_correlations.mean():.2f}," in text
    assert len(repetitions.emd_correlations) == 3
    assert set(repetitions.steadiness["tree"]) == {"flexible", "linkage"}
    assert set(repetitions.steadiness["noise"]) == {0.001, 0.01}
    assert "linkage" in text


def test_support_and_names_have_an_entry_for_every_folder(study):
    found = study["folders"]
    tree = found.geometry.tree
    assert len(found.support) == len(found.names) == tree.n_folders
    assert found.consensus.n_points == tree.n_points
    table = study.outcomes["folders"].tables["folders"]
    assert table["size"].tolist() == tree.folders.size[tree.folders.size > 1].tolist()
    assert table["heads"][0].split() == [f"{i // 6}.{i % 6}" for i in tree.order]


def test_patterns_name_coordinates_and_join_the_agreement(study):
    coordinate = study["folders"].geometry.diffusion_map(1)[:, 0]
    outcome = with_patterns(study, first_token=np.exp(-coordinate), broken=np.full(24, np.nan))
    row = outcome.detail.coordinates.iloc[0]
    assert (row["follows"], row["rank_correlation"]) == ("first token", -1.0)
    assert outcome.detail.followed()[0] == "first token, r = -1.00"
    assert set(outcome.detail.agreement["attribute"]) == {"layer", "pattern", "key-value head"}
    assert any("first token, r = -1.00" in sentence for sentence in outcome.findings)


def test_a_pattern_of_a_supported_folder_is_told():
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1], 20)
    x = rng.random((2, 40, 16, 16)) * 0.2
    x[:, kind == 0, :, 0] += 3  # (window, head, query, key)
    x[:, kind == 1] += 3 * np.eye(16)
    windows = [np.moveaxis(w / w.sum(axis=-1, keepdims=True), 0, 2) for w in x]
    study = hs.analyze([hs.NetworkTensor(w, field="probs") for w in windows], stages=["folders"], n_iter=1)
    scores = np.array([w[:, 0].mean(axis=0) for w in windows]).mean(axis=0)
    outcome = with_patterns(study, first_token=scores)
    found = outcome.detail
    planted = [
        i
        for i in range(found.geometry.tree.n_folders)
        if set(found.geometry.tree.folder(i)) == set(range(20))
    ]
    assert len(planted) == 1
    assert found.support[planted[0]] == 1
    assert "20 heads" in found.names[planted[0]]
    assert "first token (median" in found.names[planted[0]]
    assert "attend to the first token (support 1.00)" in outcome.findings[0]
    assert "first token" in outcome.columns["folder_name"].iloc[0]


def test_saved_folders_are_the_same_again(study, tmp_path):
    study.save(tmp_path)
    again = hs.Study.load(tmp_path)
    assert again["folders"].names == study["folders"].names
    np.testing.assert_array_equal(again["folders"].support, study["folders"].support)
    pd.testing.assert_frame_equal(
        again["folders"].repetitions.steadiness, study["folders"].repetitions.steadiness
    )
    assert again.findings == study.findings
    assert (tmp_path / "folders.csv").is_file()


@pytest.mark.parametrize("kind", ["binary", "linkage", {"head": "linkage"}])
def test_other_kinds_of_trees(kind):
    study = small_study(windows=2, stages=["folders"], tree=kind)
    kinds = set(study["folders"].repetitions.steadiness["tree"])
    assert kinds == {"flexible", "linkage"} | ({"binary"} if kind == "binary" else set())


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 2), (2, 1), (1, 3)])
def test_few_heads_work(layers, heads):
    study = small_study(windows=2, layers=layers, heads=heads, stages=["folders"])
    assert len(study["folders"].names) == study["folders"].geometry.tree.n_folders
    study.summary()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -1}, "noise must be a number from 0"),
        ({"repetitions": 0}, "repetitions must be a whole number from 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        small_study(stages=["folders"], **options)


def test_a_study_without_geometry_has_no_nearest_heads():
    study = small_study(windows=1, stages=["energy"])
    with pytest.raises(InputError, match='stage "folders"'):
        study.nearest(0, 0)
