"""The stage "pictures": options, older studies, tensors."""

import json

import numpy as np
import pytest

import headscape as hs
from headscape.errors import InputError, StorageError
from headscape.study.display import page_data
from headscape.study.stages.result import Result
from headscape.study.study import Study
from studies import small_capture, small_study


def windows_of(study):
    return next(s.data for s in page_data(study).sections if s.key == "window")["windows"]


def test_one_window_is_shown_unless_more_are_asked_for():
    assert len(windows_of(small_study(stages=["geometry"]))) == 1
    shown = windows_of(small_study(stages=["geometry"], picture_windows=2))
    assert [w["note"].split(",")[0] for w in shown] == ["Window 1 of 3", "Window 2 of 3"]
    assert len(windows_of(small_study(stages=["geometry"], picture_windows=9))) == 3
    assert shown[0]["queries"] != shown[1]["queries"]


@pytest.mark.parametrize("wrong", [0, 1.5, "all"])
def test_the_number_of_windows_is_checked(wrong):
    with pytest.raises(InputError, match="picture_windows must be a whole number"):
        small_study(picture_windows=wrong)


def older(study):
    """Return a study as it was before queries and keys were packed: cut pictures, no options."""
    pixels = np.zeros((len(study.heads), 8, 8), np.uint8)
    result = Result({"attention": pixels, "attention_high": np.ones(len(pixels))}, {"seconds": 0.1})
    return Study(study.data, {**study.results, "pictures": (result,)}, study.parameters, study.about)


def test_an_older_study_shows_all_tokens_too():
    study = small_study(stages=["geometry"])
    old, new = windows_of(older(study))[0], windows_of(study)[0]
    assert old["queries"] == new["queries"]
    assert (old["rows"], old["order"]) == (24, new["order"])


def test_an_older_study_gets_further_stages(tmp_path):
    older(small_study(stages=["geometry"])).save(tmp_path / "study")
    study = hs.analyze(tmp_path / "study", out=tmp_path / "study", stages=["energy"], n_iter=1)
    assert "energy" in study.results
    with pytest.raises(StorageError, match="picture_windows=1, now picture_windows=2"):
        hs.analyze(tmp_path / "study", out=tmp_path / "study", stages=["energy"], n_iter=1, picture_windows=2)


def test_the_stage_is_kept_on_disk(tmp_path):
    study = small_study(stages=["geometry"], picture_windows=2)
    study.save(tmp_path / "study")
    again = windows_of(Study.load(tmp_path / "study"))
    assert json.dumps(again) == json.dumps(windows_of(study))


def test_tensors_are_shown_whole_or_coarse(monkeypatch):
    x = hs.NetworkTensor(np.random.default_rng(0).random((40, 30, 6)), heads=[(0, i) for i in range(6)])
    shown = windows_of(hs.analyze(x, n_iter=1, stages=["geometry"]))[0]
    assert (shown["cells"], "energy" in shown, "organized" in shown) == ([40, 30], False, False)
    monkeypatch.setattr("headscape.study.stages.pictures.SIDE", 20)
    shown = windows_of(hs.analyze(x, n_iter=1, stages=["geometry"]))[0]
    assert (shown["cells"], shown["rows"], shown["columns"]) == ([20, 20], 40, 30)
    assert "Coarse" in shown["note"]
    assert len(shown["organized"]["png"]) == 6


def test_heads_that_were_not_asked_for_are_not_packed():
    capture = small_capture()
    study = hs.analyze(capture, heads=[(0, 1), (1, 0), (1, 3)], n_iter=1, stages=["geometry"])
    shown = windows_of(study)[0]
    assert (len(shown["queries"]), len(shown["keys"]), shown["key_of"]) == (3, 3, [0, 1, 2])
