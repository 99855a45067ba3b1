"""Every family that can be captured obeys the invariants, and its learned interaction is read right."""

import numpy as np
import pytest
import torch

from headscape.energy.invariants import Status
from headscape.errors import ModelError
from headscape.models.adapters.attention_interface import observed
from headscape.recorder.interaction import head_weights, interaction_spectra
from headscape.recorder.recording import record_batch
from headscape.study.check import check
from tiny_models import ALL, inputs_of, tiny_model

NORMALIZED = {"Qwen3", "Qwen3Moe", "Gemma3Text", "Olmo2"}
"""Their queries and keys are normalized after the projection."""

PROJECTIONS = ("k_proj", "key", "k_lin", "k", "qkv_proj", "Wqkv", "query_key_value", "c_attn")


@pytest.mark.parametrize("family", ALL)
def test_the_invariants_hold(family):
    report = check(tiny_model(family), inputs_of(family, rows=2))
    assert report.ok, report.text()
    judged = {f.test for f in report.findings if f.status == Status.passed}
    assert {"zero-sum", "delocalization bound", "recomputed probabilities", "output", "rank bound"} <= judged


@pytest.mark.parametrize(
    ("family", "remark"), [("Gemma2", "soft-cap 2"), ("GptOss", "sinks"), ("T5", "position bias")]
)
def test_what_is_not_a_product_of_queries_and_keys_is_reported(family, remark):
    report = check(tiny_model(family), inputs_of(family))
    assert report.summary()["remark"].str.contains(remark).any()


@pytest.mark.parametrize("family", sorted(set(ALL) - NORMALIZED - {"DeepseekV3", "Albert"}))
def test_the_weights_of_each_head_give_its_keys_and_values(family):
    """Rotations and scales apart, keys are W_K x: their norms agree up to one factor. Values are W_V x."""
    model = tiny_model(family)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") and parameter.dim() == 1:
                parameter.zero_()
    records = record_batch(model, inputs_of(family))[0]
    modules, seen, values = dict(model.named_modules()), {}, Values()
    for record in records:
        name = next(n for n in PROJECTIONS if n in dict(modules[record.module].named_children()))
        part = modules[f"{record.module}.{name}"]
        part.register_forward_hook(lambda _, x, __, key=record.module: seen.__setitem__(key, x[0][0].numpy()))
    with observed(model, values), torch.no_grad():
        model(**inputs_of(family))
    for record in records:
        _, w_k, w_v = head_weights(modules[record.module], record.n_heads, record.n_kv_heads)
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

    def gate(self, call):
        return None


def test_interactions_are_given_for_every_head():
    model = tiny_model("Llama")
    spectra = interaction_spectra(model, record_batch(model, inputs_of("Llama"))[0])
    assert sorted(spectra) == [(layer, head) for layer in range(2) for head in range(4)]
    weights = model.layers[1].self_attn
    w_q = weights.q_proj.weight.detach().numpy()[3 * 8 :]
    w_k = weights.k_proj.weight.detach().numpy()[1 * 8 :]
    dense = np.linalg.svd(w_q.T @ w_k, compute_uv=False)[:8]
    np.testing.assert_allclose(spectra[1, 3].singular_values, dense, rtol=1e-4)


def test_a_module_without_plain_projections_is_refused():
    model = tiny_model("DeepseekV3")
    with pytest.raises(
        ModelError, match=r"no projections to queries, keys and values were found in layers\.0\.self_attn"
    ):
        interaction_spectra(model, record_batch(model, inputs_of("DeepseekV3"))[0])
