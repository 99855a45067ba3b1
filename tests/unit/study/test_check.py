"""``hs.check`` finds every planted fault, alone and by name, and finds nothing in a sound model."""

import numpy as np
import pytest
import torch

from headscape.energy.invariants import Status
from headscape.errors import InputError
from headscape.study.check import check
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.capture import Capture
from headscape.tensor.fields import probs
from headscape.tensor.network_tensor import NetworkTensor

LAYER, HEAD = 1, 2


def llama(**changes):
    from transformers import LlamaConfig, LlamaModel

    values = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    torch.manual_seed(0)
    model = LlamaModel(LlamaConfig(**values | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.25)
    return model


@pytest.fixture
def implementation():
    """Register an attention implementation whose weights a fault changes, and return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def register(name, weights_of):
        def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
            groups = query.shape[1] // key.shape[1]
            scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scaling
            weights = weights_of(module, scores, attention_mask)
            output = weights @ value.repeat_interleave(groups, 1)
            return output.transpose(1, 2).contiguous(), weights

        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, eager_mask)
        return name

    return register


def sound(module, scores, mask):
    return (scores + mask).softmax(-1)


def faulty_head(weights_of):
    """Use a fault in one head of one layer only."""

    def both(module, scores, mask):
        weights = sound(module, scores, mask)
        if module.layer_idx == LAYER:
            weights = weights.clone()
            weights[:, HEAD] = weights_of(scores[:, HEAD], mask[:, 0])
        return weights

    return both


def failed(report):
    return {(f.test, f.layer, f.head) for f in report.failures}


@pytest.mark.parametrize("own", ["eager", "sdpa"])
def test_a_sound_model_passes_and_is_left_as_it_was(own):
    model = llama()
    model.set_attn_implementation(own)
    report = check(model)
    assert report.ok, report.text()
    assert not report.outliers
    assert set(report.tests) == {
        "zero-sum",
        "delocalization bound",
        "causality",
        "row sums",
        "mask",
        "rank bound",
        "recomputed probabilities",
        "softmax shift",
        "output",
        "run as configured",
        "position shift",
    }
    assert all(f.status == Status.passed for f in report.findings)
    assert model.config._attn_implementation == own


def test_a_sound_implementation_of_ones_own_passes(implementation):
    model = llama()
    model.set_attn_implementation(implementation("sound", sound))
    assert check(model).ok


def test_softmax_over_the_wrong_axis_is_named(implementation):
    model = llama()
    fault = faulty_head(lambda scores, mask: (scores + mask).softmax(-2))
    model.set_attn_implementation(implementation("wrong_axis", fault))
    report = check(model)
    assert failed(report) == {("row sums", LAYER, HEAD)}
    assert "columns do: softmax runs over the wrong axis" in report.failures[0].detail


def test_an_implementation_that_ignores_the_mask_is_named(implementation):
    model = llama()
    model.set_attn_implementation(
        implementation("no_mask", faulty_head(lambda scores, mask: scores.softmax(-1)))
    )
    report = check(model)
    assert failed(report) == {("mask", LAYER, HEAD)}
    assert "later key" in report.failures[0].detail


def test_a_mask_that_shows_the_next_token_is_named(monkeypatch):
    from transformers.models.llama import modeling_llama

    original = modeling_llama.create_causal_mask

    def off_by_one(*arguments, **options):
        mask = original(*arguments, **options)
        return None if mask is None else torch.cat([mask[..., 1:, :], mask[..., -1:, :]], dim=-2)

    monkeypatch.setattr(modeling_llama, "create_causal_mask", off_by_one)
    model = llama()
    model.set_attn_implementation("eager")
    report = check(model)
    assert {f.test for f in report.failures} == {"causality"}
    assert "query 0 sees key 1" in report.failures[0].detail


def test_a_mask_of_ones_own_implementation_is_named(implementation):
    from transformers import AttentionMaskInterface

    model = llama()
    name = implementation(
        "own_mask", lambda module, scores, mask: (scores if mask is None else scores + mask).softmax(-1)
    )
    AttentionMaskInterface.register(name, lambda *_, **__: None)
    model.set_attn_implementation(name)
    assert failed(check(model)) == {("run as configured", 0, None)}


def test_an_undeclared_bias_breaks_the_recomputed_probabilities(implementation):
    def biased(scores, mask):
        n = scores.shape[-1]
        distance = (torch.arange(n)[:, None] - torch.arange(n)).abs().sqrt()
        return (scores - distance + mask).softmax(-1)

    model = llama()
    model.set_attn_implementation(implementation("biased", faulty_head(biased)))
    report = check(model)
    assert failed(report) == {("rank bound", LAYER, HEAD), ("recomputed probabilities", LAYER, HEAD)}


def test_softmax_that_moves_with_its_logits_is_named(implementation):
    model = llama()
    fault = faulty_head(lambda scores, mask: (scores.clamp(max=12.0) + mask).softmax(-1))
    model.set_attn_implementation(implementation("clamped", fault))
    assert failed(check(model)) == {("softmax shift", LAYER, HEAD)}


def test_values_of_another_head_break_the_output(implementation):
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask
    from transformers.models.llama.modeling_llama import eager_attention_forward

    def swapped(module, query, key, value, attention_mask, scaling, dropout=0.0, **options):
        value = value.flip(1) if module.layer_idx == LAYER else value
        return eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout, **options)

    AttentionInterface.register("swapped", swapped)
    AttentionMaskInterface.register("swapped", eager_mask)
    model = llama()
    model.set_attn_implementation("swapped")
    assert failed(check(model)) == {("output", LAYER, head) for head in range(4)}


def test_a_layer_that_hides_its_attention_is_not_passed_over():
    model = llama()
    model.layers[LAYER].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    report = check(model)
    assert [(f.layer, f.status) for f in report.of_test("seen")] == [(LAYER, Status.not_judged)]
    assert "no attention was seen in this layer" in report.summary().set_index("test").loc["seen", "remark"]


def test_rotation_on_keys_only_is_named(monkeypatch):
    from transformers.models.llama import modeling_llama

    original = modeling_llama.apply_rotary_pos_emb

    def keys_only(q, k, *arguments, **options):
        return q, original(q, k, *arguments, **options)[1]

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", keys_only)
    report = check(llama())
    assert {f.test for f in report.failures} == {"position shift"}
    assert {f.layer for f in report.failures} == {0}
    assert "not rotated alike" in report.failures[0].detail


def test_a_row_that_is_not_centered_is_named(monkeypatch):
    from headscape.energy import invariants

    original = invariants.energy

    def off(record, head):
        field = original(record, head)
        if (record.layer, head) == (LAYER, HEAD):
            field[7] += np.where(record.visible[7], 0.01, 0)
        return field

    monkeypatch.setattr(invariants, "energy", off)
    assert failed(check(llama())) == {("zero-sum", LAYER, HEAD)}


def test_a_row_of_a_tensor_of_energies_that_is_not_centered_is_named():
    rng = np.random.default_rng(0)
    capture = Capture.from_arrays(rng.normal(size=(3, 4, 40, 8)), rng.normal(size=(3, 4, 40, 8)))
    tensor = capture.tensor(0, "energy")
    assert check(tensor, causal=True).ok
    data = tensor.data.copy()
    data[11, :12, tensor.heads.index((1, 3))] += 0.02
    report = check(NetworkTensor(data, tensor.heads, field="energy"))
    assert failed(report) == {("zero-sum", 1, 3)}
    assert "row 11 of the energy sums to" in report.failures[0].detail


def test_probabilities_from_elsewhere_are_checked():
    rng = np.random.default_rng(1)
    capture = Capture.from_arrays(rng.normal(size=(2, 40, 8)), rng.normal(size=(2, 40, 8)))
    tensor = capture.tensor(0, "probs")
    assert check(tensor, causal=True).ok
    flipped = NetworkTensor(tensor.data.transpose(1, 0, 2).copy(), tensor.heads, field="probs")
    report = check(flipped, causal=True)
    assert {f.test for f in report.failures} == {"row sums", "causality"}
    assert "softmax runs over the wrong axis" in report.failures[0].detail
    with pytest.raises(InputError, match="energies or probabilities"):
        check(capture.tensor(0, "logits"))


def test_a_key_scaled_by_100_is_an_outlier_and_no_failure():
    model = llama()

    def scale(module, arguments, output):
        output = output.clone()
        output[:, 20, 8:16] *= 100
        return output

    model.layers[2].self_attn.k_proj.register_forward_hook(scale)
    report = check(model)
    assert report.ok
    assert list(report.outliers) == [(2, 1)]
    assert "outlier: key-value head 2.1 has mu_K = 6" in report.text()


def test_keys_rounded_to_four_bits_are_named_against_the_reference():
    model, reference = llama(), llama()

    def int4(module, arguments, output):
        keys = output[..., :8]
        step = keys.abs().amax(dim=-1, keepdim=True) / 7
        return torch.cat([(keys / step).round() * step, output[..., 8:]], dim=-1)

    model.layers[LAYER].self_attn.k_proj.register_forward_hook(int4)
    report = check(model, against=reference)
    assert failed(report) == {("keys against reference", LAYER, head) for head in (0, 1)}
    rounded = report.differences.query("layer == 1 and kv_head == 0")["keys"]
    assert rounded.between(0.01, 0.2).all()
    assert report.differences.query("layer == 0")["probabilities"].max() == 0
    assert check(reference, against=llama()).ok


def test_a_lossy_conversion_is_named_against_the_reference():
    model = llama().to(torch.bfloat16).to(torch.float32)
    report = check(model, against=llama())
    assert not report.ok
    assert {f.layer for f in report.failures} == {0}
    assert report.differences["keys"].iloc[0] < 0.05
    assert check(model, against=llama(), tolerance=0.5).ok


def test_half_precision_is_judged_by_its_own_rounding():
    report = check(llama().to(torch.bfloat16), against=llama())
    assert report.ok, report.text()


def test_models_of_other_shape_cannot_be_compared():
    with pytest.raises(InputError, match="3 modules with 12 heads and 2 modules with 8 heads"):
        check(llama(), against=llama(num_hidden_layers=2))


def test_a_capture_is_checked_without_a_model():
    rng = np.random.default_rng(2)
    queries, keys = rng.normal(size=(2, 2, 4, 48, 8)).astype(np.float32)
    records = [
        AttentionRecord(layer, queries[layer], keys[layer], 0.35, causal_visibility(48)) for layer in (0, 1)
    ]
    records = [r.replace(probs=np.stack([probs(r, head) for head in range(4)])) for r in records]
    report = check(Capture.from_records([records]))
    assert report.ok
    assert "recomputed probabilities" in report.tests
    wrong = records[1].probs.copy()
    wrong[3] = np.roll(wrong[3], 1, axis=0)
    report = check(Capture.from_records([[records[0], records[1].replace(probs=wrong)]]))
    assert failed(report) == {("mask", 1, 3)}
    shown = records[0].replace(visible=np.ones((48, 48), bool), probs=None)
    assert failed(check(Capture.from_records([[shown, records[1].replace(probs=None)]]), causal=True)) == {
        ("causality", 0, head) for head in range(4)
    }


def test_soft_cap_and_sinks_are_named_where_a_test_does_not_apply():
    rng = np.random.default_rng(3)
    queries, keys = 2 * rng.normal(size=(2, 2, 64, 8)).astype(np.float32)
    plain = AttentionRecord(0, queries, keys, 0.35, causal_visibility(64))

    def with_probs(record):
        return record.replace(probs=np.stack([probs(record, head) for head in range(2)]))

    capped = with_probs(plain.replace(layer=1, softcap=2.0))
    sunk = with_probs(plain.replace(layer=2, sinks=np.zeros(2, np.float32)))
    report = check(Capture.from_records([[with_probs(plain), capped, sunk]]))
    assert report.ok
    by_layer = {f.layer: f for f in report.of_test("rank bound")}
    assert by_layer[0].detail == by_layer[2].detail == ""
    assert "of s q.k alone, without soft-cap 2: the whole field has rank 3" in by_layer[1].detail
    assert by_layer[1].value == 8


def test_the_report_is_plain_json():
    import json

    report = check(llama().to(torch.bfloat16).to(torch.float32), against=llama())
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["format"] == "headscape/check/1"
    assert values["ok"] is False
    assert values["failures"][0]["test"] == "keys against reference"
    assert values["failures"][0]["layer"] == 0
    assert len(values["differences"]) == 12


def test_bad_inputs_are_refused():
    with pytest.raises(InputError, match="check takes a transformers model"):
        check(np.ones((3, 3)))
    with pytest.raises(InputError, match="3 tokens, but one window needs 64"):
        check(llama(), [1, 2, 3])
    padded = {
        "input_ids": torch.ones(1, 8, dtype=torch.long),
        "attention_mask": torch.tensor([[1] * 7 + [0]]),
    }
    with pytest.raises(InputError, match="must not be padded"):
        check(llama(), padded)
    with pytest.raises(InputError, match="against compares two models"):
        check(Capture.from_arrays(np.ones((2, 4, 3)), np.ones((2, 4, 3))), against=llama())
    broken = llama()
    with torch.no_grad():
        broken.layers[1].self_attn.k_proj.weight[0, 0] = float("nan")
    with pytest.raises(InputError, match="keys of layer 1"):
        check(broken)
