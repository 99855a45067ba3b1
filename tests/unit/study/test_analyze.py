import json
import math

import numpy as np
import pandas as pd
import pytest

import headscape as hs
from headscape.analysis.softmax_invariance import softmax_invariance
from headscape.errors import FileFormatError, InputError, StorageError
from headscape.study.analyze import analyze
from headscape.study.stages import STAGES, stage_named
from studies import ODD_NAME, small_capture, small_study

PER_WINDOW = [stage for stage in STAGES if stage.unit == "window"]


class Stopped(Exception):
    """Stands for a run that ends in the middle."""


def stop_at(text):
    def progress(stage, done, total):
        if stage.startswith(text):
            raise Stopped(stage)

    return progress


def tell_into(seen):
    def progress(stage, done, total):
        assert 0 <= done <= total + 1e-9
        if not seen or seen[-1] != stage:
            seen.append(stage)

    return progress


@pytest.fixture(scope="module")
def study():
    return small_study()


def test_the_table_has_a_row_per_head_and_columns_of_every_stage(study):
    assert study.heads.index.tolist() == list(study.capture.heads)
    assert {"place", "folder", "nearest", "haar_entropy", "haar_rank", "mu_K", "k90", "holder_mixed"} <= set(
        study.heads
    )
    assert sorted(study.heads["place"]) == list(range(12))


def test_entropies_are_those_of_the_entropy_study_on_its_own(study):
    alone = hs.entropy_study(study.capture, k=50, n_iter=1)
    np.testing.assert_allclose(study["entropy"].entropies, alone.entropies)
    np.testing.assert_allclose(study.heads["haar_rank"], alone.to_frame()["haar_rank"])
    assert study["entropy"].stability.verdict == alone.stability.verdict


def test_energy_measures_are_those_of_the_energy_table_on_its_own(study):
    alone = hs.energy_table(study.capture)
    pd.testing.assert_frame_equal(study["energy"].tables.heads, alone)


def test_exponents_are_medians_over_windows(study):
    by_window = [
        hs.holder_exponent(study.capture.tensor(w, "logits"), study.organizations[w].trees).mixed[:, 0]
        for w in range(study.windows)
    ]
    np.testing.assert_allclose(study.heads["holder_mixed"], np.median(by_window, axis=0))


def test_every_window_is_organized_once_and_its_trees_are_used(monkeypatch):
    calls = []
    organize = hs.organize

    def counted(x, **options):
        calls.append(x)
        return organize(x, **options)

    monkeypatch.setattr("headscape.study.stages.geometry.organize", counted)
    small_study(windows=2)
    assert len(calls) == 2


def test_findings_speak_of_the_numbers(study):
    text = " ".join(study.findings)
    assert study["patterns"].sentence == study.findings[0]
    assert study["entropy"].stability.verdict in study.findings
    assert f"{np.median(study['energy'].tables.kv_heads['mu_K']):.2f}" in text
    assert "12 heads" in text


def test_a_study_without_a_model_says_why_the_weights_are_left_out(study):
    assert any("W_Q^T W_K was left out" in sentence for sentence in study.findings)
    assert "interaction_k90" not in study.heads


def test_warnings_of_several_windows_become_one():
    study = small_study(windows=3)
    names = [(warning.name, warning.axis) for warning in study.warnings]
    assert len(names) == len(set(names))


def test_only_chosen_stages_run():
    study = small_study(stages=["energy"], windows=1)
    assert list(study.results) == ["pictures", "energy"]
    assert "entropy" not in study
    assert "mu_K" in study.heads
    assert "haar_entropy" not in study.heads
    assert study.organizations == ()


def test_softmax_joins_when_asked_for_and_says_its_verdict():
    assert "softmax" not in small_study(windows=1).results
    study = small_study(stages=["+softmax"], windows=1)
    assert list(study.results)[-4:] == ["energy", "regularity", "interaction", "softmax"]
    alone = softmax_invariance(study.capture, windows=1)
    assert alone.verdict in study.findings
    np.testing.assert_allclose(study.heads["softmax_residual"], alone.of_heads("residual"))


def test_unknown_stages_are_named():
    with pytest.raises(InputError, match=r"stages are geometry, .*entropy.*energy.*'entropie'"):
        small_study(stages=["entropie"])


def test_save_and_load_give_the_same_study(study, tmp_path):
    study.save(tmp_path / "study")
    again = hs.Study.load(tmp_path / "study")
    pd.testing.assert_frame_equal(again.heads, study.heads)
    assert again.findings == study.findings
    assert again.warnings == study.warnings
    assert again.parameters == study.parameters


def test_tables_on_disk_equal_the_study(study, tmp_path):
    study.save(tmp_path)
    csv = pd.read_csv(tmp_path / "heads.csv", index_col=["layer", "head"], dtype={"nearest": str})
    pd.testing.assert_frame_equal(csv, study.heads, check_dtype=False, rtol=1e-12)
    rows = json.loads((tmp_path / "heads.json").read_text())["heads"]
    for row, (pair, values) in zip(rows, study.heads.iterrows(), strict=True):
        assert (row["layer"], row["head"]) == pair
        assert row["mu_K"] == values["mu_K"]
        assert row["haar_entropy"] == values["haar_entropy"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["findings"] == list(study.findings)


def test_parquet_holds_the_table_where_pyarrow_is(study, tmp_path):
    pytest.importorskip("pyarrow")
    study.save(tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "heads.parquet"), study.heads)


@pytest.mark.parametrize("where", [f"{stage.doing}, window 2" for stage in PER_WINDOW])
def test_a_run_that_ends_in_the_middle_goes_on_without_redoing_windows(where, tmp_path, study):
    with pytest.raises(Stopped):
        small_study(out=tmp_path, progress=stop_at(where))
    finished = {p.name: p.stat().st_ino for p in (tmp_path / "parts").iterdir()}
    assert "geometry-window-00000" in finished
    with pytest.raises(FileFormatError, match=r"unfinished: \d of 3 pieces"):
        hs.Study.load(tmp_path)
    seen = []
    again = small_study(out=tmp_path, progress=tell_into(seen))
    now = {p.name: p.stat().st_ino for p in (tmp_path / "parts").iterdir()}
    assert finished.items() <= now.items()
    assert not any(text.endswith("window 1 of 3") for text in seen)
    pd.testing.assert_frame_equal(again.heads, study.heads)


def test_a_finished_study_is_read_not_measured(tmp_path):
    small_study(out=tmp_path)
    seen = []
    small_study(out=tmp_path, progress=tell_into(seen))
    assert not any(text.startswith(stage.doing) for text in seen for stage in STAGES)


def test_a_stage_can_be_added_later(tmp_path):
    small_study(out=tmp_path, stages=["entropy"])
    study = small_study(out=tmp_path, stages=["energy"])
    assert list(study.results) == ["pictures", "geometry", "folders", "entropy", "energy"]


def test_a_folder_of_other_parameters_is_refused(tmp_path):
    small_study(out=tmp_path, stages=["entropy"])
    with pytest.raises(StorageError, match="started with k=50, now k=60"):
        small_study(out=tmp_path, stages=["entropy"], k=60)
    with pytest.raises(StorageError, match="n_iter=1, now n_iter=2"):
        small_study(out=tmp_path, stages=["entropy"], n_iter=2)


def test_progress_never_goes_back():
    told = []
    small_study(progress=lambda stage, done, total: told.append((done, total)))
    shares = [done / total for done, total in told if total]
    assert shares[-1] == pytest.approx(1)
    last = [done for done, _ in told]
    assert last == sorted(last)


def test_nearest_heads_are_sorted_and_others(study):
    near = study.nearest(1, 2, count=3)
    assert near["emd"].is_monotonic_increasing
    assert (1, 2) not in set(zip(near["layer"], near["head"], strict=True))
    assert near["emd"][0] == pytest.approx(study.heads.loc[(1, 2), "nearest_emd"])
    with pytest.raises(InputError, match=r"no head 9\.9"):
        study.nearest(9, 9)


def test_notebooks_show_escaped_html(study):
    shown = small_study(windows=1, name=ODD_NAME)._repr_html_()
    assert "<img" not in shown
    assert "&lt;img" in shown
    assert "<table" in study._repr_html_()


def test_figures_are_matplotlib_figures(study):
    from matplotlib.figure import Figure

    figures = study.figures()
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert {"tree_head", "affinity_head", "diffusion_map_head_2d", "entropy_entropies"} <= set(figures)


def test_one_head_and_one_window_work():
    study = small_study(windows=1, layers=1, heads=1)
    assert len(study.heads) == 1
    assert "nearest" not in study.heads


def test_stages_name_their_parts():
    assert stage_named("entropy").part(3) == "entropy-window-00003"
    assert stage_named("interaction").part(0) == "interaction"
    assert stage_named("softmax").part(2) == "softmax-layer-00002"


def test_invariants_are_counted_over_heads_and_windows(study):
    counts = {count.test: count for count in study["energy"].invariants}
    assert counts["zero-sum"].counts == {"passed": 36, "failed": 0, "not judged": 0}
    assert counts["causality"].failed_heads == ()
    assert math.isfinite(counts["zero-sum"].worst[0])


def test_a_broken_mask_fails_causality():
    capture = small_capture(windows=1)
    visible = np.tri(24, k=1, dtype=bool)
    records = [
        [record.replace(visible=visible) if record.layer == 1 else record for record in capture.records(0)]
    ]
    study = analyze(hs.Capture.from_records(records), stages=["energy"], n_iter=1)
    counts = {count.test: count for count in study["energy"].invariants}
    assert {layer for layer, _ in counts["causality"].failed_heads} == {1}
    assert "later keys" in counts["causality"].detail


def test_unknown_results_and_options_are_named(study):
    with pytest.raises(KeyError, match=r"'softmax'.*entropy"):
        study["softmax"]
    with pytest.raises(InputError, match=r"options of the analysis are alpha.*'kk'"):
        small_study(kk=3)


def test_a_stage_sees_the_engine_and_the_window_only_once(monkeypatch):
    mapped, read = [], []

    class Counting(hs.engine.LocalEngine):
        def map(self, function, tasks):
            mapped.append(function)
            return super().map(function, tasks)

    record = hs.Capture.record
    monkeypatch.setattr(hs.Capture, "record", lambda *a: read.append(a[1:]) or record(*a))
    small = small_capture(windows=2)
    del read[:]
    analyze(small, n_iter=1, k=50, engine=Counting(1))
    assert len(mapped) > 4
    whole = [key for key in read if key[0] == 1]
    assert len(whole) == len(small.layers)


def test_softmax_resumes_layer_by_layer(tmp_path):
    with pytest.raises(Stopped):
        small_study(
            out=tmp_path,
            stages=["softmax"],
            windows=1,
            progress=stop_at("testing softmax invariance, layer 3"),
        )
    assert (tmp_path / "parts" / "softmax-layer-00001").is_dir()
    seen = []
    study = small_study(out=tmp_path, stages=["softmax"], windows=1, progress=tell_into(seen))
    assert not any("layer 1 of 3" in text for text in seen)
    alone = softmax_invariance(study.capture, windows=1)
    np.testing.assert_allclose(study.heads["softmax_residual"], alone.of_heads("residual"))


def test_remarks_without_consequence_for_the_heads_stay_in_their_section(study):
    assert all(notice.affects_heads for notice in study.warnings)
    remarks = [notice for outcome in study.outcomes.values() for notice in outcome.remarks]
    assert not any(notice.affects_heads for notice in remarks)


def test_parameters_that_differ_are_named_with_both_values(tmp_path):
    small_study(out=tmp_path, stages=["energy"])
    with pytest.raises(StorageError, match=r"started with field='probs', now field='logits'"):
        small_study(out=tmp_path, stages=["energy"], field="logits")


def test_a_capture_gives_its_first_windows(tmp_path):
    study = analyze(small_capture(windows=3), windows=2, stages=["energy"], out=tmp_path)
    assert study.windows == 2
    assert hs.Study.load(tmp_path).windows == 2


@pytest.mark.parametrize("options", [{"length": 16}, {"sample": "first"}, {"inputs": "a text"}])
def test_what_is_for_models_is_not_ignored(options):
    with pytest.raises(InputError, match="for models"):
        analyze(small_capture(), **options)


def test_few_windows_say_nothing_that_needs_more(study):
    text = " ".join(study.findings)  # of 3 windows
    assert "in all 3 windows" not in text
    assert "At least 4 windows" in text
    assert "in all 4 windows" in " ".join(small_study(windows=4, stages=["entropy"]).findings)


def test_a_stage_is_added_to_a_study_in_its_own_folder(tmp_path):
    small_study(out=tmp_path, stages=["entropy"], k=50)
    study = analyze(tmp_path, stages=["energy"], out=tmp_path, n_iter=1, k=50)
    assert list(study.results) == ["pictures", "geometry", "folders", "entropy", "energy"]
    assert study.windows == 3


def test_a_study_of_an_earlier_format_is_refused_with_what_to_do(tmp_path):
    small_study(out=tmp_path, stages=["energy"])
    header = tmp_path / "headscape.json"
    values = json.loads(header.read_text())
    values.pop("digest", None)
    header.write_text(json.dumps({**values, "format": "headscape/study/1"}))
    with pytest.raises(FileFormatError, match=r"earlier headscape.*capture"):
        hs.Study.load(tmp_path)


def test_a_single_value_is_a_list_of_one():
    study = small_study(windows=1, stages=["entropy", "energy"], fields="logits", lengths=16)
    assert study["entropy"].fields == ("logits",)
    assert study["energy"].tables.lengths == (16,)


@pytest.mark.parametrize("asked", [{"heads": [(0, 0)]}, {"windows": 1}, {"field": "logits"}])
def test_a_study_that_gets_stages_keeps_its_windows_and_heads(asked, tmp_path):
    small_study(out=tmp_path, stages=["geometry"])
    with pytest.raises(InputError, match="keeps its windows and heads"):
        analyze(tmp_path, stages=["energy"], out=tmp_path, n_iter=1, **asked)


def test_more_windows_than_there_are_is_an_error():
    with pytest.raises(InputError, match="the source has only 2"):
        analyze(small_capture(windows=2), windows=3)
