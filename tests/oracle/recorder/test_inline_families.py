"""Attention that is read at its softmax against the model's own, for every family that has it inline."""

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import InputError, ModelError
from headscape.models.adapters.inline_models import InlineAdapter
from headscape.models.anatomy import ADAPTERS, adapter_for, attention_modules, observed
from headscape.recorder.gates import gated, switched_off
from headscape.recorder.recording import Recording, record_batch
from headscape.tensor.fields import log_ratio, logits, probs
from tiny_models import HEADS, INLINE, LAYERS, LENGTH, tiny_causal_model, tiny_model, token_ids

BIASED = {"Bloom", "Falcon (ALiBi)", "Mpt", "XLNet", "Deberta", "DebertaV2"}
"""Something is added to s q.k: ALiBi, relative positions."""


def own_attentions(model, inputs):
    """The model's own probabilities, (layer, batch, head, query, key)."""
    before = model.config._attn_implementation
    model.config._attn_implementation_internal = "eager"
    with torch.no_grad():
        found = torch.stack(model(**inputs, output_attentions=True).attentions).numpy()
    model.config._attn_implementation_internal = before
    # XLNet gives (query, key, batch, head).
    return found.transpose(0, 3, 4, 1, 2) if found.shape[1:3] == (LENGTH, LENGTH) else found


def inputs_with(padding):
    inputs = {"input_ids": token_ids(rows=2)}
    if padding:
        inputs["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.long)
        inputs["attention_mask"][1, slice(0, 4) if padding == "left" else slice(-4, None)] = 0
    return inputs


def output_of(model, inputs):
    with torch.no_grad():
        return model(**inputs)[0]


def all_heads(field, record):
    return np.stack([field(record, head) for head in range(record.n_heads)])


@pytest.mark.parametrize("padding", ["", "left", "right"])
@pytest.mark.parametrize("family", INLINE)
def test_probabilities_equal_the_models_own(family, padding):
    model, inputs = tiny_model(family), inputs_with(padding)
    wanted, before = own_attentions(model, inputs), output_of(model, inputs)
    rows = record_batch(model, inputs, exact=True)
    assert torch.equal(output_of(model, inputs), before)
    kept = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool().numpy()
    for row, records in enumerate(rows):
        assert [record.layer for record in records] == list(range(LAYERS))
        for record in records:
            theirs = wanted[record.layer, row][:, kept[row]][:, :, kept[row]]
            np.testing.assert_allclose(all_heads(probs, record), theirs, atol=1e-5)
            np.testing.assert_array_equal(record.probs, theirs)
    assert max(p.max(axis=-1).mean() for p in wanted[:, 0]) > 0.3


@pytest.mark.parametrize("family", INLINE)
def test_queries_keys_and_what_is_added_are_seen(family):
    (records,) = record_batch(tiny_model(family), {"input_ids": token_ids()})
    for record in records:
        assert record.has_products
        assert record.head_dim == 8
        assert (record.bias is not None) == (family in BIASED)
        assert record.n_kv_heads == (1 if family == "Falcon" else HEADS)


@pytest.mark.parametrize("family", sorted(set(INLINE) - {"XLNet"}))
def test_a_gate_of_0_equals_zeroed_columns_of_the_output_projection(family):
    model, inputs = tiny_model(family), inputs_with("left")
    modules = attention_modules(model)
    intact = output_of(model, inputs)
    with switched_off(modules, [(1, 2)]):
        gate = output_of(model, inputs)
    assert not torch.allclose(gate, intact)
    projection = modules[1].output
    with torch.no_grad():
        projection.matrix[:, projection.columns([2])] = 0
    with switched_off(modules, []):  # with the same code: Falcon's own is sdpa
        torch.testing.assert_close(gate, output_of(model, inputs), atol=1e-5, rtol=1e-5)


def test_gradients_of_gates_are_those_of_finite_differences():
    model, ids = tiny_model("XLNet", torch.float64), token_ids()
    modules = attention_modules(model)

    def loss(gate):
        with gated(modules, {0: gate}):
            return model(input_ids=ids)[0].square().sum()

    assert torch.autograd.gradcheck(
        loss, torch.tensor([1.0, 0.5, 0.0, 0.8], dtype=torch.float64, requires_grad=True)
    )


def test_nested_gates_multiply_and_everything_is_put_back():
    model, inputs = tiny_model("Falcon"), {"input_ids": token_ids()}
    modules, before = attention_modules(model), output_of(model, inputs)
    half = {0: torch.full((HEADS,), 0.5)}
    with gated(modules, half), gated(modules, half):
        twice = output_of(model, inputs)
    with gated(modules, {0: torch.full((HEADS,), 0.25)}):
        torch.testing.assert_close(twice, output_of(model, inputs))
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(output_of(model, inputs), before)
    with pytest.raises(RuntimeError, match="stop"), observed(model, Recording(1)):
        raise RuntimeError("stop")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.config._attn_implementation == "sdpa"


def soft_capped(module, query, key, value, attention_mask=None):
    scores = 2 * torch.tanh(query @ key.transpose(-1, -2) / module.scale_attn / 2)
    weights = torch.nn.functional.softmax(scores + attention_mask, dim=-1)
    return weights @ value, weights


@pytest.fixture
def capped(monkeypatch):
    """A model whose logits are no sum of products: only they themselves can be seen."""
    model = tiny_causal_model("GPTJ")
    monkeypatch.setattr(type(model.transformer.h[0].attn), "_attn", soft_capped)
    return model


def test_where_products_are_hidden_the_finished_logits_are_kept(capped, tmp_path):
    inputs = inputs_with("left")
    with torch.no_grad():
        wanted = capped(**inputs, output_attentions=True).attentions
    kept = inputs["attention_mask"].bool().numpy()
    for row, records in enumerate(record_batch(capped, inputs)):
        for record, attention in zip(records, wanted, strict=True):
            theirs = attention[row].numpy()[:, kept[row]][:, :, kept[row]]
            assert not record.has_products
            np.testing.assert_allclose(all_heads(probs, record), theirs, atol=1e-5)
            assert np.abs(all_heads(logits, record)).max() <= 2
            for head in range(HEADS):
                visible = record.visible_to(head)
                logs = np.where(visible, np.log(np.where(visible, theirs[head], 1.0)), 0.0)
                centered = logs - logs.sum(axis=1, keepdims=True) / visible.sum(axis=1, keepdims=True)
                np.testing.assert_allclose(
                    log_ratio(record, head), np.where(visible, centered, 0.0), atol=1e-5
                )


def test_an_analysis_leaves_out_what_needs_queries_and_keys(capped, tmp_path):
    ids = token_ids(rows=4, length=24)
    study = hs.analyze(
        capped, ids, out=tmp_path / "study", stages=["patterns", "entropy", "energy", "interaction"]
    )
    assert study.capture.provenance["observed_by"] == "softmax reader"
    assert any("Energy was left out: it needs queries and keys" in str(finding) for finding in study.findings)
    assert study.heads["haar_entropy"].notna().all()
    assert "mu_K" not in study.heads
    assert hs.check(capped, ids).ok
    with pytest.raises(InputError, match="need queries and keys"):
        hs.energy_table(study.capture)
    study.report(tmp_path / "report.html")


def test_analysis_patterns_and_ablation_of_gpt_j(tmp_path):
    model, ids = tiny_causal_model("GPTJ"), token_ids(rows=6, length=24)
    study = hs.analyze(model, ids, out=tmp_path / "study")
    assert study.heads["mu_K"].notna().all()
    assert hs.head_patterns(model, ids).index.tolist() == [
        (i, j) for i in range(LAYERS) for j in range(HEADS)
    ]
    result = hs.ablation_study(model, ids, methods=("haar", "gradient"), draws=2)
    assert (result.intact > 0).all()
    with pytest.raises(ModelError, match=r"cannot cut heads out of GPTJAttention.*Switching heads off works"):
        hs.prune(model, [(0, 0)])


def test_a_monitor_watches_inline_attention_and_changes_nothing(capped):
    model, alone, ids = (
        tiny_causal_model("Bloom").train(),
        tiny_causal_model("Bloom").train(),
        token_ids(rows=2),
    )
    monitor = hs.HeadMonitor(model, every=1)
    with monitor:
        watched = model(input_ids=ids).logits
    monitor.step()
    assert torch.equal(watched, alone(input_ids=ids).logits)
    assert monitor.table()["mu_K"].notna().all()
    assert len(monitor.table()) == LAYERS * HEADS
    with pytest.raises(ModelError, match="finished logits"):
        hs.HeadMonitor(capped)


@pytest.mark.parametrize("stored", [False, True])
def test_a_model_that_never_calls_the_registered_function_is_read_at_its_softmax(
    stored, caplog, monkeypatch, tmp_path
):
    """As where transformers says that a model can be switched, but its code does not ask for the function."""
    model = tiny_model("GPTJ")
    monkeypatch.setattr(type(model), "_can_set_attn_implementation_cached_value", True, raising=False)
    assert not isinstance(adapter_for(model), InlineAdapter)
    caplog.set_level("INFO", logger="headscape")
    path = tmp_path / "capture" if stored else None
    for _ in range(2 if stored else 1):  # a finished capture is opened again
        capture = hs.capture(model, token_ids(), path=path)
        assert capture.provenance["observed_by"] == "softmax reader"
    assert "calls no attention function" in caplog.text
    assert isinstance(adapter_for(model), InlineAdapter)


def test_the_reader_is_chosen_before_the_interface():
    names = [adapter.name for adapter in ADAPTERS if adapter.accepts(tiny_model("Bloom"))]
    assert names[:2] == ["softmax reader", "attention interface"]
    assert adapter_for(tiny_model("GPT2")).name == "attention interface"
