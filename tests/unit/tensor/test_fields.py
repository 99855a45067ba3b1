"""The fields against loops written from their definitions."""

import math

import numpy as np
import pytest

from headscape.errors import InputError
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.fields import energy, field_of_head, logits, probs

L, D = 6, 3


@pytest.fixture
def record():
    rng = np.random.default_rng(1)
    return AttentionRecord(
        layer=0,
        queries=rng.normal(size=(4, L, D)).astype(np.float32),
        keys=rng.normal(size=(2, L, D)).astype(np.float32),
        scale=0.3,
        visible=causal_visibility(L),
    )


def slow_logit(record, head, i, j):
    value = sum(
        float(a) * float(b) for a, b in zip(record.queries[head, i], record.keys[head // 2, j], strict=True)
    )
    value *= record.scale
    if record.softcap is not None:
        value = record.softcap * math.tanh(value / record.softcap)
    return value + (0.0 if record.bias is None else float(record.bias[head, i, j]))


def slow_probs(record, head):
    result = np.zeros((L, L))
    for i in range(L):
        weights = {
            j: math.exp(slow_logit(record, head, i, j)) for j in range(L) if record.visible_to(head)[i, j]
        }
        total = sum(weights.values()) + (0.0 if record.sinks is None else math.exp(record.sinks[head]))
        for j, weight in weights.items():
            result[i, j] = weight / total
    return result


def variants(record):
    rng = np.random.default_rng(2)
    per_head = rng.random((4, L, L)) < 0.6
    per_head[:, :, 0] = True
    return {
        "plain": record,
        "softcap": record.replace(softcap=0.4),
        "bias": record.replace(bias=rng.normal(size=(4, L, L)).astype(np.float32)),
        "sinks": record.replace(sinks=rng.normal(size=4).astype(np.float32)),
        "mask of each head": record.replace(visible=per_head),
    }


@pytest.mark.parametrize("name", ["plain", "softcap", "bias", "sinks", "mask of each head"])
def test_logits_and_probs_follow_the_definition(record, name):
    record = variants(record)[name]
    for head in range(4):
        wanted = [[slow_logit(record, head, i, j) for j in range(L)] for i in range(L)]
        np.testing.assert_allclose(logits(record, head), wanted, atol=1e-6)
        np.testing.assert_allclose(probs(record, head), slow_probs(record, head), atol=1e-6)


def test_sinks_take_probability_and_nothing_else_does(record):
    assert np.allclose(probs(record, 1).sum(axis=1), 1.0, atol=1e-6)
    sums = probs(record.replace(sinks=np.zeros(4, np.float32)), 1).sum(axis=1)
    assert (sums < 0.95).all()


def test_a_query_that_sees_nothing_has_zero_rows(record):
    visible = np.array(record.visible)
    visible[2] = False
    blind = record.replace(visible=visible)
    assert not probs(blind, 0)[2].any()
    assert not energy(blind, 0)[2].any()
    assert np.isfinite(probs(blind.replace(sinks=np.ones(4, np.float32)), 0)).all()


def test_large_logits_do_not_overflow(record):
    sharp = record.replace(scale=1e4)
    assert np.allclose(probs(sharp, 0).sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "softcap", "bias", "sinks", "mask of each head"])
def test_energy_is_the_centered_raw_product_whatever_the_model_adds(record, name):
    record = variants(record)[name]
    plain = record.replace(softcap=None, bias=None, sinks=None)
    for head in range(4):
        visible = record.visible_to(head)
        raw = np.array([[slow_logit(plain, head, i, j) for j in range(L)] for i in range(L)])
        mean = [raw[i][visible[i]].mean() for i in range(L)]
        wanted = np.where(visible, raw - np.array(mean)[:, None], 0.0)
        np.testing.assert_allclose(energy(record, head), wanted, atol=1e-6)


def test_energy_stays_exact_when_keys_have_a_large_common_part(record):
    far = record.replace(keys=record.keys + np.float32(256.0))
    field = energy(far, 0)
    zero_sum = np.abs(field.sum(axis=1, dtype=np.float64)).max() / (L * np.abs(field).max())
    assert zero_sum < 1e-6
    np.testing.assert_allclose(field, energy(record, 0), atol=2e-4)


def test_energy_is_the_centered_log_ratio_of_the_probabilities(record):
    p, visible = probs(record, 3), record.visible
    log_p = np.log(np.where(visible, p, 1.0))
    clr = np.where(
        visible, log_p - log_p.sum(axis=1, keepdims=True) / visible.sum(axis=1, keepdims=True), 0.0
    )
    np.testing.assert_allclose(energy(record, 3), clr, atol=1e-5)


def test_an_unknown_field_names_those_there_are(record):
    with pytest.raises(InputError, match="one of probs, logits, energy, log_ratio, but is 'prob'"):
        field_of_head(record, 0, "prob")
