"""``hs.check`` finds every planted fault, alone and by name, and finds nothing in a sound model."""

import numpy as np
import pytest
import torch

from headscape.energy.judgement import Status
from headscape.errors import InputError
from headscape.study.check import check
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.capture import Capture
from headscape.tensor.fields import probs
from headscape.tensor.network_tensor import NetworkTensor
from studies import small_study

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

    def register(name, weights_of, mask=eager_mask):
        def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
            groups = query.shape[1] // key.shape[1]
            scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scaling
            weights = weights_of(module, scores, attention_mask)
            output = weights @ value.repeat_interleave(groups, 1)
            return output.transpose(1, 2).contiguous(), weights

        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, mask)
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
    return {(j.test, j.layer, j.head) for j in report.failures}


def in_every_head(test, heads=4):
    return {(test, layer, head) for layer in range(3) for head in range(heads)}


def statuses(report, test):
    return {j.status for j in report.of_test(test)}


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
        "own key",
        "row sums",
        "mask",
        "rank bound",
        "recomputed probabilities",
        "softmax shift",
        "output",
        "run as configured",
        "position shift",
        "dropout",
    }
    assert all(j.status == Status.passed for j in report.judgements)
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
    assert "wrong axis" in report.failures[0].detail


def test_an_implementation_that_ignores_the_mask_is_named(implementation):
    model = llama()
    model.set_attn_implementation(
        implementation("no_mask", faulty_head(lambda scores, mask: scores.softmax(-1)))
    )
    report = check(model)
    assert failed(report) == {("mask", LAYER, HEAD)}
    assert "later key" in report.failures[0].detail


def shifted(mask, by):
    """Return a mask function whose queries see one key more (by=1) or less (by=-1) than in a causal mask."""

    def moved(*arguments, **options):
        right = mask(*arguments, **{**options, "allow_is_causal_skip": False})
        hidden = right.new_full((), 0) if right.dtype == torch.bool else right.min()
        wrong = hidden.expand_as(right).clone()
        if by > 0:
            wrong[..., :-1, :] = right[..., 1:, :]
            wrong[..., -1, :] = right[..., -1, :]
        else:
            wrong[..., 1:, :] = right[..., :-1, :]
        return wrong

    return moved


@pytest.mark.parametrize(("by", "test", "count"), [(1, "causality", 63), (-1, "own key", 64)])
@pytest.mark.parametrize("kind", ["eager", "sdpa"])
def test_a_mask_function_that_is_off_by_one_is_named_in_every_head(implementation, kind, by, test, count):
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import eager_mask, sdpa_mask

    model = llama()
    name = implementation(f"off_{kind}", sound, shifted(sdpa_mask if kind == "sdpa" else eager_mask, by))
    if kind == "sdpa":
        AttentionInterface.register(name, sdpa_attention_forward)
    model.set_attn_implementation(name)
    report = check(model)
    assert failed(report) == in_every_head(test)
    assert {j.value for j in report.failures} == {count}
    assert all(f"{count} of 64 queries" in j.detail for j in report.failures)


@pytest.mark.parametrize("registered", [True, False])
def test_a_causal_model_without_a_mask_fails(implementation, registered):
    """An implementation whose mask function was forgotten gets none from transformers."""
    from transformers import AttentionMaskInterface

    model = llama()
    name = implementation(
        "maskless",
        lambda module, scores, mask: (scores if mask is None else scores + mask).softmax(-1),
        lambda *_, **__: None,
    )
    if not registered:
        del AttentionMaskInterface._global_mapping[name]
    model.set_attn_implementation(name)
    report = check(model)
    assert failed(report) == in_every_head("causality")
    assert {j.value for j in report.failures} == {64 * 63 / 2}
    assert check(model, causal=False).of_test("causality")[0].status == Status.not_judged


def test_a_sliding_window_that_the_own_mask_lost_is_named(implementation):
    from transformers import MistralConfig, MistralModel
    from transformers.masking_utils import causal_mask_function, eager_mask

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    model = MistralModel(
        MistralConfig(vocab_size=64, num_key_value_heads=2, sliding_window=8, **sizes)
    ).eval()
    assert check(model, length=40).ok

    def no_window(*arguments, **options):
        return eager_mask(*arguments, **{**options, "mask_function": causal_mask_function})

    model.set_attn_implementation(implementation("no_window", sound, no_window))
    assert failed(check(model, length=40)) == {("run as configured", 0, None)}


def test_causality_of_attention_that_is_not_causal_is_not_judged():
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = BertModel(BertConfig(vocab_size=64, **sizes)).eval()
    rng = np.random.default_rng(0)
    capture = Capture.from_arrays(*rng.normal(size=(2, 3, 4, 40, 8)), causal=False)
    for source in (model, capture, capture.tensor(0, "probs"), capture.tensor(0, "energy")):
        report = check(source)
        assert report.ok, report.text()
        assert statuses(report, "causality") == {Status.not_judged}
        assert "no mask" in report.of_test("causality")[0].detail
        assert "no mask" in report.text()
        assert "not judged: causality" in report.lines()[-1]
        assert failed(check(source, causal=True)) == in_every_head("causality")


def test_a_capture_whose_mask_is_off_by_one_fails():
    queries, keys = np.random.default_rng(0).normal(size=(2, 3, 4, 40, 8))
    ahead = Capture.from_arrays(queries, keys, visible=np.tri(40, k=1, dtype=bool))
    assert failed(check(ahead)) == in_every_head("causality")
    behind = Capture.from_arrays(queries, keys, visible=np.tri(40, k=-1, dtype=bool))
    assert failed(check(behind)) == in_every_head("own key")


def test_dropout_that_was_left_on_is_named():
    model = llama(attention_dropout=0.1)
    model.layers[LAYER].train()
    report = check(model)
    assert failed(report) == {("dropout", LAYER, None)}
    assert report.failures[0].value == 0.1
    assert "layers.1.self_attn" in report.failures[0].detail
    assert "model.eval()" in report.failures[0].detail
    assert model.layers[LAYER].training
    assert not model.layers[0].training
    assert check(model.eval()).ok
    assert check(llama().train()).ok


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
    assert [(j.layer, j.status) for j in report.of_test("seen")] == [(LAYER, Status.not_judged)]
    assert "no attention" in report.table().set_index("test").loc["seen", "remark"]


def test_rotation_on_keys_only_is_named(monkeypatch):
    from transformers.models.llama import modeling_llama

    original = modeling_llama.apply_rotary_pos_emb

    def keys_only(q, k, *arguments, **options):
        return q, original(q, k, *arguments, **options)[1]

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", keys_only)
    report = check(llama())
    assert {j.test for j in report.failures} == {"position shift"}
    assert {j.layer for j in report.failures} == {0}
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
    assert "row 11" in report.failures[0].detail


def test_probabilities_from_elsewhere_are_checked():
    rng = np.random.default_rng(1)
    capture = Capture.from_arrays(rng.normal(size=(2, 40, 8)), rng.normal(size=(2, 40, 8)))
    tensor = capture.tensor(0, "probs")
    assert check(tensor, causal=True).ok
    flipped = NetworkTensor(tensor.data.transpose(1, 0, 2).copy(), tensor.heads, field="probs")
    report = check(flipped, causal=True)
    assert {j.test for j in report.failures} == {"row sums", "causality"}
    assert "wrong axis" in report.failures[0].detail
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
    assert "key-value head 2.1" in report.text()


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
    assert {j.layer for j in report.failures} == {0}
    assert report.differences["keys"].iloc[0] < 0.05
    assert check(model, against=llama(), tolerance=0.5).ok


def test_half_precision_is_judged_by_its_own_rounding():
    report = check(llama().to(torch.bfloat16), against=llama())
    assert report.ok, report.text()


def test_models_of_other_shape_cannot_be_compared():
    with pytest.raises(InputError, match=r"12 heads .* 8 heads"):
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
    by_layer = {j.layer: j for j in report.of_test("rank bound")}
    assert by_layer[0].detail == by_layer[2].detail == ""
    assert "soft-cap 2" in by_layer[1].detail
    assert "rank 3" in by_layer[1].detail
    assert by_layer[1].value == 8


def test_a_study_is_checked_by_its_capture():
    study = small_study()
    report, alone = check(study), check(study.capture)
    assert report.judgements == alone.judgements
    assert report.subject == "planted"


def test_a_language_model_is_checked_whole():
    """Its body is not taken for it: the report names the class that was given."""
    from transformers import LlamaForCausalLM

    assert check(LlamaForCausalLM(llama().config)).subject == "LlamaForCausalLM"


def test_heads_of_a_layer_that_fail_alike_share_a_line():
    tensor = Capture.from_arrays(*np.ones((2, 2, 3, 20, 4)), causal=False).tensor(0, "probs")
    report = check(tensor, causal=True)
    assert len(report.failures) == 6
    lines = [line for line in report.lines() if line.startswith("FAILED")]
    assert ["heads 0, 1, 2" in line for line in lines] == [True, True]
    assert len([line for line in report.lines(1) if line.startswith("FAILED")]) == 1
    assert report.lines()[-1] == "6 failures"


def test_the_report_is_plain_json():
    import json

    report = check(llama().to(torch.bfloat16).to(torch.float32), against=llama())
    values = json.loads(json.dumps(report.summary(), allow_nan=False))
    assert values["format"] == "headscape/check/1"
    assert values["ok"] is False
    assert values["failures"][0]["test"] == "keys against reference"
    assert values["failures"][0]["layer"] == 0
    assert len(values["differences"]) == 12


def test_bad_inputs_are_refused():
    with pytest.raises(InputError, match=r"energies or probabilities .* 'unknown'"):
        check(np.ones((3, 3)))
    with pytest.raises(InputError, match="model must be a transformers model"):
        check(3)
    with pytest.raises(InputError, match="3 token ids, but length=64"):
        check(llama(), [1, 2, 3])
    padded = {
        "input_ids": torch.ones(1, 8, dtype=torch.long),
        "attention_mask": torch.tensor([[1] * 7 + [0]]),
    }
    with pytest.raises(InputError, match="must not be padded"):
        check(llama(), padded)
    capture = Capture.from_arrays(np.ones((2, 4, 3)), np.ones((2, 4, 3)))
    with pytest.raises(InputError, match="got a capture, which holds no weights"):
        check(capture, against=llama())
    with pytest.raises(InputError, match="got a capture, which holds no weights"):
        check(capture, "a text")
    broken = llama()
    with torch.no_grad():
        broken.layers[1].self_attn.k_proj.weight[0, 0] = float("nan")
    with pytest.raises(InputError, match="keys of layer 1"):
        check(broken)
