"""``headscape energy`` and ``headscape check`` as a user starts them."""

import json
import logging
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch

from headscape.cli.main import run
from headscape.tensor.capture import Capture
from headscape.tensor.files import save_tensor
from headscape.tensor.network_tensor import NetworkTensor


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def headscape(*args):
    """Run the program inside this process: loading torch anew for every call would take most of the time."""
    out, err, code = StringIO(), StringIO(), 0
    level = logging.getLogger("headscape").level
    with (
        patch.object(sys, "argv", ["headscape", *map(str, args)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            logging.getLogger("headscape").setLevel(level)
    return Done(code, out.getvalue(), err.getvalue())


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


def test_energy_of_a_capture_leaves_tables_statements_and_pictures(capture, tmp_path):
    done = headscape("energy", capture, "-o", tmp_path, "--csv", "--signatures", "--head", "2.3")
    assert done.returncode == 0, done.stderr
    assert "these stand out: 1.1." in " ".join(done.stdout.split())
    assert "a capture holds no weights" in " ".join(done.stdout.split())
    heads, kv_heads = (pd.read_csv(tmp_path / f"energy_{name}.csv") for name in ("heads", "kv_heads"))
    assert len(heads) == 2 * 12
    assert len(kv_heads) == 2 * 6
    assert {"mu_K", "mu_K_q25", "k90", "participation", "zero_sum", "centering"} <= set(heads)
    summary = json.loads((tmp_path / "energy.json").read_text())
    assert summary["format"] == "headscape/energy-summary/1"
    assert summary["lengths"] == [64, 80]
    assert len(list((tmp_path / "figures").glob("*.png"))) == 6


def test_energy_prints_one_json_object(capture, tmp_path):
    done = headscape("energy", capture, "-o", tmp_path, "--json", "--figures", "none", "--lengths", "64")
    assert json.loads(done.stdout)["statements"][0]["exceptions"] == [[1, 1]]
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--head", "1.0,1.1"], "--head takes one head"),
        (["--head", "9.0"], "there is no head 9.0"),
        (["--lengths", "64,512"], "between 2 and the shortest window (80 keys)"),
        (["--text", "book.txt"], "leave out --text"),
        (["--stack", "decoder"], "stack must be one of"),
        (["--beside", "nowhere"], "energy.json cannot be read"),
    ],
)
def test_energy_refuses_bad_options_in_one_line(capture, tmp_path, options, message):
    done = headscape("energy", capture, "-o", tmp_path, *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_check_passes_a_sound_model_and_compares_it(models, tmp_path):
    done = headscape("check", models / "sound", "--against", models / "rounded", "-o", tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAILED keys against reference, layer 1, head 0" in done.stdout
    assert "layer 0, head" not in done.stdout
    report = json.loads((tmp_path / "check.json").read_text())
    assert {failure["layer"] for failure in report["failures"]} == {1}
    assert len(pd.read_csv(tmp_path / "differences.csv")) == 8
    loose = headscape(
        "check", models / "sound", "--against", models / "rounded", "--tolerance", "0.9", "--json"
    )
    assert loose.returncode == 0
    assert json.loads(loose.stdout)["ok"] is True


def test_check_of_data_exits_with_one_when_it_fails(capture, tmp_path):
    done = headscape("check", capture)
    assert done.returncode == 0, done.stderr
    assert "outlier: key-value head 1.1 has mu_K" in done.stdout
    energy = Capture.load(capture).tensor(0, "energy")
    data = energy.data.copy()
    data[5, :3, 7] += 0.5
    save_tensor(NetworkTensor(data, energy.heads, field="energy"), tmp_path / "energy")
    done = headscape("check", tmp_path / "energy")
    assert done.returncode == 1
    assert "FAILED zero-sum, layer 1, head 3: row 5 of the energy sums to" in " ".join(done.stdout.split())
    done = headscape("check", tmp_path / "energy", "--against", "default")
    assert done.returncode == 2
    assert "holds data, not a model" in done.stderr
