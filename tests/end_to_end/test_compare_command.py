"""``headscape compare`` as a user starts it: two networks in, tables, a report and one sentence out."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers")
pytest.importorskip("ot")

import headscape as hs
from cli_runs import headscape_here, one_line, one_object

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
SIZES = ("--windows", 5, "--length", 32)


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: headscape_here(monkeypatch, capsys, "compare", *words)


def capture(path, shape=(5, 2, 3, 24, 4)):
    q, k = np.random.default_rng(0).normal(size=(2, *shape))
    hs.Capture.from_arrays(q, k, tokens=[f"t{i}" for i in range(shape[3])]).save(path)
    return path


def test_a_model_beside_itself_is_identical_and_the_folder_holds_everything(run, tmp_path):
    words = (MODEL, MODEL, "-o", tmp_path, "--names", "one,two", *SIZES)
    told = run(*words)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("Identical on these windows.")
    assert "What next?" in told.stdout
    assert set(pd.read_csv(tmp_path / "changes.csv")["verdict"]) == {"identical"}
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    found = hs.Comparison.load(tmp_path)
    assert found.names == ("one", "two")
    assert "Identical" in found._repr_html_()
    again = one_object(run(*words, "--json"))
    assert again["headline"] == found.headline
    assert again["distances"] == [[0, 0], [0, 0]]
    assert json.loads((tmp_path / "summary.json").read_text())["findings"] == again["findings"]


def test_networks_of_different_shapes_say_what_cannot_be_compared(run, tmp_path):
    a, b = capture(tmp_path / "a"), capture(tmp_path / "b", (5, 1, 4, 16, 4))
    summary = one_object(run(a, b, "-o", tmp_path / "out", "--json"))
    assert "6 heads in 2 layers" in summary["headline"]
    assert "4 heads in 1 layer" in summary["headline"]
    assert {"CKA of head outputs", "changes by layer, folder and head"} <= {
        row["what"] for row in summary["not_compared"]
    }


def test_one_model_on_two_texts_and_on_two_ranges_of_layers(run, tmp_path):
    texts = [tmp_path / "prose.txt", tmp_path / "code.txt"]
    for path, line in zip(texts, ("The cat sat on the mat. ", "for i in range(3): f(i)\n"), strict=True):
        path.write_text(60 * line, encoding="utf-8")
    each = [word for path in texts for word in ("--text-each", path)]
    sizes = ("--windows", 2, "--length", 16)
    found = one_object(run(MODEL, MODEL, *each, "-o", tmp_path / "texts", *sizes, "--json"))
    assert [Path(source["texts"][0]).name for source in found["sources"]] == ["prose.txt", "code.txt"]
    assert found["pairs"][0]["windows"] == "other"
    layers = ("--layers-each", "0-1", "--layers-each", "2-3")
    found = one_object(run(MODEL, MODEL, *layers, "-o", tmp_path / "layers", *sizes, "--json"))
    assert [source["heads"] for source in found["sources"]] == [8, 8]
    one_line(run(MODEL, MODEL, *each[:2], "-o", tmp_path / "x"), "once per network (2 times)")
    one_line(
        run(MODEL, MODEL, *each, "--text", texts[0], "-o", tmp_path / "x"), "either --text or --text-each"
    )
    a = capture(tmp_path / "a")
    one_line(run(a, MODEL, *each, "-o", tmp_path / "x"), "--text-each is for models")


def test_quiet_prints_nothing(run, tmp_path):
    a = capture(tmp_path / "a")
    done = run(a, a, "-o", tmp_path / "out", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bad_input_is_refused_in_one_line(run, tmp_path):
    a = capture(tmp_path / "a")
    np.save(tmp_path / "t.npy", np.random.default_rng(0).random((8, 8, 4)))
    np.save(tmp_path / "nan.npy", np.full((8, 8, 4), np.nan))
    out = ("-o", tmp_path / "out")
    one_line(run(a, *out), "at least two sources")
    one_line(run(a, a, *out, "--text", MODEL / "config.json"), "--text is for models")
    one_line(run(a, a, *out, "--names", "same,same"), "different names")
    one_line(run(a, tmp_path / "t.npy", *out), "same field")
    one_line(run(tmp_path / "nan.npy", tmp_path / "t.npy", "-o", tmp_path / "other"), "NaN")
    one_line(run(a, a, *out, "--windows", 0), "--windows must be a whole number")


def test_a_missing_extra_names_the_pip_line(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    a = capture(tmp_path / "a")
    one_line(run(a, a, "-o", tmp_path / "out"), "pip install 'headscape[compare]'")
