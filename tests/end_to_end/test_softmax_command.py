"""``headscape softmax`` as a user runs it, on a tiny trained model and on files."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headscape as hs

TINY = Path(__file__).parents[2] / "examples" / "tiny_model"


def run(*words):
    program = [sys.executable, "-c", "from headscape.cli.main import run; run()"]
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        [*program, *map(str, words)], capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    pytest.importorskip("torch")
    text = tmp_path_factory.mktemp("text") / "book.txt"
    text.write_text("The tree has a root and folders, and every folder has points of its own. " * 30)
    path = tmp_path_factory.mktemp("capture") / "tiny"
    hs.capture(TINY, text, windows=2, length=32, path=path)
    return path


def test_a_capture_gives_tables_pictures_and_a_verdict(capture, tmp_path):
    done = run("softmax", capture, "-o", tmp_path, "--n-iter", 2, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert len(summary["heads"]) == 16
    assert summary["windows"] == 1
    assert "of softmax in the median of 16 heads" in summary["verdict"]
    assert -1 <= summary["correlation"]["low"] <= summary["correlation"]["high"] <= 1
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    rows = list(csv.DictReader((tmp_path / "heads.csv").open()))
    study = hs.SoftmaxInvariance.load(tmp_path / "study")
    np.testing.assert_allclose([float(row["residual"]) for row in rows], study.of_heads("residual"))
    names = {Path(path).stem for path in summary["figures"]}
    assert {"claim", "orders", "residual_map"} <= names
    assert sum(name.startswith("head_") for name in names) == 3
    assert all(Path(path).stat().st_size > 0 for path in summary["figures"])


def test_organized_order_beats_shuffled_order_on_a_trained_model(capture):
    found = hs.softmax_invariance(hs.Capture.load(capture), windows=1, n_iter=3)
    assert np.median(found.of_heads("residual")) < np.median(found.of_heads("residual_shuffled"))


def test_chosen_heads_are_drawn_and_told(capture, tmp_path):
    done = run("softmax", capture, "--heads", "1.0,3.2", "--masked", "block", "-o", tmp_path, "--n-iter", 1)
    assert done.returncode == 0, done.stderr
    assert "too few heads" in done.stdout
    assert "3.2" in done.stdout
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"head_1_0", "head_3_2", "levels_1_0", "levels_3_2"} <= drawn


def test_a_model_with_a_text_is_captured_on_the_way(tmp_path):
    pytest.importorskip("torch")
    text, out = tmp_path / "book.txt", tmp_path / "out"
    text.write_text("Points, folders, levels and trees. " * 40)
    words = ["--length", 24, "--heads", "0.1", "--n-iter", 1, "--figures", "none", "--quiet"]
    done = run("softmax", TINY, "--text", text, "-o", out, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert json.loads((out / "summary.json").read_text())["heads"] == ["0.1"]


def test_files_of_logits_may_be_causal_and_rectangular(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(9, 14, 2)).astype(np.float32))
    words = ["softmax", tmp_path / "x.npy", "--n-iter", 1, "--figures", "none", "--json"]
    full = json.loads(run(*words, "-o", tmp_path / "full").stdout)
    causal = json.loads(run(*words, "-o", tmp_path / "causal", "--causal").stdout)
    assert full["quartiles"]["residual"] != causal["quartiles"]["residual"]
    assert causal["parameters"]["visible"] == "causal"
    assert full["figures"] == []
    assert full["correlation"]["estimate"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is no file or folder. For a model give"),
        (["synthetic", "--heads", "three"], "--heads must be heads as layer.head"),
        (["synthetic", "--heads", "9.9"], "there is no head 9.9"),
        (["synthetic", "--draws", "0"], "draws must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, words, message):
    done = run("softmax", *words, "-o", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("headscape: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
