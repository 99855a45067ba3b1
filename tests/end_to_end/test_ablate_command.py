"""headscape ablate, and ablation as a stage of analyze: what rankings are worth on a small trained model."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers")

import headscape as hs
from cli_runs import environment, headscape, headscape_here, one_line, one_object, without_progress
from headscape.models.sample_text import sample_text

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
QUICK = ["--length", "32", "--windows", "6", "--calibration-windows", "6", "--draws", "3"]
METHODS = ["--methods", "gradient,reconstruction+repair,output-norm:reversed,random", "--counts", "2,25%"]
KILLED = """
import os, signal, sys
from headscape.ablation.head_evaluator import HeadEvaluator
evaluate, done = HeadEvaluator.evaluate, []
def kill_after_three(self, off=()):
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(off)
    return evaluate(self, off)
HeadEvaluator.evaluate = kill_after_three
from headscape.cli.main import run
run()
"""


def parts_of(out):
    return {path: path.stat().st_ino for path in out.rglob("parts/*") if not path.name.startswith(".")}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A study whose process was killed in the middle and started again."""
    out = tmp_path_factory.mktemp("ablation") / "study"
    command = ["ablate", str(MODEL), "-o", str(out), *QUICK, *METHODS]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *command], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = parts_of(out)
    done = headscape(*command, "--json")
    return out, before, one_object(done), done


def test_a_killed_study_keeps_what_was_finished_and_equals_one_that_ran_through(killed):
    out, before, *_ = killed
    assert sum(path.name.startswith("loss-") for path in before) == 3
    assert before.items() <= parts_of(out).items()
    whole = hs.ablation_study(
        MODEL,
        sample_text(),
        ["gradient", "reconstruction+repair", "output-norm:reversed", "random"],
        [2, "25%"],
        length=32,
        windows=6,
        calibration_windows=6,
        draws=3,
    )
    found = hs.AblationStudy.load(out)
    assert found.methods == whole.methods
    for name, curve in whole.curves.items():
        np.testing.assert_allclose(found.curves[name].losses, curve.losses, rtol=1e-6)
        np.testing.assert_array_equal(found.curves[name].orders, curve.orders)


def test_the_summary_holds_the_curves_and_the_verdicts(killed):
    out, _, summary, done = killed
    assert without_progress(done.stderr) == ""
    assert (summary["counts"], summary["heads"], summary["windows"]) == ([2, 4], 16, 6)
    assert [row["method"] for row in summary["verdicts"]] == [
        "gradient",
        "reconstruction+repair",
        "output-norm:reversed",
    ]
    assert all(row["word"].endswith("than random") for row in summary["verdicts"])
    curves = pd.read_csv(out / "curves.csv")
    assert curves[["method", "count"]].values.tolist() == [
        [row["method"], row["count"]] for row in summary["curves"]
    ]
    np.testing.assert_allclose(curves["increase"], [row["increase"] for row in summary["curves"]])
    np.testing.assert_allclose(curves["perplexity"], [row["perplexity"] for row in summary["curves"]])
    stored = json.loads((out / "summary.json").read_text())
    assert all(stored[name] == summary[name] for name in ("curves", "verdicts", "findings", "spare"))
    [figure] = summary["figures"]
    assert Path(figure).stat().st_size > 10_000


def test_the_terminal_shows_a_table_and_the_verdicts_without_computing_again(killed, monkeypatch, capsys):
    out, *_ = killed
    monkeypatch.setattr("headscape.ablation.head_evaluator.HeadEvaluator.evaluate", None)
    done = headscape_here(
        monkeypatch, capsys, "ablate", MODEL, "-o", out, *QUICK, *METHODS, "--figures", "none"
    )
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"\s+", " ", done.stdout)
    study = hs.AblationStudy.load(out)
    for method in study.methods:
        assert f"{study.interval(method, 4).estimate:+.3f}" in shown
    for verdict in study.verdicts.values():
        assert f"{verdict.method}: {verdict.word}" in shown
    assert (
        headscape_here(
            *(
                monkeypatch,
                capsys,
                "ablate",
                MODEL,
                "-o",
                out,
                *QUICK,
                *METHODS,
                "--figures",
                "none",
                "--quiet",
            )
        ).stdout
        == ""
    )


def test_columns_of_a_table_are_methods(tmp_path, monkeypatch, capsys):
    heads = [(layer, head) for layer in range(4) for head in range(4)]
    table = pd.DataFrame(heads, columns=["layer", "head"]).assign(mine=np.arange(16.0))
    table.to_csv(tmp_path / "heads.csv", index=False)
    done = headscape_here(
        *(
            monkeypatch,
            capsys,
            "ablate",
            MODEL,
            "-o",
            tmp_path / "out",
            *QUICK[:-2],
            "--counts",
            "2",
            "--json",
        ),
        *("--methods", "mine,mine:reversed+repair", "--table", tmp_path / "heads.csv", "--figures", "none"),
    )
    assert [row["method"] for row in one_object(done)["curves"]] == ["mine", "mine:reversed+repair"]
    study = hs.AblationStudy.load(tmp_path / "out")
    assert study.curves["mine"].orders[0].tolist() == [[0, 0], [0, 1]]
    assert study.curves["mine:reversed+repair"].orders[0].tolist() == [[3, 3], [3, 2]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "nonsense"], "a method is one of haar"),
        (["--methods", ""], "'' was asked for"),
        (["--methods", "mine", "--table", "none.csv"], "none.csv does not exist"),
        (["--counts", "3,17"], "counts must be from 1 to the 16 heads of the model, but 17 was asked for"),
        (["--counts", "0"], "--counts must be numbers or shares"),
        (["--counts", "many"], "--counts must be numbers or shares such as 3,14,10%, but is 'many'"),
        (["--counts", "110%"], "--counts must be numbers or shares"),
        (["--draws", 1], "--draws must be a whole number from 2 to 10000"),
        (["--text", "short.txt"], "the first half of the text cannot be used"),
        (["--text", "empty.txt"], "empty.txt is empty"),
        (["--calibrate", "long.txt", "--evaluate", "short.txt"], "the evaluation inputs cannot be used"),
        (["--text", "long.txt", "--evaluate", "long.txt"], "--evaluate with --calibrate, or --text"),
        (["--images", "."], "--length is for texts"),
        (["-o", "short.txt"], "short.txt"),
    ],
)
def test_bad_input_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    (tmp_path / "short.txt").write_text("A few words.")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "long.txt").write_text(sample_text()[:20_000])
    monkeypatch.chdir(tmp_path)
    done = headscape_here(monkeypatch, capsys, "ablate", MODEL, "-o", "out", "--length", 32, *arguments)
    one_line(done, words)
    assert not os.path.exists("out/summary.json")


def test_evaluating_on_the_calibration_text_is_told(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text(sample_text()[:20_000])
    done = headscape_here(
        *(monkeypatch, capsys, "ablate", MODEL, "-o", tmp_path / "out", "--figures", "none", *QUICK[:-2]),
        *("--methods", "output-norm", "--counts", "1", "--calibrate", text, "--evaluate", text),
    )
    assert done.returncode == 0
    assert "6 of 6 evaluation windows are calibration windows too" in " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory):
    """A study with ablation as a stage, its folder, and what its report shows."""
    out = tmp_path_factory.mktemp("analyzed") / "study"
    options = {"windows": 2, "length": 32, "n_iter": 1, "k": 50}
    study = hs.analyze(MODEL, stages=["entropy", "ablation"], out=out, **options)
    html = Path(study.report(out / "report.html")).read_text(encoding="utf-8")
    shown = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL).group(1)
    return study, out, html, json.loads(shown)


def test_as_a_stage_it_gives_the_places_of_the_heads(analyzed):
    study, out, *_ = analyzed
    places = [column for column in study.heads if column.startswith("place_")]
    assert places == ["place_haar", "place_gradient", "place_reconstruction"]
    table = pd.read_csv(out / "heads.csv").set_index(["layer", "head"])
    most = max(study["ablation"].counts)
    assert most == 8
    for column in places:
        order = study["ablation"].curves[column.removeprefix("place_")].orders[0]
        assert sorted(table[column].dropna()) == list(range(most))
        assert [table[column].loc[layer, head] for layer, head in order.tolist()] == list(range(most))
    # The ranking by Haar entropy is that of the analysis itself, on the windows that it organized.
    ranks = study.heads["haar_rank"].to_numpy()
    first = study.heads["place_haar"].to_numpy() == 0
    assert ranks[first][0] == ranks.min()


def test_as_a_stage_its_verdicts_are_findings(analyzed):
    study, *_ = analyzed
    said = " ".join(map(str, study.findings))
    for verdict in study["ablation"].verdicts.values():
        assert f"{verdict.method}: {verdict.word}" in said
    assert {"haar", "gradient", "reconstruction", "reconstruction+repair"} == set(study["ablation"].verdicts)


def test_the_report_holds_the_curves(analyzed):
    study, _, html, shown = analyzed
    found = shown["ablation"]
    assert found["counts"] == list(study["ablation"].counts)
    assert found["intact"] == pytest.approx(study["ablation"].intact.mean())
    assert [curve["method"] for curve in found["curves"]] == list(study["ablation"].methods)
    for curve in found["curves"]:
        wanted = [study["ablation"].interval(curve["method"], count) for count in found["counts"]]
        assert curve["increase"] == pytest.approx([i.estimate for i in wanted])
        assert curve["high"] == pytest.approx([i.high for i in wanted])
    assert study["ablation"].findings[0][:40] in html


def test_a_loaded_study_has_its_ablation(analyzed):
    study, out, *_ = analyzed
    loaded = hs.Study.load(out)
    assert loaded["ablation"].summary() == study["ablation"].summary()
    pd.testing.assert_frame_equal(loaded.heads, study.heads)


def test_a_capture_alone_says_why_there_is_no_ablation(analyzed):
    study, *_ = analyzed
    found = hs.analyze(study.capture, stages=["+ablation"], n_iter=1, k=50)
    assert "ablation" not in found
    assert "the model is not at hand" in " ".join(found.findings)
    with pytest.raises(hs.HeadscapeError, match="the model is not at hand"):
        hs.analyze(study.capture, stages=["ablation"])
