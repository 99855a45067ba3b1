"""Captured attention against the model's own eager attention, for every family that capture names."""

import re

import numpy as np
import pytest
import torch

from headscape.errors import ModelError
from headscape.models.adapters.families import WORKING_FAMILIES
from headscape.models.anatomy import observed
from headscape.recorder.recording import Recording, record_batch
from headscape.tensor.fields import energy, logits, probs
from tiny_models import (
    ALL,
    BIDIRECTIONAL,
    CAUSAL,
    IMAGES,
    INLINE,
    LENGTH,
    NOT_SEEN,
    SEQ2SEQ,
    inputs_of,
    tiny_model,
    token_ids,
)

PADDED = [*CAUSAL, *BIDIRECTIONAL, *SEQ2SEQ]


def eager(model, inputs):
    """Run the model with its own eager code; return its attentions per stack, and its output."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(**inputs, output_attentions=True)
    model.set_attn_implementation(before)
    if hasattr(out, "text_model_output"):
        parts = {"text": out.text_model_output.attentions, "vision": out.vision_model_output.attentions}
        return parts, out.image_embeds
    if hasattr(out, "encoder_attentions"):
        parts = {
            "encoder": out.encoder_attentions,
            "decoder": out.decoder_attentions,
            "cross": out.cross_attentions,
        }
        return parts, out.last_hidden_state
    return {"self": out.attentions}, out.last_hidden_state


def probs_of(record):
    return np.stack([probs(record, head) for head in range(record.n_heads)])


def assert_records_match(rows, wanted, kept=None, tolerance=1e-5):
    """Compare every record with the eager attentions, at the tokens that are no padding."""
    for row, records in enumerate(rows):
        assert len(records) == sum(map(len, wanted.values()))
        for stack, attentions in wanted.items():
            of_stack = [record for record in records if record.stack == stack]
            for layer, (record, attention) in enumerate(zip(of_stack, attentions, strict=True)):
                theirs = attention[row].float().numpy()
                if kept is not None:
                    queries, keys = kept[stack]
                    theirs = theirs[:, queries[row]][:, :, keys[row]]
                assert record.layer == layer
                np.testing.assert_allclose(probs_of(record), theirs, atol=tolerance)


@pytest.mark.parametrize("family", ALL)
def test_probabilities_equal_eager_attention(family):
    model, inputs = tiny_model(family), inputs_of(family, rows=2)
    wanted, _ = eager(model, inputs)
    rows = record_batch(model, inputs)
    assert_records_match(rows, wanted)
    sharpest = max(float(p.max(dim=-1).values.mean()) for a in wanted.values() for p in a)
    assert sharpest > 0.3  # far from uniform, so that a wrong mask or scale would have shown


@pytest.mark.parametrize("family", ALL)
def test_the_output_while_recording_is_the_models_output(family):
    model, inputs = tiny_model(family), inputs_of(family, rows=2)
    _, wanted = eager(model, inputs)
    with observed(model, Recording(2)), torch.no_grad():
        out = model(**inputs)
    ours = out.image_embeds if family == "CLIP" else out.last_hidden_state
    torch.testing.assert_close(ours, wanted, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", PADDED)
def test_padded_batches_equal_eager_attention_without_the_padding(family, side):
    model, inputs = tiny_model(family), inputs_of(family, rows=2)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, slice(0, 4) if side == "left" else slice(-4, None)] = 0
    inputs["attention_mask"] = mask
    kept = mask.bool().numpy()
    everything = {"self": (kept, kept)}
    if family in SEQ2SEQ:
        targets = torch.ones_like(inputs["decoder_input_ids"])
        targets[1, -2:] = 0
        inputs["decoder_attention_mask"] = targets
        of_decoder = targets.bool().numpy()
        everything = {
            "encoder": (kept, kept),
            "decoder": (of_decoder, of_decoder),
            "cross": (of_decoder, kept),
        }
    wanted, _ = eager(model, inputs)
    rows = record_batch(model, inputs)
    assert rows[1][0].queries.shape[1] == LENGTH - 4
    assert_records_match(rows, wanted, everything)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "GptOss", "Bert", "T5", "ViT"])
def test_bfloat16_is_exact_to_its_own_rounding(family):
    """bf16 keeps 8 bits: the model's own probabilities are off by up to 2^-8, logits of size 8 by 2^-5."""
    model, inputs = tiny_model(family, torch.bfloat16), inputs_of(family, rows=2)
    inputs = {name: x.to(torch.bfloat16) if x.is_floating_point() else x for name, x in inputs.items()}
    rows = record_batch(model, inputs, exact=True)
    for records in rows:
        for record in records:
            assert record.queries.dtype == np.float32
            np.testing.assert_allclose(probs_of(record), record.probs, atol=0.05)
            assert np.abs(probs_of(record) - record.probs).mean() < 0.004


@pytest.mark.parametrize("family", ALL)
def test_exact_keeps_the_probabilities_of_the_models_own_code(family):
    model, inputs = tiny_model(family), inputs_of(family)
    (records,) = record_batch(model, inputs, exact=True)
    for record in records:
        np.testing.assert_allclose(probs_of(record), record.probs, atol=1e-5)


@pytest.mark.parametrize("family", ALL)
def test_energy_sums_to_zero_over_the_visible_keys(family):
    (records,) = record_batch(tiny_model(family), inputs_of(family))
    for record in records:
        for head in range(record.n_heads):
            field = energy(record, head)
            assert np.abs(field.sum(axis=1)).max() <= 1e-5 * max(1.0, np.abs(field).max())
            assert not field[~record.visible_to(head)].any()


def test_extra_terms_are_kept_apart_and_named():
    def first(family, stack="self"):
        (records,) = record_batch(tiny_model(family), inputs_of(family))
        return next(record for record in records if record.stack == stack)

    assert first("Gemma2").softcap == 2.0
    assert first("Gemma2").scale == 0.0625
    assert first("Granite").scale == pytest.approx(0.3)
    assert first("OPT").scale == 1.0
    assert first("GptOss").sinks.shape == (4,)
    assert first("T5", "encoder").bias.shape == (4, LENGTH, LENGTH)
    assert first("T5", "cross").bias is None
    assert first("Beit").bias is not None
    assert first("Llama").bias is None
    assert first("Llama").n_kv_heads == 2
    assert first("GPTBigCode").n_kv_heads == 1


def test_sliding_windows_hide_old_keys():
    (records,) = record_batch(tiny_model("Mistral"), inputs_of("Mistral"))
    visible = records[0].visible
    assert visible[8, 8]
    assert visible[8, 4]
    assert not visible[8, 3]
    assert not visible[3, 4]


def test_layers_that_share_a_mask_or_bias_share_the_array():
    (records,) = record_batch(tiny_model("T5"), inputs_of("T5"))
    one, two = (record for record in records if record.stack == "encoder")
    assert one.bias is two.bias
    assert one.visible is two.visible


def test_logits_before_the_mask_are_the_scaled_products():
    (records,) = record_batch(tiny_model("Llama"), inputs_of("Llama"))
    record = records[1]
    wanted = record.scale * np.einsum("qd,kd->qk", record.queries[3], record.keys[1])
    np.testing.assert_allclose(logits(record, 3), wanted, atol=1e-5)


@pytest.mark.parametrize("family", NOT_SEEN)
def test_a_model_with_attention_of_its_own_raises_and_names_the_families_that_work(family):
    with pytest.raises(ModelError, match=r"no attention was seen.*GPT-2, Llama, .*T5, BART"):
        record_batch(tiny_model(family), {"input_ids": token_ids()})


def test_every_named_family_has_a_test():
    short = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in (*ALL, *INLINE)}
    for name in re.split("; read at the softmax: |, ", WORKING_FAMILIES):
        plain = re.sub(r" ?\(.*\)", "", name)
        versions = re.match(r"(.*?)[ ]?(\d)/(\d)$", plain)
        wanted = [versions[1] + v for v in versions.groups()[1:]] if versions else [plain]
        for one in wanted:
            key = re.sub(r"[^a-z0-9]", "", one.lower())
            assert any(known.startswith(key) for known in short), f"{one} is named but not tested"


def test_images_have_the_tokens_of_the_model():
    (records,) = record_batch(tiny_model("ViT"), inputs_of("ViT"))
    assert records[0].queries.shape[1] == 17
    assert all(
        record.visible.all()
        for family in IMAGES
        for record in record_batch(tiny_model(family), inputs_of(family))[0]
    )
