"""Pruned models on disk: identical outputs after loading, plainly where the config says all; bad folders."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import headscape as hs
from headscape.errors import FileFormatError, InputError, ModelError, StorageError
from headscape.pruning import manifest_files
from headscape.pruning.pruned_files import claimed
from pruning_cases import EVEN, FAMILIES, LANGUAGE_MODELS, PLAIN, output_of, uneven
from tiny_models import inputs_of, tiny_causal_model, tiny_model, token_ids


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", ["uneven", "even"])
def test_a_reloaded_model_gives_identical_outputs(family, case, tmp_path):
    inputs = inputs_of(family)
    pruned = hs.prune(tiny_model(family), uneven(family) if case == "uneven" else EVEN)
    wanted = output_of(pruned.model, inputs)
    folder = hs.save_pruned(pruned, tmp_path / "pruned")
    loaded = hs.load_pruned(folder)
    assert torch.equal(output_of(loaded.model, inputs), wanted)
    assert type(loaded.model) is type(pruned.model)
    assert loaded.manifest == pruned.manifest
    assert torch.equal(output_of(hs.load_model(folder).model, inputs), wanted)
    plain = case == "even" and family in PLAIN
    assert loaded.manifest.plain == plain
    if plain:
        assert torch.equal(output_of(transformers.AutoModel.from_pretrained(folder), inputs), wanted)
    else:
        with pytest.raises(RuntimeError, match="mismatch"):
            transformers.AutoModel.from_pretrained(folder)


@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_reloaded_language_models_generate_the_same(family, tmp_path):
    ids = token_ids()
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    for number, heads in enumerate((uneven(family), EVEN)):
        pruned = hs.prune(tiny_causal_model(family), heads)
        loaded = hs.load_pruned(hs.save_pruned(pruned.model, tmp_path / str(number)))
        assert torch.equal(loaded.model(ids).logits, pruned.model(ids).logits)
        assert torch.equal(loaded.model.generate(ids, **options), pruned.model.generate(ids, **options))
    if family in PLAIN:
        plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "1")
        assert torch.equal(plain(ids).logits, pruned.model(ids).logits)


def test_counts_that_a_config_refuses_are_left_to_load_pruned(tmp_path):
    # A Llama config wants a hidden size that the number of heads divides, whatever its head_dim is.
    pruned = hs.prune(tiny_model("Llama", num_key_value_heads=4), [(0, 0), (1, 3)])
    assert not pruned.manifest.plain
    assert pruned.model.config.num_attention_heads == 4
    loaded = hs.load_pruned(hs.save_pruned(pruned, tmp_path / "pruned"))
    inputs = inputs_of("Llama")
    assert torch.equal(output_of(loaded.model, inputs), output_of(pruned.model, inputs))


def test_a_config_that_says_all_and_then_no_longer_does():
    pruned = hs.prune(tiny_model("Qwen2"), EVEN)
    assert pruned.model.config.num_attention_heads == 2
    assert pruned.model.config.head_dim == 8
    again = hs.prune(pruned.model, [(0, 0)])
    assert not again.manifest.plain
    assert again.model.config.num_attention_heads == 4
    assert not hasattr(again.model.config, "head_dim")


def test_a_model_trained_further_and_saved_in_another_precision(tmp_path):
    model = hs.prune(tiny_model("GPT2"), [(0, 0)]).model
    with torch.no_grad():
        model.h[0].attn.c_proj.weight.mul_(2)
    folder = hs.save_pruned(model.to(torch.bfloat16), tmp_path / "pruned")
    loaded = hs.load_pruned(folder).model
    assert torch.equal(loaded.h[0].attn.c_proj.weight, model.h[0].attn.c_proj.weight)
    wide = hs.load_pruned(folder, dtype="float32", device="cpu").model
    assert wide.h[0].attn.c_proj.weight.dtype == torch.float32


def test_words_are_kept(tmp_path):
    pruned = hs.prune(tiny_model("GPT2"), [(0, 0)]).described(method="random", evaluation="loss 2.0 -> 2.1")
    loaded = hs.load_pruned(hs.save_pruned(pruned, tmp_path / "pruned"))
    assert loaded.manifest.method == "random"
    assert loaded.manifest.evaluation == "loss 2.0 -> 2.1"
    assert loaded.described(calibration="prose").manifest.method == "random"
    assert loaded.summary() == pruned.summary()


def test_folders_are_written_whole_and_nothing_else_is_lost(tmp_path, monkeypatch):
    pruned = hs.prune(tiny_model("GPT2"), [(0, 0)])
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"holds something else \(notes.txt"):
        hs.save_pruned(pruned, tmp_path)
    with pytest.raises(StorageError, match="is a file"):
        hs.save_pruned(pruned, tmp_path / "notes.txt")
    folder = hs.save_pruned(pruned, tmp_path / "deep" / "pruned")
    monkeypatch.setattr(type(pruned.model), "save_pretrained", _fail)
    with pytest.raises(StorageError, match="could not be written"):
        hs.save_pruned(pruned, folder)
    monkeypatch.undo()
    assert hs.load_pruned(folder).removed == ((0, 0),)
    hs.save_pruned(hs.prune(tiny_model("GPT2"), [(1, 1)]), folder)
    assert hs.load_pruned(folder).removed == ((1, 1),)
    assert [entry.name for entry in folder.parent.iterdir()] == ["pruned"]


def _fail(*_, **__):
    raise OSError("no")


def test_models_that_were_not_pruned_are_refused(tmp_path):
    model = tiny_model("GPT2")
    with pytest.raises(InputError, match="got a GPT2Model that was not pruned"):
        hs.save_pruned(model, tmp_path / "whole")
    model.save_pretrained(tmp_path / "whole")
    with pytest.raises(
        FileFormatError, match=r"not a model that headscape pruned.*Load it with hs.load_model"
    ):
        hs.load_pruned(tmp_path / "whole")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return hs.save_pruned(
        hs.prune(tiny_causal_model("Llama"), [(0, 0), (0, 1)]), tmp_path_factory.mktemp("models") / "pruned"
    )


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def edit(folder, change):
    values = json.loads((folder / "config.json").read_text())
    change(values)
    (folder / "config.json").write_text(json.dumps(values))


CHANGES = {
    "format": (
        lambda v: v["headscape_pruning"].update(format="headscape/pruning/2"),
        FileFormatError,
        "reads pruning only up to number 1. Update headscape",
    ),
    "kind": (
        lambda v: v["headscape_pruning"].update(format="headscape/study/1"),
        FileFormatError,
        "holds a headscape study",
    ),
    "no object": (lambda v: v.update(headscape_pruning=3), FileFormatError, "not a JSON object"),
    "layers": (lambda v: v["headscape_pruning"].pop("layers"), FileFormatError, "layers in .* are damaged"),
    "unknown heads": (
        lambda v: v["headscape_pruning"]["layers"][0].update(kept=[2, 9]),
        FileFormatError,
        r"cannot keep the heads \[2, 9\] of 4",
    ),
    "no heads": (
        lambda v: v["headscape_pruning"]["layers"][0].update(kept=[]),
        FileFormatError,
        "cannot keep the heads",
    ),
    "uneven groups": (
        lambda v: v["headscape_pruning"]["layers"][0].update(kept=[0, 1, 2]),
        FileFormatError,
        "cannot keep the heads",
    ),
    "other heads": (
        lambda v: v["headscape_pruning"]["layers"][0].update(kept=[0, 1]),
        FileFormatError,
        "contradicts itself",
    ),
    "other shape": (
        lambda v: v["headscape_pruning"]["layers"][0].update(kept=[0, 1, 2, 3]),
        FileFormatError,
        "do not fit its config.json",
    ),
    "unknown module": (
        lambda v: v["headscape_pruning"]["layers"][0].update(module="model.elsewhere"),
        FileFormatError,
        "names a module that LlamaForCausalLM does not have",
    ),
    "savings": (
        lambda v: v["headscape_pruning"].pop("savings"),
        FileFormatError,
        "manifest in .* is damaged",
    ),
    "class": (lambda v: v.update(architectures=["os"]), FileFormatError, "must name a model class"),
    "no class": (lambda v: v.update(architectures=None), FileFormatError, "must name a model class"),
    "class of another kind": (
        lambda v: v.update(architectures=["AutoModel"]),
        FileFormatError,
        "must name a model",
    ),
    "code": (
        lambda v: v.update(auto_map={"AutoModel": "modeling_evil.Evil"}),
        ModelError,
        "brings code of its own",
    ),
    "more layers": (
        lambda v: v.update(num_hidden_layers=3),
        FileFormatError,
        "do not fit its config.json",
    ),
    "fewer layers": (lambda v: v.update(num_hidden_layers=1), FileFormatError, "a module that Llama"),
    "config": (lambda v: v.update(hidden_size="wide"), FileFormatError, "config.json is damaged"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_damaged_and_foreign_configs(name, folder):
    change, error, message = CHANGES[name]
    edit(folder, change)
    with pytest.raises(error, match=message):
        hs.load_pruned(folder)


def test_damaged_folders(folder, tmp_path):
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(FileFormatError, match=r"weights in .* are damaged, incomplete"):
        hs.load_pruned(folder)
    with pytest.raises(FileFormatError, match=r"weights in .* are damaged, incomplete"):
        hs.load_model(folder)
    weights.write_bytes(content)
    tensors = load_file(weights)
    save_file({**tensors, "extra": torch.zeros(2)}, weights, metadata={"format": "pt"})
    with pytest.raises(FileFormatError, match=r"1 unexpected \(extra"):
        hs.load_pruned(folder)
    del tensors["model.norm.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(FileFormatError, match=r"1 missing \(model.norm.weight"):
        hs.load_pruned(folder)
    weights.unlink()
    with pytest.raises(FileFormatError, match=r"weights in .* are damaged, incomplete"):
        hs.load_pruned(folder)
    (folder / "config.json").write_text('{"model_type": ')
    with pytest.raises(FileFormatError, match=r"config.json is damaged"):
        hs.load_pruned(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileFormatError, match=r"not a folder with a config.json"):
        hs.load_pruned(folder)
    with pytest.raises(FileFormatError, match=r"not a folder with a config.json"):
        hs.load_pruned(tmp_path / "nowhere")


def test_unknown_dtypes_and_devices(whole):
    with pytest.raises(InputError, match="dtype must be one of"):
        hs.load_pruned(whole, dtype="int3")
    with pytest.raises(InputError, match="device must be one"):
        hs.load_pruned(whole, device="moon")


def test_a_tokenizer_is_written_beside_the_model(tmp_path):
    class Tokenizer:
        def save_pretrained(self, folder):
            (folder / "tokenizer.json").write_text("{}")

    folder = hs.save_pruned(hs.prune(tiny_model("GPT2"), [(0, 0)]), tmp_path / "pruned", Tokenizer())
    assert (folder / "tokenizer.json").exists()


@pytest.mark.parametrize("writer", ["weights", "tokenizer", "manifest"])
def test_a_full_disk_is_told_as_everywhere(tmp_path, monkeypatch, writer):
    pruned = hs.prune(tiny_model("GPT2"), [(0, 0)])

    def full(*arguments, **options):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    if writer == "weights":
        monkeypatch.setattr(type(pruned.model), "save_pretrained", full)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    monkeypatch.setattr(manifest_files, "_repaired_projections", lambda pruned: {"0.weight": torch.ones(2)})
    tokenizer = SimpleNamespace(save_pretrained=full) if writer == "tokenizer" else None
    with pytest.raises(StorageError, match="the disk is full while writing"):
        if writer == "manifest":
            hs.export_manifest(pruned, tmp_path / "out")
        else:
            hs.save_pruned(pruned, tmp_path / "out", tokenizer=tokenizer)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert writer == "manifest" or list(tmp_path.iterdir()) == []


def test_two_runs_do_not_write_to_the_same_folder(tmp_path):
    with claimed(tmp_path / "new" / "out"):
        with (
            pytest.raises(StorageError, match=r"another run is writing to .*out"),
            claimed(tmp_path / "new" / "out"),
        ):
            pass
        with claimed(tmp_path / "new" / "other"):
            pass
    with claimed(tmp_path / "new" / "out"):
        pass
    assert list(tmp_path.iterdir()) == []
