"""The energy field: its definition, the log-ratio route, and what is refused."""

import numpy as np
import pytest

from headscape.energy.field import energy_field, log_ratio_energy, zero_sum_error
from headscape.errors import InputError
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.fields import energy, probs


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def test_is_the_logits_minus_their_row_mean():
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 30, 5))
    logits = 0.3 * queries @ keys.T
    np.testing.assert_allclose(
        energy_field(queries, keys, 0.3), logits - logits.mean(axis=1, keepdims=True), atol=1e-14
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-15), (np.float32, 1e-6)])
@pytest.mark.parametrize("offset", [0.0, 1.0, 100.0])
def test_rows_sum_to_zero_at_rounding_level(dtype, tolerance, offset):
    rng = np.random.default_rng(1)
    queries, keys = rng.normal(size=(2, 256, 64)).astype(dtype)
    assert zero_sum_error(energy_field(queries, keys + dtype(offset), 0.125)) < tolerance


def test_queries_and_keys_may_differ_in_number():
    rng = np.random.default_rng(2)
    assert energy_field(rng.normal(size=(3, 4)), rng.normal(size=(7, 4)), 1.0).shape == (3, 7)


def test_the_log_ratio_of_probabilities_is_the_same_field():
    rng = np.random.default_rng(3)
    queries, keys = rng.normal(size=(2, 40, 8))
    attention = softmax(0.5 * queries @ keys.T)
    np.testing.assert_allclose(log_ratio_energy(attention), energy_field(queries, keys, 0.5), atol=1e-12)


def test_the_log_ratio_over_visible_keys_is_the_field_energy_of_a_capture():
    rng = np.random.default_rng(4)
    queries, keys = rng.normal(size=(2, 1, 40, 8)).astype(np.float32)
    record = AttentionRecord(0, queries, keys, 0.35, causal_visibility(40))
    route = log_ratio_energy(probs(record, 0), record.visible)
    np.testing.assert_allclose(route, energy(record, 0), atol=2e-5)
    assert not route[~record.visible].any()


def test_zeros_in_probabilities_are_refused_with_their_place():
    attention = np.full((4, 4), 0.25)
    attention[2, 3] = 0.0
    with pytest.raises(InputError, match=r"1 of 16 are not; the first is 0\.0 at query 2, key 3"):
        log_ratio_energy(attention)


def test_half_precision_that_flushed_to_zero_is_refused():
    rng = np.random.default_rng(5)
    queries, keys = rng.normal(size=(2, 64, 64))
    attention = softmax(3 * queries @ keys.T).astype(np.float16)
    with pytest.raises(InputError, match="save probabilities as float32"):
        log_ratio_energy(attention)


def test_masked_zeros_need_the_mask():
    attention = np.tri(3) / np.arange(1, 4)[:, None]
    with pytest.raises(InputError, match="visible="):
        log_ratio_energy(attention)
    assert not log_ratio_energy(attention, np.tri(3, dtype=bool)).any()


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"visible must have the shape of probs \(2, 2\)"):
        log_ratio_energy(np.full((2, 2), 0.5), np.ones((3, 2), bool))


@pytest.mark.parametrize(
    ("queries", "keys", "message"),
    [
        (np.ones((1, 2)), np.ones((1, 2)), "at least 2 keys, but there is 1"),
        (np.ones((3, 0)), np.ones((3, 0)), "head dimension of at least 1"),
        (np.ones((3, 2)), np.full((3, 2), np.nan), "keys must be finite, but 6 entries are NaN"),
        (np.full((3, 2), np.inf), np.ones((3, 2)), "queries must be finite"),
        (np.ones((3, 2)), np.ones((3, 4)), "same head dimension, but queries have 2 and keys 4"),
        (np.ones((2, 3, 2)), np.ones((3, 2)), r"queries must be the matrix \(query, d\)"),
        (np.ones((3, 2)), np.ones((2, 3, 2)), r"keys must be the matrix \(key, d\)"),
        (np.ones((3, 2)), np.array([["a", "b"]] * 2), "must hold real numbers"),
    ],
)
def test_bad_input_is_refused(queries, keys, message):
    with pytest.raises(InputError, match=message):
        energy_field(queries, keys, 1.0)


def test_a_row_that_is_not_centered_shows_in_the_zero_sum_error():
    rng = np.random.default_rng(6)
    field = energy_field(*rng.normal(size=(2, 32, 8)), 1.0)
    field[5] += 0.01 * np.abs(field).max()
    assert zero_sum_error(field) == pytest.approx(0.01, rel=0.05)
    assert zero_sum_error(np.zeros((3, 3))) == 0.0
