"""``headscape check`` as a user starts it."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from cli_runs import headscape_here
from headscape.tensor.capture import Capture
from headscape.tensor.files import save_tensor
from headscape.tensor.network_tensor import NetworkTensor


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: headscape_here(monkeypatch, capsys, "check", *words)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(2, 3, 2, 80, 8))
    keys[:, 1, 1, 30] *= 100
    made = Capture.from_arrays(
        rng.normal(size=(2, 3, 4, 80, 8)), keys, provenance={"model": {"name": "planted"}}
    )
    path = tmp_path_factory.mktemp("energy") / "capture"
    made.save(path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny model, and the same after its keys lost digits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    folder = tmp_path_factory.mktemp("models")
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder / "sound")
    with torch.no_grad():
        weight = model.model.layers[1].self_attn.k_proj.weight
        step = weight.abs().max() / 7
        weight.copy_((weight / step).round() * step)
    model.save_pretrained(folder / "rounded")
    return folder


def test_check_passes_a_sound_model_and_compares_it(run, models, tmp_path):
    done = run(models / "sound", "--against", models / "rounded", "-o", tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAILED keys against reference, layer 1, heads 0, 1" in done.stdout
    assert "FAILED keys against reference, layer 0" not in done.stdout
    report = json.loads((tmp_path / "check.json").read_text())
    assert {failure["layer"] for failure in report["failures"]} == {1}
    assert len(pd.read_csv(tmp_path / "differences.csv")) == 8
    loose = run(models / "sound", "--against", models / "rounded", "--tolerance", "0.9", "--json")
    assert loose.returncode == 0
    assert json.loads(loose.stdout)["ok"] is True


def test_check_of_data_exits_with_one_when_it_fails(run, capture, tmp_path):
    done = run(capture)
    assert done.returncode == 0, done.stderr
    assert "key-value head 1.1" in done.stdout
    energy = Capture.load(capture).tensor(0, "energy")
    data = energy.data.copy()
    data[5, :3, 7] += 0.5
    save_tensor(NetworkTensor(data, energy.heads, field="energy"), tmp_path / "energy")
    done = run(tmp_path / "energy")
    assert done.returncode == 1
    assert "FAILED zero-sum, layer 1, head 3: row 5" in done.stdout
    done = run(tmp_path / "energy", "--against", "default")
    assert done.returncode == 2
    assert "--against is for models" in done.stderr
