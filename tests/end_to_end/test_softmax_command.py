"""``headscape softmax`` as a user runs it, on a tiny trained model and on files."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from cli_runs import headscape_here, one_line, one_object

TINY = Path(__file__).parents[2] / "examples" / "tiny_model"


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: headscape_here(monkeypatch, capsys, "softmax", *words)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    pytest.importorskip("torch")
    text = tmp_path_factory.mktemp("text") / "book.txt"
    text.write_text("The tree has a root and folders, and every folder has points of its own. " * 30)
    path = tmp_path_factory.mktemp("capture") / "tiny"
    hs.capture(TINY, text, windows=2, length=32, path=path)
    return path


def test_a_capture_gives_tables_pictures_and_a_verdict(run, capture, tmp_path):
    summary = one_object(run(capture, "-o", tmp_path, "--n-iter", 2, "--json"))
    assert summary["heads"] == 16
    study = hs.Study.load(tmp_path)["softmax"]
    assert study.verdict in summary["findings"]
    assert -1 <= study.correlation.low <= study.correlation.high <= 1
    rows = list(csv.DictReader((tmp_path / "softmax_heads.csv").open()))
    np.testing.assert_allclose([float(row["residual"]) for row in rows], study.of_heads("residual"))
    alone = hs.softmax_invariance(hs.Capture.load(capture), windows=1, n_iter=2)
    np.testing.assert_allclose(study.of_heads("residual"), alone.of_heads("residual"))
    names = {Path(path).stem for path in summary["figures"]}
    assert {"softmax_claim", "softmax_orders", "softmax_residual_map"} <= names
    assert sum(name.startswith("softmax_head_") for name in names) == 3


def test_organized_order_beats_shuffled_order_on_a_trained_model(capture):
    found = hs.softmax_invariance(hs.Capture.load(capture), windows=1, n_iter=3)
    assert np.median(found.of_heads("residual")) < np.median(found.of_heads("residual_shuffled"))


def test_chosen_heads_only_and_one_of_them_drawn(run, capture, tmp_path):
    words = ["--heads", "1.0,3.2", "--head", "3.2", "--masked", "block", "-o", tmp_path, "--n-iter", 1]
    done = run(capture, *words)
    assert done.returncode == 0, done.stderr
    assert "too few heads" in done.stdout
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"softmax_head_3_2", "softmax_levels_3_2"} <= drawn
    assert hs.Study.load(tmp_path).heads.index.tolist() == [(1, 0), (3, 2)]


def test_a_model_is_captured_on_the_way(run, tmp_path):
    pytest.importorskip("torch")
    text, out = tmp_path / "book.txt", tmp_path / "out"
    text.write_text("Points, folders, levels and trees. " * 40)
    words = ["--length", 24, "--heads", "0.1", "--n-iter", 1, "--figures", "none", "--quiet"]
    done = run(TINY, "--text", text, "-o", out, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert json.loads((out / "summary.json").read_text())["heads"] == 1


def test_files_of_logits_may_be_causal_and_rectangular(run, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(9, 14, 2)).astype(np.float32))
    words = [tmp_path / "x.npy", "--field", "logits", "--n-iter", 1, "--figures", "none", "--json"]
    one_object(run(*words, "-o", tmp_path / "full"))
    one_object(run(*words, "-o", tmp_path / "causal", "--causal"))
    full, causal = (hs.Study.load(tmp_path / name)["softmax"] for name in ("full", "causal"))
    assert not np.allclose(full.of_heads("residual"), causal.of_heads("residual"))
    assert causal.parameters["visible"] == "causal"
    assert np.isnan(full.correlation.estimate)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["./nowhere"], "there is no model at './nowhere'"),
        (["synthetic", "--heads", "three"], "--heads must be heads as layer.head"),
        (["synthetic", "--heads", "9.9"], "there is no head 9.9"),
        (["synthetic", "--draws", "0"], "draws must be a whole number from 1 to 10000"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, tmp_path, words, message):
    one_line(run(*words, "-o", tmp_path), message)
