"""GGUF files: converted once, with the special tokens that the file asks for."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGUFWriter

import headscape as hs
from headscape.cli.given import tell_conversion
from headscape.errors import ModelError
from headscape.models import gguf
from headscape.models.loading import load_model
from headscape.study import expected_time

TINY = Path(__file__).parents[3] / "examples" / "tiny_model"
WIDTH = 32
SHAPES = {
    "attn_norm": (WIDTH,),
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (16, WIDTH),
    "attn_v": (16, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_norm": (WIDTH,),
    "ffn_gate": (48, WIDTH),
    "ffn_up": (48, WIDTH),
    "ffn_down": (WIDTH, 48),
}


def write_gguf(path, *, bos=None, eos=None, bos_id=0, pre="smollm", blocks=2, without=()):
    """Write a Llama of two layers with the tiny model's vocabulary, and with BOS and EOS as wanted."""
    vocabulary = json.loads((TINY / "tokenizer.json").read_text())["model"]
    tokens = sorted(vocabulary["vocab"], key=vocabulary["vocab"].get)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in vocabulary["merges"]]
    writer = GGUFWriter(path, "llama")
    for name, number in {
        "block_count": blocks,
        "context_length": 64,
        "embedding_length": WIDTH,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "vocab_size": len(tokens),
    }.items():
        writer.add_uint32(f"llama.{name}", number)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    if bos_id is not None:
        writer.add_bos_token_id(bos_id)
    writer.add_eos_token_id(0)
    if bos is not None:
        writer.add_add_bos_token(bos)
    if eos is not None:
        writer.add_add_eos_token(eos)
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.{layer}.{name}": shape for layer in range(2) for name, shape in SHAPES.items()}
    for name, shape in shapes.items():
        if name not in without:
            writer.add_tensor(f"{name}.weight", rng.normal(scale=0.2, size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "model.gguf"


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({"bos": True}, ["<|end|>"], []),
        ({"bos": False}, [], []),
        ({}, [], []),
        ({"bos": True, "eos": True}, ["<|end|>"], ["<|end|>"]),
        ({"pre": "llama-bpe"}, ["<|end|>"], []),
        ({"pre": "llama-bpe", "bos": False}, [], []),
        ({"pre": "llama-bpe", "bos_id": None}, [], []),
    ],
)
@pytest.mark.parametrize("sample", ["spread", "first"])
def test_windows_have_the_special_tokens_that_the_file_asks_for(path, options, before, after, sample):
    write_gguf(path, **options)
    found = hs.capture(path, "Some words of a text. " * 100, length=16, windows=3, sample=sample)
    n = len(after)
    for window in range(3):
        labels = found.tokens(window)
        assert len(labels) == 16
        assert (list(labels[: len(before)]), list(labels[16 - n :])) == (before, after)
        assert "<|end|>" not in labels[len(before) : 16 - n]
    assert found.provenance["special_tokens"] == {"before": before, "after": after}


def test_ablations_read_their_windows_alike(path):
    text = "Some words of a text, and others that follow them. " * 60
    write_gguf(path, bos=True)
    study = hs.ablation_study(path, text, ["output-norm"], [1], length=16, draws=2)
    assert study.parameters["special_tokens"] == {"before": ["<|end|>"], "after": []}


def test_people_are_told_of_the_conversion_once(path, monkeypatch, capsys):
    monkeypatch.setattr(expected_time, "CONVERTED", write_gguf(path).stat().st_size / 40)
    people = SimpleNamespace(quiet=False, json=False)
    tell_conversion(str(path), people)
    assert capsys.readouterr().err.startswith("Expected time: about 40 seconds to convert the weights")
    tell_conversion(str(path), SimpleNamespace(quiet=True, json=False))
    load_model(path)
    tell_conversion(str(path), people)
    assert capsys.readouterr().err == ""


def test_bos_that_is_wanted_but_not_named(path):
    write_gguf(path, bos=True, bos_id=None)
    with pytest.raises(ModelError, match="BOS is added to every text, but not which token that is"):
        load_model(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": ["blk.0.attn_q"]}, r"1 missing \(model\.layers\.0\.self_attn\.q_proj\.weight\)"),
        ({"blocks": 1}, "has 2 layers, but its block_count is 1"),
        ({"blocks": 2**30}, "block_count is 1073741824"),
    ],
)
def test_weights_that_do_not_fit_are_named(path, options, message):
    write_gguf(path, **options)
    with pytest.raises(ModelError, match=message):
        load_model(path)


def test_conversions_of_older_versions_are_not_used_again(path, monkeypatch):
    write_gguf(path, bos=True)
    monkeypatch.setattr(gguf, "CONVERTER", 1)
    old = gguf.converted_gguf(path)
    monkeypatch.undo()
    monkeypatch.setenv("HEADSCAPE_CACHE", str(path.parent / "cache"))
    assert gguf.converted_gguf(path) != old


def test_a_file_that_is_no_gguf(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match="not a complete GGUF file of a supported model"):
        load_model(tmp_path / "model.gguf")
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_dir() and p.name != "models"]
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"a folder with config\.json, or a \.gguf file"):
        load_model(tmp_path / "model.bin")


def test_a_gguf_file_is_converted_once_even_by_two_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"weights")
    conversions = []

    def convert(path, folder):
        conversions.append(path)
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(gguf, "_convert", convert)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(gguf.converted_gguf(tmp_path / "model.gguf")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(conversions) == 1
    assert len(set(found)) == 1
    assert (found[0] / "config.json").exists()
    (tmp_path / "model.gguf").write_bytes(b"other weights")
    assert gguf.converted_gguf(tmp_path / "model.gguf") != found[0]


def test_a_failed_conversion_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"weights")

    def convert(path, folder):
        folder.mkdir()
        raise ModelError("half way")

    monkeypatch.setattr(gguf, "_convert", convert)
    with pytest.raises(ModelError, match="half way"):
        gguf.converted_gguf(tmp_path / "model.gguf")
    assert not [path for path in (tmp_path / "cache" / "models").iterdir() if path.is_dir()]
