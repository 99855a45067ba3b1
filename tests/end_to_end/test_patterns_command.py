"""``headscape patterns`` as a user runs it: on a model, a capture, and tensors."""

import csv
from pathlib import Path

import numpy as np
import pytest

from cli_runs import headscape_here, one_line, one_object
from patterns_planted import planted_heads
from studies import small_capture

pytest.importorskip("transformers")
TINY = Path(__file__).parents[2] / "examples" / "tiny_model"


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    return lambda *words: headscape_here(monkeypatch, capsys, "patterns", *words)


def test_a_model_gets_names_scores_and_a_report(run, tmp_path):
    summary = one_object(run(TINY, "-o", tmp_path, "--length", 48, "--windows", 4, "--json"))
    assert summary["stages"] == ["pictures", "patterns"]
    assert summary["findings"][0].startswith(("Of ", "None of "))
    rows = list(csv.DictReader((tmp_path / "heads.csv").open()))
    assert {"name", "pattern", "first_token", "induction_random", "positional"} <= set(rows[0])
    assert all(row["name"].startswith(row["pattern"]) for row in rows)
    long = list(csv.DictReader((tmp_path / "patterns.csv").open()))
    assert {row["pattern"] for row in long} >= {"self", "positional"}
    assert all(row["low"] for row in long if row["pattern"] == "self")
    assert "previous token" in (tmp_path / "report.html").read_text()


def test_a_capture_leaves_out_what_needs_the_model(run, tmp_path):
    small_capture(windows=1).save(tmp_path / "capture")
    done = run(tmp_path / "capture", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "the model is not at hand" in " ".join(done.stdout.split())


def test_tensors_must_hold_probabilities(run, tmp_path):
    kinds, x = planted_heads(48, causal=True)
    np.save(tmp_path / "x.npy", x.transpose(1, 2, 0))
    summary = one_object(run(tmp_path / "x.npy", "--field", "probs", "-o", tmp_path / "out", "--json"))
    assert summary["heads"] == len(kinds)
    rows = list(csv.DictReader((tmp_path / "out" / "heads.csv").open()))
    assert [row["pattern"] for row in rows] == kinds
    one_line(run(tmp_path / "x.npy", "--field", "logits", "-o", tmp_path / "no"), "attention probabilities")
