"""Sinks against loops written from the definition, and the probabilities without them."""

import math

import numpy as np
import pytest

from headscape.errors import InputError
from headscape.tensor.capture import Capture
from headscape.tensor.network_tensor import WITHOUT_SINKS, NetworkTensor
from headscape.tensor.sinks import (
    FAINT_ROW,
    FEWEST_QUERIES,
    at_points_of,
    sink_keys,
    sink_scores,
    without_sinks,
)
from headscape.tensor.tensor_windows import TensorWindows

L = 24


def random_probs(heads=4, length=L, causal=True, seed=0, keys=None):
    rng = np.random.default_rng(seed)
    x = rng.random((length, keys or length, heads)) + 0.1
    if causal:
        x *= np.tri(length)[:, :, None]
    return x / x.sum(axis=1, keepdims=True)


def with_sink(x, key, heads, share=0.6):
    """Give one key a share of the attention of some heads, wherever it is visible."""
    x = x.copy()
    for head in heads:
        rows = x[:, key, head] > 0
        x[rows, :, head] *= 1 - share
        x[rows, key, head] += share
    return x


def probs(x, **labels):
    return NetworkTensor(x, field="probs", **labels)


@pytest.mark.parametrize("causal", [True, False])
def test_scores_are_mean_attention_of_the_queries_that_see_a_key(causal):
    x = random_probs(causal=causal)
    scores = sink_scores(probs(x))
    for key in range(L):
        queries = range(key, L) if causal else range(L)
        for head in range(4):
            expected = sum(x[query, key, head] for query in queries) / len(queries)
            if len(queries) < FEWEST_QUERIES:
                expected = 0.0
            assert scores[key, head] == pytest.approx(expected)


@pytest.mark.parametrize(("causal", "key"), [(True, 0), (True, 9), (False, 17), (False, L - 1)])
def test_planted_sinks_are_found_wherever_they_are(causal, key):
    x = with_sink(random_probs(heads=8, causal=causal), key, [2, 5])
    assert sink_keys(probs(x)) == (key,)


def test_a_sink_needs_a_twentieth_of_the_heads():
    x = random_probs(heads=40)
    assert sink_keys(probs(with_sink(x, 3, [7]))) == ()
    assert sink_keys(probs(with_sink(x, 3, [7, 8]))) == (3,)
    assert sink_keys(probs(with_sink(x[:, :, :5], 3, [2]))) == (3,)


@pytest.mark.parametrize("length", [1, 2, 3, 9, 10, 11, 32, 100])
def test_even_and_local_heads_have_no_sink_at_any_length(length):
    even = np.tri(length) / np.arange(1, length + 1)[:, None]
    own, previous = np.eye(length), np.eye(length, k=-1)
    previous[0, 0] = 1.0
    for head in (even, own, previous, np.full((length, length), 1 / length)):
        assert sink_keys(probs(head[:, :, None])) == ()


def test_windows_of_few_tokens_have_no_sinks():
    x = np.zeros((3, 3, 2))
    x[:, 0] = 1.0
    assert sink_keys(probs(x)) == ()
    assert without_sinks(probs(x)).shape == (3, 3, 2)


def test_padding_queries_are_not_counted():
    x = with_sink(random_probs(causal=False), 5, [0, 1, 2, 3], share=0.4)
    x[12:] = 0.0
    assert sink_keys(probs(x)) == (5,)
    np.testing.assert_allclose(sink_scores(probs(x))[5], x[:12, 5].mean(axis=0))


def test_sinks_and_their_queries_are_left_out_and_rows_sum_to_one():
    x = with_sink(with_sink(random_probs(), 0, [0, 1]), 6, [2])
    tokens = [f"t{i}" for i in range(L)]
    found = without_sinks(probs(x, tokens=tokens, provenance={"window": 3}))
    kept = [i for i in range(L) if i not in (0, 6)]
    expected = x[np.ix_(kept, kept)]
    np.testing.assert_allclose(found.data, expected / expected.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found.data.sum(axis=1), 1.0)
    assert found.field == WITHOUT_SINKS
    assert list(found.tokens) == list(found.key_tokens) == [tokens[i] for i in kept]
    assert found.provenance == {"window": 3, "left_out": {"query": [0, 6], "key": [0, 6]}}
    assert x.sum(axis=1) == pytest.approx(1.0)  # the tensor itself is as it was


def test_without_sinks_nothing_changes():
    x = probs(random_probs())
    found = without_sinks(x)
    np.testing.assert_array_equal(found.data, x.data)
    assert found.field == WITHOUT_SINKS
    assert found.provenance["left_out"] == {"query": [], "key": []}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_with_nothing_but_a_sink_become_zero(dtype):
    x = random_probs(heads=3).astype(dtype)
    x[:, :, 0], x[:, 0, 0] = 0.0, 1.0  # nothing is left: 0 / 0
    x[5, 1, 0] = FAINT_ROW / 2  # and here what is left is rounding
    x[7, 1:3, 0] = 2 * FAINT_ROW, FAINT_ROW  # but here it says something
    found = without_sinks(probs(x)).data
    assert found.dtype == dtype
    assert np.isfinite(found).all()
    assert not found[[0, 1, 2, 3, 4, 5], :, 0].any()
    np.testing.assert_allclose(found[6, :2, 0], [2 / 3, 1 / 3], rtol=1e-6)
    assert found[:, :, 1].sum(axis=1) == pytest.approx(1.0, abs=1e-6)


def test_cross_attention_keeps_all_queries():
    x = with_sink(random_probs(length=L, keys=15, causal=False), 14, [0, 1])
    found = without_sinks(probs(x))
    assert found.shape == (L, 14, 4)
    assert found.provenance["left_out"] == {"query": [], "key": [14]}


@pytest.mark.parametrize(
    "labels",
    [
        {"tokens": list("abcdefghijklmnopqrstuvwx"), "key_tokens": list("ABCDEFGHIJKLMNOPQRSTUVWX")},
        {"provenance": {"stack": "cross"}},
    ],
)
def test_cross_attention_of_equal_lengths_keeps_all_queries_too(labels):
    x = with_sink(random_probs(causal=False), 2, [0, 1])
    assert without_sinks(probs(x, **labels)).shape == (L, L - 1, 4)


def test_if_all_keys_are_sinks_it_says_so():
    x = np.zeros((12, 12, 12))
    for head in range(12):
        x[:, head, head] = 1.0
    assert sink_keys(probs(x)) == tuple(range(12))
    with pytest.raises(InputError, match="all 12 keys are sinks"):
        without_sinks(probs(x))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            NetworkTensor(random_probs(), field="logits"),
            "found in probabilities, but the tensor holds 'logits'",
        ),
        (NetworkTensor(random_probs() - 0.5, field="probs"), "not negative"),
        (NetworkTensor(3 * random_probs()), "a row sums to 3"),
    ],
)
def test_other_numbers_than_probabilities_are_refused(x, message):
    with pytest.raises(InputError, match=message):
        without_sinks(x)


def test_unknown_keys_are_refused():
    with pytest.raises(InputError, match="keys must be from 0 to 23"):
        without_sinks(probs(random_probs()), [24])


def test_one_head_without_a_head_axis():
    x = with_sink(random_probs(heads=1), 0, [0])[:, :, 0]
    assert without_sinks(probs(x)).shape == (L - 1, L - 1)


def test_it_is_a_field_of_captures_and_of_tensors_of_probabilities():
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(2, 2, L, 4)), rng.normal(size=(2, 2, L, 4))
    queries[..., 0], keys[..., 0] = 3.0, 0.0
    keys[:, :, 0, 0] = 6.0
    capture = Capture.from_arrays(queries, keys)
    found = capture.tensor(0, WITHOUT_SINKS)
    assert found.provenance["left_out"]["key"] == [0]
    assert found.shape == (L - 1, L - 1, 4)
    tensors = TensorWindows([capture.tensor(0, "probs")])
    np.testing.assert_array_equal(tensors.tensor(0, WITHOUT_SINKS).data, found.data)
    # Softmax over the other keys alone is the same.
    logits = at_points_of(capture.tensor(0, "logits"), found).data.astype(np.float64)
    weights = np.exp(logits) * np.tri(L - 1)[:, :, None]
    np.testing.assert_allclose(found.data, weights / weights.sum(axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(InputError, match="hold 'logits', but 'probs_without_sinks' is needed"):
        TensorWindows([capture.tensor(0, "logits")]).tensor(0, WITHOUT_SINKS)


def test_the_head_axis_stays_the_slowest_in_memory():
    x = np.ascontiguousarray(with_sink(random_probs(), 0, [0, 1]).transpose(2, 0, 1)).transpose(1, 2, 0)
    strides = without_sinks(probs(x)).data.strides
    assert strides[2] == max(strides)
    assert math.isclose(strides[1], x.itemsize)
