"""``headscape energy`` as a user starts it: the analysis with the stage "energy"."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscape as hs
from cli_runs import headscape_here, one_line, one_object


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: headscape_here(monkeypatch, capsys, "energy", *words)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(2, 3, 2, 80, 8))
    keys[:, 1, 1, 30] *= 100
    made = hs.Capture.from_arrays(
        rng.normal(size=(2, 3, 4, 80, 8)), keys, provenance={"model": {"name": "planted"}}
    )
    path = tmp_path_factory.mktemp("energy") / "capture"
    made.save(path)
    return path


def test_energy_of_a_capture_leaves_tables_findings_and_figures(run, capture, tmp_path):
    summary = one_object(run(capture, "-o", tmp_path, "--signatures", "--head", "2.3", "--json"))
    text = " ".join(summary["findings"])
    assert "1.1" in text
    assert "W_Q^T W_K was left out" in text
    heads, kv_heads = (pd.read_csv(tmp_path / f"energy_{name}.csv") for name in ("heads", "kv_heads"))
    assert len(heads) == 2 * 12
    assert len(kv_heads) == 2 * 6
    assert {"mu_K", "mu_K_q25", "k90", "participation", "zero_sum", "centering"} <= set(heads)
    assert hs.Study.load(tmp_path)["energy"].tables.lengths == (64, 80)
    assert len(list((tmp_path / "figures").glob("*.png"))) == 6


def test_lengths_are_chosen_and_figures_left_out(run, capture, tmp_path):
    one_object(run(capture, "-o", tmp_path, "--json", "--figures", "none", "--lengths", "64"))
    assert hs.Study.load(tmp_path)["energy"].tables.lengths == (64,)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--head", "1.0,1.1"], "--head takes one head"),
        (["--head", "9.0"], "--head must be one of the heads"),
        (["--lengths", "64,512"], "shortest window (80 keys)"),
        (["--text", "pyproject.toml"], "--text is for models"),
        (["--stack", "decoder"], "stack must be one of"),
        (["--dtype", "bfloat16"], "--dtype is for models"),
        (["--dtype", "x,,y"], "--dtype must be one of float32"),
        (["--length", "16"], "--length is for models"),
        (["--beside", "nowhere"], "not a headscape folder"),
    ],
)
def test_bad_options_are_refused_in_one_line(run, capture, tmp_path, options, message):
    one_line(run(capture, "-o", tmp_path, *options), message)


def test_models_are_drawn_beside_each_other(run, tmp_path):
    model = Path(__file__).parents[2] / "examples" / "tiny_model"
    words = ["--windows", 1, "--length", 16, "--json"]
    one_object(run(model, "-o", tmp_path / "a", "--figures", "none", *words))
    one_object(run(model, "-o", tmp_path / "b", "--beside", tmp_path / "a", *words))
    assert (tmp_path / "b" / "figures" / "incoherence_models.png").stat().st_size > 0
