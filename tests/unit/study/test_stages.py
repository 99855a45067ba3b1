"""A measure from outside joins by one entry: it is in the table, the report, the figures and on the command line."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import headscape as hs
from cli_runs import environment
from headscape.errors import InputError
from headscape.study.analyze import analyze
from headscape.study.stages import stage_options
from headscape.study.stages.pictures import Pictures
from headscape.study.stages.result import Result
from studies import small_capture

TOY = '''
import numpy as np
from matplotlib.figure import Figure
from headscape.report.section import Chart, Section
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, Option, Outcome, Stage


class Brightness(Stage):
    """Mean attention of every head, times a factor."""

    name, title, doing = "brightness", "Brightness", "measuring brightness"
    columns = (Column("brightness", "brightness", "Mean attention.", unit="shares", panel=True),)
    options = (Option("factor", 1.0, "What the mean is multiplied by."),)

    def measure(self, context, piece):
        x = context.tensor(piece, "probs")
        return Result({"means": context.options["brightness"]["factor"] * x.data.mean(axis=(0, 1))})

    def sum_up(self, context, results):
        means = np.mean([result.arrays["means"] for result in results], axis=0)
        sentence = f"The brightest head has {means.max():.4f}."
        return Outcome(context.frame({"brightness": means}), (sentence,), detail=means)

    def figures(self, study, head=None):
        return {"brightness": Figure()}

    def sections(self, study):
        trace = {"type": "bar", "x": list(range(len(study["brightness"]))), "y": study["brightness"].tolist()}
        return (Section("brightness", "Brightness", charts=(Chart("Brightness of the heads", (trace,)),)),)
'''


def test_a_measure_from_outside_joins_by_one_entry(tmp_path):
    package, capture, out = tmp_path / "toy", tmp_path / "capture", tmp_path / "out"
    (package / "toy-1.0.dist-info").mkdir(parents=True)
    (package / "toy_measure.py").write_text(TOY)
    (package / "toy-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"
    )
    entry = "[headscape.stages]\nbrightness = toy_measure:Brightness\n"
    (package / "toy-1.0.dist-info" / "entry_points.txt").write_text(entry)
    data = small_capture(windows=2)
    data.save(capture)
    code = "from headscape.cli.main import run; run()"
    words = ["analyze", capture, "-o", out, "--stages", "brightness", "--set", "factor=2", "--figures", "svg"]
    place = os.pathsep.join([str(package), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        env={**environment(), "PYTHONPATH": place},
    )
    assert done.returncode == 0, done.stderr
    means = 2 * np.mean([data.tensor(w, "probs").data.mean(axis=(0, 1)) for w in range(2)], axis=0)
    table = pd.read_csv(out / "heads.csv")
    np.testing.assert_allclose(table["brightness"], means, rtol=1e-5)
    assert f"The brightest head has {means.max():.4f}." in " ".join(done.stdout.split())
    page = (out / "report.html").read_text()
    assert "Brightness of the heads" in page
    assert '"brightness (shares)"' in page
    assert (out / "figures" / "brightness.svg").exists()


def test_results_with_tables_save_and_load_themselves(tmp_path):
    frame = pd.DataFrame({"layer": [0, 1], "word": ["a", "b"], "value": [0.5, np.nan]})
    result = Result({"x": np.arange(3)}, {"seed": 1}, {"rows": frame})
    from headscape.tensor.store import Store

    with Store.create(tmp_path, "test", parameters={}, input_hash="") as store:
        with store.writing("part") as part:
            result.write(part)
        again = Result.read(store.read("part"))
    pd.testing.assert_frame_equal(again.tables["rows"], frame)
    assert dict(again.attributes) == {"seed": 1}
    np.testing.assert_array_equal(again.arrays["x"], np.arange(3))


def test_every_stage_says_what_its_columns_mean():
    from headscape.study.stages import STAGES

    for stage in STAGES:
        assert stage.title
        assert stage.doing
        assert all(column.title and column.meaning for column in stage.columns), stage.name
        assert all(option.meaning for option in stage.options), stage.name


def test_hs_shows_the_stages_of_a_study():
    study = hs.analyze(small_capture(windows=1), stages=["energy"])
    assert [stage.name for stage in study.stages] == ["pictures", "energy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": 0}, "windows must be a whole number from 1"),
        ({"windows": 2.0}, "windows must be a whole number from 1"),
        ({"windows": 10**20}, "windows must be a whole number from 1 to 100000"),
        ({"length": -3}, "length must be a whole number from 1"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"field": "../../x"}, "field must be probs"),
        ({"k": "many"}, "k must be a whole number from 1 up, or a share"),
        ({"lengths": [0]}, "lengths must be a whole number from 2"),
        ({"draws": 10**20}, "draws must be a whole number from 1 to 10000"),
        ({"softmax_n_iter": 0}, "softmax_n_iter must be a whole number from 1 to 1000"),
        ({"sensitivity": 1}, "sensitivity must be True or False"),
        ({"windows": 4}, "expected 4 windows, but the source has only 2"),
    ],
)
def test_options_are_checked_before_anything_is_computed(options, message, monkeypatch):
    monkeypatch.setattr(Pictures, "measure", None)
    with pytest.raises(InputError, match=message):
        analyze(small_capture(windows=2), **options)


def test_one_thing_in_place_of_a_list_is_a_list_of_one():
    options = stage_options({"fields": "logits", "lengths": 64, "methods": "haar"})
    assert options["entropy"]["fields"] == ["logits"]
    assert options["energy"]["lengths"] == [64]
    assert options["ablation"]["methods"] == ["haar"]
