"""headscape analyze as a program: it ends in a report, and goes on after kill -9 at every stage."""

import json
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import headscape as hs
from cli_runs import environment, headscape, headscape_here

pytest.importorskip("transformers")

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
OPTIONS = ["--windows", "2", "--length", "32", "--n-iter", "1", "--set", "k=50"]
KILLED = """
import os, signal, sys
import headscape.recorder.capturing as capturing
import headscape.study.weighted_progress as steps
where, step, write, written = sys.argv[1], steps.WeightedProgress.step, capturing.write_window, []
def kill_at_step(self, text, cost):
    if text.startswith(where):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, text, cost)
def kill_at_second_window(part, *rest):
    write(part, *rest)
    written.append(part)
    if where == "capturing window 2" and len(written) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
steps.WeightedProgress.step, capturing.write_window = kill_at_step, kill_at_second_window
sys.argv = ["headscape", *sys.argv[2:]]
from headscape.cli.main import run
run()
"""
# The unit tests stop a run at every stage; here the process dies, once in the capture and once in a stage.
STAGES = ("capturing window 2", "measuring energy, window 2")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A study whose run was killed at one stage after the other, and what had been finished by then."""
    out = tmp_path_factory.mktemp("killed") / "study"
    finished = []
    for stage in STAGES:
        command = [sys.executable, "-c", KILLED, stage, "analyze", str(MODEL), "-o", str(out), *OPTIONS]
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert done.returncode == -signal.SIGKILL, done.stderr
        finished.append({p: p.stat().st_ino for p in out.rglob("parts/*") if not p.name.startswith(".")})
    done = headscape("analyze", MODEL, "-o", out, *OPTIONS, "--json", "--figures", "svg")
    assert done.returncode == 0, done.stderr
    return out, finished, json.loads(done.stdout), done.stderr


def test_killed_runs_keep_what_was_finished(killed):
    _, finished, _, _ = killed
    assert all(before.items() <= after.items() for before, after in pairwise(finished))
    assert all(len(before) < len(after) for before, after in pairwise(finished))
    for path, inode in finished[-1].items():
        assert path.stat().st_ino == inode


def test_a_killed_study_equals_one_that_ran_through(killed):
    out, *_ = killed
    whole = hs.analyze(MODEL, windows=2, length=32, n_iter=1, k=50)
    pd.testing.assert_frame_equal(hs.Study.load(out).heads, whole.heads)


def test_the_summary_says_what_was_found_and_where_it_is(killed):
    out, _, summary, _ = killed
    assert summary["format"] == "headscape/study-summary/2"
    assert summary["heads"] == 16
    assert {"pictures", "geometry", "entropy", "first_test", "energy", "regularity"} <= set(summary["stages"])
    assert len(summary["findings"]) >= 8
    assert summary["about"]["command"].startswith("headscape analyze")
    assert Path(summary["report"]) == out / "report.html"
    assert (out / "report.html").stat().st_size < 12e6
    assert {"heads.csv", "heads.json", "summary.json"} <= {p.name for p in out.iterdir()}


def test_weights_are_read_and_labelled(killed):
    out, *_ = killed
    study = hs.Study.load(out)
    assert study.heads["interaction_k90"].between(1, 16).all()
    assert study.capture.tokens(0)[:2] != study.capture.tokens(1)[:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stages", "nonsense"], "stages are geometry"),
        (["--text", "a.txt", "--images", "b"], "either --text or --images"),
        (["--text", "nowhere.txt"], "nowhere.txt does not exist"),
        (["--images", "."], "no images"),
        (["--windows", "0"], "--windows must be a whole number from 1"),
        (["--set", "k"], "--set takes NAME=VALUE"),
        (["--set", "kk=3"], "options of the analysis are"),
        (["--json", "--csv"], "specify one of them"),
    ],
)
def test_bad_options_end_in_one_line_before_a_model_is_loaded(arguments, message, tmp_path):
    done = headscape("analyze", MODEL, "-o", tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_terminal_summary_has_a_table_findings_and_the_report(killed, monkeypatch, capsys):
    out, *_ = killed
    done = headscape_here(monkeypatch, capsys, "analyze", MODEL, "-o", out, *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert "16 heads, 2 windows" in done.stdout
    assert "Which heads do little, and was that tested?" in done.stdout
    assert "a first test: 2 windows" in " ".join(done.stdout.split())
    assert "first token: Share of attention to the first token." in " ".join(done.stdout.split())
    assert "report.html" in done.stdout.replace("\n", "")


def test_figures_for_papers_are_written_when_asked_for(killed):
    _, _, summary, _ = killed
    assert len(summary["figures"]) > 10
    assert all(Path(path).read_text(encoding="utf-8").startswith("<?xml") for path in summary["figures"])
