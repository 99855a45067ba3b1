"""Manifests: exported alone, applied to the original weights, the same model bit by bit."""

import json
import logging
from types import SimpleNamespace

import pytest
import torch

import headscape as hs
from headscape.errors import FileFormatError, ModelError
from headscape.pruning.manifest import Manifest, manifest_of
from pruning_cases import EVEN, FAMILIES, uneven
from tiny_models import tiny_causal_model, tiny_model


def same_weights(a, b):
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_applied_manifest_gives_the_same_model(family, tmp_path, caplog):
    model = tiny_model(family)
    pruned = hs.prune(model, uneven(family)).described(method="gradient")
    folder = hs.export_manifest(pruned, tmp_path / "manifest")
    applied = hs.apply_manifest(model, folder)
    assert same_weights(applied.model, pruned.model)
    assert applied.manifest == pruned.manifest
    assert manifest_of(applied.model) == pruned.manifest
    assert not [record for record in caplog.records if record.name.startswith("headscape")]
    assert [entry.name for entry in folder.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Bert"])
def test_repaired_projections_go_with_it(family, tmp_path):
    model = tiny_model(family)
    biases = {} if family == "Llama" else {1: torch.randn(32)}
    repair = SimpleNamespace(matrices={1: torch.randn(32, 32)}, biases=biases)
    pruned = hs.prune(model, EVEN, repair=repair)
    folder = hs.export_manifest(pruned, tmp_path / "manifest")
    assert same_weights(hs.apply_manifest(model, folder).model, pruned.model)
    reloaded = hs.load_pruned(hs.save_pruned(pruned, tmp_path / "pruned"))
    again = hs.export_manifest(reloaded, tmp_path / "again")
    assert same_weights(hs.apply_manifest(model, again, in_place=True).model, pruned.model)


def test_repair_and_further_pruning_compose(tmp_path):
    model = tiny_model("GPT2")
    repair = SimpleNamespace(matrices={1: torch.randn(32, 32)}, biases={})
    twice = hs.prune(hs.prune(model, [(1, 0)], repair=repair).model, [(1, 0), (0, 3)])
    folder = hs.export_manifest(twice, tmp_path / "manifest")
    assert same_weights(hs.apply_manifest(model, folder).model, twice.model)


def test_other_weights_are_told_and_other_classes_fit(tmp_path, caplog):
    model = tiny_causal_model("Llama")
    folder = hs.export_manifest(hs.prune(model, EVEN), tmp_path / "manifest")
    with caplog.at_level(logging.WARNING, logger="headscape"):
        applied = hs.apply_manifest(model.model, folder)
    assert "was made from other weights" in caplog.text
    assert applied.manifest.layers[0].module == "layers.0.self_attn"
    assert same_weights(hs.load_pruned(hs.save_pruned(applied, tmp_path / "pruned")).model, applied.model)


def test_models_that_a_manifest_is_not_for(tmp_path):
    model = tiny_model("GPT2")
    pruned = hs.prune(model, [(0, 0)])
    folder = hs.export_manifest(pruned, tmp_path / "manifest")
    with pytest.raises(ModelError, match="this one was pruned already"):
        hs.apply_manifest(pruned.model, folder)
    with pytest.raises(
        ModelError, match="is for 2 layers of 4 heads, but this GPT2Model has 2 layers of 8 heads"
    ):
        hs.apply_manifest(tiny_model("GPT2", n_head=8), folder)


def test_damaged_manifests(tmp_path):
    model = tiny_model("GPT2")
    repair = SimpleNamespace(matrices={0: torch.randn(32, 32)}, biases={})
    pruned = hs.prune(model, [(0, 0)], repair=repair)
    folder = hs.export_manifest(pruned, tmp_path)
    weights = (folder / "repaired.safetensors").read_bytes()
    hs.export_manifest(hs.prune(model, [(0, 0), (0, 1)], repair=repair), tmp_path / "other")
    (folder / "repaired.safetensors").write_bytes((tmp_path / "other" / "repaired.safetensors").read_bytes())
    with pytest.raises(FileFormatError, match="does not fit the model: the matrix of the output projection"):
        hs.apply_manifest(model, folder)
    (folder / "repaired.safetensors").write_bytes(weights[:40])
    with pytest.raises(FileFormatError, match=r"repaired.safetensors is missing or damaged"):
        hs.apply_manifest(model, folder)
    (folder / "repaired.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"repaired.safetensors is missing or damaged"):
        hs.apply_manifest(model, folder)
    values = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**values, "format": "headscape/pruning/9"}))
    with pytest.raises(FileFormatError, match="Update headscape"):
        hs.apply_manifest(model, folder)
    (folder / "manifest.json").write_text("[")
    with pytest.raises(FileFormatError, match=r"manifest.json is damaged"):
        hs.apply_manifest(model, folder)
    with pytest.raises(FileFormatError, match="is not the manifest of a pruned model"):
        hs.apply_manifest(model, tmp_path / "nowhere")


def test_a_manifest_says_what_it_was_made_from_but_no_path_of_this_machine(tmp_path):
    tiny_model("GPT2").save_pretrained(tmp_path / "small-gpt2")
    model = hs.load_model(tmp_path / "small-gpt2").model
    manifest = hs.prune(model, [(0, 0)]).manifest
    assert manifest.model["name"] == "small-gpt2"
    assert manifest.model["class"] == "GPT2Model"
    assert manifest.config == {"num_attention_heads": 4}
    assert {"headscape", "torch", "transformers"} <= set(manifest.versions)
    text = json.dumps(manifest.to_dict())
    assert str(tmp_path) not in text
    assert Manifest.from_dict(json.loads(text), tmp_path) == manifest
