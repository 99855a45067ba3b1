import numpy as np
import pytest

from headscape.errors import InputError
from headscape.tensor.attention_record import (
    AttentionRecord,
    causal_visibility,
    describe_visibility,
    full_visibility,
)


def record_of(n_heads=4, n_kv_heads=2, length=5, **changes):
    rng = np.random.default_rng(0)
    values = {
        "layer": 3,
        "queries": rng.normal(size=(n_heads, length, 2)).astype(np.float32),
        "keys": rng.normal(size=(n_kv_heads, length, 2)).astype(np.float32),
        "scale": 0.7,
        "visible": causal_visibility(length),
    }
    return AttentionRecord(**{**values, **changes})


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (1, 7), (4, 4), (3, 5), (5, 3)])
def test_causal_visibility_lets_the_last_query_see_all_keys(n_queries, n_keys):
    wanted = [[j <= i + n_keys - n_queries for j in range(n_keys)] for i in range(n_queries)]
    assert np.array_equal(causal_visibility(n_queries, n_keys), wanted)


def test_causal_visibility_costs_a_line_and_cannot_be_written_to():
    visible = causal_visibility(10_000)
    assert np.lib.array_utils.byte_bounds(visible)[1] - np.lib.array_utils.byte_bounds(visible)[0] < 20_000
    with pytest.raises(ValueError, match="read-only"):
        visible[0, 1] = True


def test_visibilities_are_described_by_a_word():
    window = causal_visibility(6) & ~causal_visibility(6).T[::-1, ::-1]
    assert describe_visibility(full_visibility(6)) == "full"
    assert describe_visibility(np.tri(6, dtype=bool)) == "causal"
    assert describe_visibility(window) == "explicit"
    assert describe_visibility(np.stack([np.tri(6, dtype=bool)] * 2)) == "explicit"


def test_query_heads_share_keys_in_groups():
    record = record_of(n_heads=6, n_kv_heads=2)
    assert [record.kv_head(head) for head in range(6)] == [0, 0, 0, 1, 1, 1]
    with pytest.raises(InputError, match="heads 0 to 5, but 6"):
        record.kv_head(6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 3}, "multiple of the key-value heads"),
        ({"keys": np.zeros((2, 5, 3), np.float32)}, "with the same d"),
        ({"visible": np.ones((5, 4), bool)}, "visible must have the shape"),
        ({"visible": np.ones((5, 5))}, "visible must be boolean"),
        ({"bias": np.zeros((5, 5), np.float32)}, "bias must have the shape"),
        ({"sinks": np.zeros(2, np.float32)}, "sinks must have the shape"),
        ({"probs": np.zeros((2, 5, 5), np.float32)}, "probs must have the shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        record_of(**changes)


def test_numbers_that_are_not_finite_name_the_layer():
    record = record_of()
    record.keys[1, 2, 0] = np.nan
    with pytest.raises(InputError, match="the keys of layer 3"):
        record.require_finite()
