"""Every family that can be captured obeys the invariants, and its learned interaction is read right."""

import numpy as np
import pytest
import torch

from headscape.energy.judgement import Status
from headscape.errors import ModelError
from headscape.models.anatomy import attention_modules, observed
from headscape.recorder.interaction import interaction_spectra
from headscape.recorder.recording import record_batch
from headscape.study.check import check
from tiny_models import ALL, BIDIRECTIONAL, IMAGES, inputs_of, tiny_model

NORMALIZED = {"Qwen3", "Qwen3Moe", "Gemma3Text", "Olmo2"}
"""Their queries and keys are normalized after the projection."""

PROJECTIONS = ("k_proj", "key", "k_lin", "k", "qkv_proj", "Wqkv", "query_key_value", "c_attn")


@pytest.mark.parametrize("own", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ALL)
def test_the_invariants_hold(family, own):
    model = tiny_model(family)
    if family not in ("Gemma2", "GptOss"):  # soft cap and sinks are beyond sdpa
        model.set_attn_implementation(own)
    report = check(model, inputs_of(family, rows=2))
    assert report.ok, report.text()
    judged = {j.test for j in report.judgements if j.status == Status.passed}
    assert {"zero-sum", "delocalization bound", "recomputed probabilities", "output", "rank bound"} <= judged
    both_ways = {j.stack for j in report.of_test("causality") if j.status == Status.not_judged}
    assert both_ways <= {"self", "encoder", "vision"}
    assert ("causality" in judged) == (family not in (*BIDIRECTIONAL, *IMAGES, "Wav2Vec2"))


@pytest.mark.parametrize("family", sorted(set(ALL) - {"CLIP"}))
def test_active_dropout_is_seen(family):
    names = {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout_rate"}
    rates = {name: 0.25 for name in names if hasattr(tiny_model(family).config, name)}
    model = tiny_model(family, **rates).train()
    assert {j.value for j in check(model, inputs_of(family)).of_test("dropout")} == {0.25}


@pytest.mark.parametrize(
    ("family", "remark"), [("Gemma2", "soft-cap 2"), ("GptOss", "sinks"), ("T5", "position bias")]
)
def test_what_is_not_a_product_of_queries_and_keys_is_reported(family, remark):
    report = check(tiny_model(family), inputs_of(family))
    assert report.table()["remark"].str.contains(remark).any()


@pytest.mark.parametrize("family", sorted(set(ALL) - NORMALIZED - {"DeepseekV3", "Albert"}))
def test_the_weights_of_each_head_give_its_keys_and_values(family):
    """Rotations and scales apart, keys are W_K x: their norms agree up to one factor. Values are W_V x."""
    model = tiny_model(family)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") and parameter.dim() == 1:
                parameter.zero_()
    records = record_batch(model, inputs_of(family))[0]
    anatomy = {module.name: module for module in attention_modules(model, inputs_of(family))}
    modules, seen, values = dict(model.named_modules()), {}, Values()
    for record in records:
        name = next(n for n in PROJECTIONS if n in dict(modules[record.module].named_children()))
        part = modules[f"{record.module}.{name}"]
        part.register_forward_hook(lambda _, x, __, key=record.module: seen.__setitem__(key, x[0][0].numpy()))
    with observed(model, values), torch.no_grad():
        model(**inputs_of(family))
    for record in records:
        _, w_k, w_v = anatomy[record.module].weights()
        norms = np.linalg.norm(np.einsum("hdm,tm->htd", w_k, seen[record.module]), axis=-1)
        ratio = np.linalg.norm(record.keys, axis=-1) / norms
        np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)
        expected = np.einsum("hdm,tm->htd", w_v, seen[record.module])
        np.testing.assert_allclose(values.of[record.module], expected, rtol=1e-3, atol=1e-4)


class Values:
    def __init__(self):
        self.of = {}

    def see(self, call):
        self.of[call.name] = call.values[0].numpy()


def test_interactions_are_given_for_every_head():
    model = tiny_model("Llama")
    spectra = interaction_spectra(attention_modules(model, inputs_of("Llama")))
    assert sorted(spectra) == [(layer, head) for layer in range(2) for head in range(4)]
    weights = model.layers[1].self_attn
    w_q = weights.q_proj.weight.detach().numpy()[3 * 8 :]
    w_k = weights.k_proj.weight.detach().numpy()[1 * 8 :]
    dense = np.linalg.svd(w_q.T @ w_k, compute_uv=False)[:8]
    np.testing.assert_allclose(spectra[1, 3].singular_values, dense, rtol=1e-4)


def test_a_module_without_plain_projections_is_refused():
    model = tiny_model("DeepseekV3")
    with pytest.raises(ModelError, match=r"no projections .* in layers\.0\.self_attn"):
        interaction_spectra(attention_modules(model, inputs_of("DeepseekV3")))
