import json
import shutil

import numpy as np
import pytest

from headscape.errors import FileFormatError, HeadscapeError, InputError, StorageError
from headscape.tensor.attention_record import AttentionRecord, causal_visibility, full_visibility
from headscape.tensor.capture import Capture
from headscape.tensor.fields import energy, probs
from headscape.tensor.store import Store

LAYERS, HEADS, KV, L, D = 3, 4, 2, 7, 5


@pytest.fixture
def capture():
    rng = np.random.default_rng(0)
    return Capture.from_arrays(
        rng.normal(size=(2, LAYERS, HEADS, L, D)),
        rng.normal(size=(2, LAYERS, KV, L, D)),
        0.4,
        tokens=[f"t{i}" for i in range(L)],
        provenance={"model": "none"},
    )


def encoder_decoder():
    """Two stacks of self-attention and one of cross-attention with another number of keys, everything extra."""
    rng = np.random.default_rng(5)

    def record(stack, layer, n_queries, n_keys, visible, **extra):
        return AttentionRecord(
            layer,
            rng.normal(size=(HEADS, n_queries, D)).astype(np.float32),
            rng.normal(size=(KV, n_keys, D)).astype(np.float32),
            1.0,
            visible,
            module=f"{stack}.{layer}",
            kind="cross" if stack == "cross" else "self",
            stack=stack,
            **extra,
        )

    bias = rng.normal(size=(HEADS, L, L)).astype(np.float32)
    ragged = rng.random((HEADS, 4, 4)) < 0.5
    records = [
        *(record("encoder", i, L, L, full_visibility(L), bias=bias) for i in range(2)),
        record("decoder", 0, 4, 4, ragged, sinks=np.arange(HEADS, dtype=np.float32), softcap=3.0),
        record("cross", 0, 4, L, full_visibility(4, L), probs=np.ones((HEADS, 4, L), np.float32)),
    ]
    source, target = [f"s{i}" for i in range(L)], [f"t{i}" for i in range(4)]
    labels = {
        "encoder": {"query": source},
        "decoder": {"query": target},
        "cross": {"query": target, "key": source},
    }
    return Capture.from_records([records], tokens=[labels])


def assert_same(a: Capture, b: Capture):
    assert (a.n_windows, a.stacks, a.heads, a.kv_heads) == (b.n_windows, b.stacks, b.heads, b.kv_heads)
    assert a.stack == b.stack
    for stack in a.stacks:
        one, two = a.select(stack), b.select(stack)
        for window in range(a.n_windows):
            assert one.tokens(window) == two.tokens(window)
            assert one.key_tokens(window) == two.key_tokens(window)
            for x, y in zip(one.records(window), two.records(window), strict=True):
                assert (x.layer, x.module, x.kind, x.stack, x.scale, x.softcap) == (
                    (y.layer, y.module, y.kind, y.stack, y.scale, y.softcap)
                )
                for name in ("queries", "keys", "visible", "bias", "sinks", "probs"):
                    np.testing.assert_array_equal(getattr(x, name), getattr(y, name))


def test_heads_are_layer_major(capture):
    assert capture.heads == tuple((layer, head) for layer in range(LAYERS) for head in range(HEADS))
    assert capture.kv_heads == tuple((layer, head) for layer in range(LAYERS) for head in range(KV))
    assert capture.n_windows == 2
    assert capture.tokens(1)[:2] == ("t0", "t1")


def test_tensor_holds_the_field_of_every_head(capture):
    tensor = capture.tensor(1, "energy")
    assert tensor.shape == (L, L, LAYERS * HEADS)
    assert tensor.heads == capture.heads
    assert tensor.tokens == capture.tokens(1)
    assert tensor.provenance["window"] == 1
    for layer, head in capture.heads:
        np.testing.assert_array_equal(tensor.head(layer, head), energy(capture.record(1, layer), head))


def test_tensor_of_some_layers_and_heads(capture):
    assert capture.tensor(0, layers=[2, 0]).heads == tuple(
        (layer, head) for layer in (0, 2) for head in range(HEADS)
    )
    assert capture.tensor(0, heads=[(2, 1), (0, 3)]).heads == ((0, 3), (2, 1))
    assert capture.tensor(0, layers=[2], heads=[(2, 1), (0, 3)]).heads == ((2, 1),)
    with pytest.raises(InputError, match="no head is left"):
        capture.tensor(0, layers=[1], heads=[(2, 1)])
    with pytest.raises(InputError, match=r"layers must be among 0 to 2, but \[7\]"):
        capture.tensor(0, layers=[7])
    with pytest.raises(InputError, match=r"no head 1\.9 .*the last is 2\.3"):
        capture.tensor(0, heads=[(1, 9)])


def test_places_that_are_not_there(capture):
    with pytest.raises(InputError, match="window must be from 0 to 1, but is 2"):
        capture.tensor(2)
    with pytest.raises(InputError, match="layer must be one of 0 to 2, but is 5"):
        capture.record(0, 5)
    with pytest.raises(InputError, match="field must be one of"):
        capture.tensor(0, "attention")
    with pytest.raises(InputError, match="stack must be one of self"):
        capture.select("cross")


def test_select_limits_the_heads(capture):
    some = capture.select(heads=[(1, 0), (1, 3), (2, 2)])
    assert some.layers == (1, 2)
    assert some.kv_heads == ((1, 0), (1, 1), (2, 1))
    assert some.tensor(0).shape[2] == 3
    assert some.select().heads == some.heads


def test_from_arrays_takes_fewer_axes_and_a_mask():
    q = np.random.default_rng(0).normal(size=(HEADS, L, D))
    capture = Capture.from_arrays(q, q, causal=False)
    assert capture.heads == ((0, 0), (0, 1), (0, 2), (0, 3))
    assert capture.record(0, 0).scale == pytest.approx(D**-0.5)
    assert capture.record(0, 0).visible.all()
    banded = np.abs(np.subtract.outer(np.arange(L), np.arange(L))) < 3
    assert np.array_equal(Capture.from_arrays(q, q, visible=banded).tensor(0).data[..., 1] > 0, banded)
    with pytest.raises(InputError, match="3 to 5 axes"):
        Capture.from_arrays(q[0], q[0])
    with pytest.raises(InputError, match="same windows and layers"):
        Capture.from_arrays(q[None, None], np.stack([q, q]))


@pytest.mark.parametrize("make", [None, encoder_decoder])
def test_save_and_load_give_the_same_back(capture, make, tmp_path):
    original = capture if make is None else make()
    assert_same(original, original.save(tmp_path / "c"))
    assert_same(original, Capture.load(tmp_path / "c"))


def test_shared_masks_and_biases_are_written_once(tmp_path):
    encoder_decoder().save(tmp_path / "c")
    names = Store.open(tmp_path / "c", "capture").read("window-00000").names()
    assert [n for n in names if n.startswith("bias")] == ["bias-0"]
    assert [n for n in names if n.startswith("visible")] == ["visible-2"]


def test_stacks_are_kept_apart():
    capture = encoder_decoder()
    assert capture.stacks == ("encoder", "decoder", "cross")
    assert capture.stack == "encoder"
    cross = capture.select("cross")
    tensor = cross.tensor(0)
    assert tensor.shape == (4, L, HEADS)
    assert tensor.tokens[0] == "t0"
    assert tensor.key_tokens[0] == "s0"
    assert np.array_equal(tensor.head(0, 2), probs(cross.record(0, 0), 2))


def test_the_selected_stack_and_heads_are_saved_too(tmp_path):
    chosen = encoder_decoder().select("cross", heads=[(0, 2)])
    stored = chosen.save(tmp_path / "c")
    assert stored.stack == "cross"
    assert stored.heads == ((0, 2),)
    assert stored.select("encoder").heads == encoder_decoder().heads
    assert_same(chosen, stored)


def test_only_what_is_asked_for_is_read(capture, tmp_path):
    stored = capture.save(tmp_path / "c")
    folder = tmp_path / "c" / "parts" / "window-00000"
    for layer in (0, 2):
        shutil.rmtree(folder / f"queries-{layer}")
    (folder / "keys-1" / "c.1.0.0").unlink()  # the second key-value head of layer 1
    np.testing.assert_array_equal(
        stored.tensor(0, heads=[(1, 0), (1, 1)]).data, capture.tensor(0, heads=[(1, 0), (1, 1)]).data
    )


def test_a_damaged_chunk_is_named(capture, tmp_path):
    stored = capture.save(tmp_path / "c")
    chunk = next(p for p in (tmp_path / "c/parts/window-00001/keys-2").glob("c.*"))
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    chunk.write_bytes(raw)
    stored.tensor(0)
    with pytest.raises(FileFormatError, match=r"window-00001 is damaged: keys-2/c."):
        stored.tensor(1)


def test_a_lost_chunk_costs_its_part_only(capture, tmp_path):
    stored = capture.save(tmp_path / "c")
    kept, lost = (tmp_path / "c/parts" / name for name in ("window-00000", "window-00001"))
    marker = (lost / "part.json").read_bytes()
    (lost / "queries-1/c.0.0.0").unlink()
    with pytest.raises(FileFormatError, match=f"queries-1/c.0.0.0 is missing. Delete the folder {lost}"):
        stored.record(1, 1)
    shutil.rmtree(lost)
    before = kept.stat().st_mtime_ns
    assert_same(capture, capture.save(tmp_path / "c"))
    assert (lost / "part.json").read_bytes() == marker
    assert kept.stat().st_mtime_ns == before


def test_an_unfinished_capture_opens_with_what_is_there(capture, tmp_path, caplog):
    capture.save(tmp_path / "c")
    shutil.rmtree(tmp_path / "c/parts/window-00001")
    assert Capture.load(tmp_path / "c").n_windows == 1
    assert "1 of 2 windows" in caplog.text
    assert_same(capture, capture.save(tmp_path / "c"))
    shutil.rmtree(tmp_path / "c/parts/window-00001")
    shutil.rmtree(tmp_path / "c/parts/window-00000")
    with pytest.raises(FileFormatError, match="no finished window"):
        Capture.load(tmp_path / "c")


def test_another_capture_is_not_written_over(capture, tmp_path):
    capture.save(tmp_path / "c")
    with pytest.raises(StorageError, match="started with other inputs"):
        Capture.from_arrays(*[np.ones((2, 1, 2, 3, 4))] * 2, provenance={"model": "none"}).save(
            tmp_path / "c"
        )


def test_layers_of_different_size_do_not_make_one_tensor():
    records = [
        AttentionRecord(
            i, np.ones((1, n, 2), np.float32), np.ones((1, n, 2), np.float32), 1.0, causal_visibility(n)
        )
        for i, n in enumerate((3, 4))
    ]
    capture = Capture.from_records([records])
    with pytest.raises(InputError, match="choose layers of one size"):
        capture.tensor(0)
    assert capture.tensor(0, layers=[1]).shape == (4, 4, 1)


def test_no_window_is_no_capture():
    for windows in ([], [[]]):
        with pytest.raises(InputError, match="at least one window"):
            Capture.from_records(windows)


@pytest.mark.parametrize("empty", range(5))
def test_nothing_may_be_empty(empty):
    shape = [2, 2, 2, 3, 4]
    shape[empty] = 0
    with pytest.raises(InputError, match="must not have an empty axis"):
        Capture.from_arrays(np.ones(shape), np.ones(shape))


def rewrite(folder, change):
    """Change the attributes of a part and take away what could tell, as if an older headscape had written it."""
    header, attributes = folder / "headscape.json", folder / "parts/window-00000/zarr.json"
    (attributes.parent / "part.json").unlink()
    values = json.loads(header.read_text())
    del values["digest"]
    header.write_text(json.dumps(values))
    values = json.loads(attributes.read_text())
    change(values["attributes"])
    attributes.write_text(json.dumps(values))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("modules"),
        lambda a: a.update(modules=[]),
        lambda a: a.update(modules=7),
        lambda a: a.update(tokens=[1]),
        lambda a: a["modules"][0].pop("n_heads"),
        lambda a: a["modules"][1].update(n_heads=3),
        lambda a: a["modules"][1].update(n_queries=10**15),
        lambda a: a["modules"][1].update(n_kv_heads=0),
        lambda a: a["modules"][1].update(scale="wide"),
        lambda a: a["modules"][1].update(scale=float("nan")),
        lambda a: a["modules"][1].update(visible="../../x"),
        lambda a: a["modules"][1].update(layer=[0]),
    ],
)
def test_attributes_that_make_no_sense_are_one_clear_error(capture, tmp_path, change):
    capture.save(tmp_path / "c")
    rewrite(tmp_path / "c", change)
    with pytest.raises(HeadscapeError, match=r"damaged|finite|at least one|there is no head|holds no array"):
        Capture.load(tmp_path / "c").tensor(0)


def causal_probabilities(shape=(2, 3, 4, 9, 9), seed=0):
    logits = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    logits[..., ~np.tri(shape[-1], dtype=bool)] = -np.inf
    p = np.exp(logits)
    return p / p.sum(axis=-1, keepdims=True), logits


def test_probabilities_make_a_capture_without_queries_and_keys(tmp_path):
    p, logits = causal_probabilities()
    made = Capture.from_probabilities(p, tokens=list("abcdefghi"))
    for capture in (made, made.save(tmp_path / "capture"), made.window(1)):
        window = 0 if capture.n_windows == 1 else 1
        assert not capture.has_products
        assert capture.tokens(window) == tuple("abcdefghi")
        np.testing.assert_array_equal(
            capture.tensor(window).data, p[1].reshape(12, 9, 9).transpose(1, 2, 0).astype(np.float32)
        )
        centered = np.where(np.isfinite(logits[1, 2, 3]), logits[1, 2, 3], 0.0)
        mean = centered.sum(axis=1, keepdims=True) / np.arange(1, 10)[:, None]
        found = capture.tensor(window, "log_ratio", heads=[(2, 3)]).data[:, :, 0]
        np.testing.assert_allclose(found, np.where(np.tri(9), centered - mean, 0.0), atol=1e-5)
        with pytest.raises(InputError, match=r"needs queries and keys.*log_ratio"):
            capture.tensor(window, "energy")
    assert made.record(0, 0).visible[3].tolist() == [True] * 4 + [False] * 5


def test_the_log_ratio_is_the_energy_where_logits_are_products():
    rng = np.random.default_rng(3)
    capture = Capture.from_arrays(rng.normal(size=(2, 4, 8, 3)), rng.normal(size=(2, 2, 8, 3)))
    energy = capture.tensor(0, "energy").data
    np.testing.assert_allclose(capture.tensor(0, "log_ratio").data, energy, atol=1e-5)
    again = Capture.from_probabilities(capture.tensor(0).data.transpose(2, 0, 1).reshape(2, 4, 8, 8))
    np.testing.assert_allclose(again.tensor(0, "log_ratio").data, energy, atol=1e-4)


def test_bad_probabilities_are_refused():
    p, _ = causal_probabilities((1, 2, 6, 6))
    with pytest.raises(InputError, match="sum to at most 1"):
        Capture.from_probabilities(2 * p)
    with pytest.raises(InputError, match="3 to 5 axes"):
        Capture.from_probabilities(p[0, 0])
    with pytest.raises(InputError, match="0 at keys that are not visible"):
        Capture.from_probabilities(np.full((1, 1, 6, 6), 1 / 6), causal=True)
    with pytest.raises(InputError, match="not above 0"):
        Capture.from_probabilities(p, causal=False).tensor(0, "log_ratio")
    with pytest.raises(InputError, match="scores or probs"):
        AttentionRecord.without_products(0, np.ones((2, 2), bool))
    with pytest.raises(InputError, match="missing"):
        AttentionRecord(
            0, np.ones((1, 2, 0), np.float32), np.ones((1, 2, 0), np.float32), 1.0, np.ones((2, 2), bool)
        )
