"""Packed queries and keys: what the page unpacks gives the probabilities back."""

import base64
import zlib

import numpy as np
import pytest

from headscape.engine import LocalEngine
from headscape.report.packed_fields import TOLERANCE, bias_line, groups_of, pack_group, pack_integers
from headscape.report.packed_window import pack_window, packed_page
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.fields import energy, probs


def record_of(seed=0, heads=4, kv_heads=2, n=48, d=16, sharp=1.0, **terms):
    rng = np.random.default_rng(seed)
    queries = (sharp * rng.normal(size=(heads, n, d))).astype(np.float32)
    # Real keys have a large part in common and channels of very different size.
    keys = rng.normal(size=(kv_heads, n, d)) * np.geomspace(4, 0.01, d) + 10
    return AttentionRecord(3, queries, keys.astype(np.float32), d**-0.5, causal_visibility(n), **terms)


def unpacked(packed, points, rank):
    """Unpack in the way of ``fields.js``."""
    low, high = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(2, rank, points).astype(int)
    folded = low + 256 * high
    return np.where(folded % 2, -(folded + 1) // 2, folded // 2).T


def test_integers_come_back():
    values = np.random.default_rng(0).integers(-32_000, 32_000, size=(7, 5))
    np.testing.assert_array_equal(unpacked(pack_integers(values), 7, 5), values)


@pytest.mark.parametrize("sharp", [0.0, 0.3, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("terms", [{}, {"softcap": 3.0}, {"sinks": np.linspace(-2, 2, 4).astype(np.float32)}])
def test_probabilities_stay_within_the_tolerance(sharp, terms):
    record = record_of(sharp=sharp, **terms)
    for kv_head, heads in groups_of(record, range(4)):
        group = pack_group(record, kv_head, heads)
        keys = unpacked(group.keys, 48, group.rank) * group.key_step
        for i, head in enumerate(heads):
            queries = unpacked(group.queries[i], 48, group.rank) * group.query_step
            own = {} if "sinks" not in terms else {"sinks": terms["sinks"][[head]]}
            back = record.replace(
                queries=queries.astype(np.float32)[None], keys=keys.astype(np.float32)[None], scale=1.0, **own
            )
            difference = np.abs(probs(back, 0) - probs(record, head))
            assert difference.max() <= TOLERANCE
            assert difference.max() == pytest.approx(group.differences[i, 0], abs=1e-6)
            scale = max(1.0, float(np.abs(energy(record, head)).max()))
            np.testing.assert_allclose(energy(back, 0), energy(record, head), atol=0.1 * scale)


def test_channels_that_add_nothing_take_no_room():
    rich, poor = record_of(), record_of()
    poor.keys[:, :, 2:] = poor.keys[:, :1, 2:]  # the same for all keys: softmax does not see it
    assert pack_group(poor, 0, [0, 1]).rank <= 3 < pack_group(rich, 0, [0, 1]).rank
    assert pack_group(poor, 0, [0, 1]).size < pack_group(rich, 0, [0, 1]).size / 2


def test_only_some_heads_of_a_group_may_be_wanted():
    assert list(groups_of(record_of(), [1, 2, 3])) == [(0, [1]), (1, [2, 3])]


def test_a_bias_of_the_distance_becomes_a_line_and_any_other_none():
    distance = np.arange(48)[None, :] - np.arange(48)[:, None]
    by_distance = record_of(bias=np.repeat(distance[None] * np.float32(0.1), 4, axis=0).astype(np.float32))
    line = bias_line(by_distance, 2)
    np.testing.assert_allclose(line[: 48 - 1 + 1], 0.1 * np.arange(-47, 1), atol=1e-5)
    other = np.random.default_rng(1).normal(size=(4, 48, 48)).astype(np.float32)
    assert bias_line(record_of(bias=other), 2) is None
    assert pack_window([record_of(bias=other)], {3: range(4)}, 1e9, LocalEngine(1)) is None


def test_a_window_that_takes_too_much_is_not_packed():
    records, heads, engine = [record_of()], {3: range(4)}, LocalEngine(1)
    arrays, _ = pack_window(records, heads, 1e9, engine)
    size = len(arrays["queries"]) + len(arrays["keys"])
    assert pack_window(records, heads, size, engine) is not None
    assert pack_window(records, heads, size - 1, engine) is None


def test_the_page_names_common_masks_and_packs_others():
    mask = np.random.default_rng(2).random((48, 48)) < 0.5
    mask[:, 0] = True
    arrays, about = pack_window([record_of()], {3: range(4)}, 1e9, LocalEngine(1))
    assert packed_page(arrays, about)["masks"] == ["causal"]
    arrays, about = pack_window([record_of().replace(visible=mask)], {3: range(4)}, 1e9, LocalEngine(1))
    page = packed_page(arrays, about)
    bits = np.frombuffer(zlib.decompress(base64.b64decode(page["masks"][0])), dtype=np.uint8)
    np.testing.assert_array_equal(np.unpackbits(bits, count=48 * 48).reshape(48, 48), mask)
    assert page["mask_of"] == [0, 0, 0, 0]
    assert [len(page[name]) for name in ("queries", "keys", "key_of")] == [4, 2, 4]


def test_the_stated_differences_are_those_of_all_heads():
    record = record_of()
    _, about = pack_window([record], {3: range(4)}, 1e9, LocalEngine(1))
    found = [pack_group(record, *group).differences for group in groups_of(record, range(4))]
    assert about["largest_difference"] == max(d[:, 0].max() for d in found)
    assert 0 < about["mean_difference"] < about["largest_difference"] <= TOLERANCE
