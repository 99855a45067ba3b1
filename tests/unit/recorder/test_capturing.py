"""``capture``: what is kept, what is refused, and that nothing finished is lost."""

import errno
import pickle

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import FileFormatError, InputError, ModelError, StorageError
from headscape.recorder import capturing
from headscape.recorder.recording import record_batch
from headscape.tensor.fields import probs
from headscape.tensor.part import PartWriter
from letters import Letters
from tiny_models import IMAGES, LENGTH, inputs_of, tiny_model, token_ids


@pytest.fixture(scope="module")
def llama():
    return tiny_model("Llama")


def same(a, b):
    assert a.n_windows == b.n_windows
    assert a.heads == b.heads
    for window in range(a.n_windows):
        assert a.tokens(window) == b.tokens(window)
        for x, y in zip(a.records(window), b.records(window), strict=True):
            for name in ("queries", "keys", "visible", "bias", "sinks", "probs"):
                np.testing.assert_array_equal(getattr(x, name), getattr(y, name))


def test_a_batch_of_token_ids_in_memory(llama):
    capture = hs.capture(llama, token_ids(3))
    assert capture.n_windows == 3
    assert capture.heads == tuple((layer, head) for layer in range(2) for head in range(4))
    assert capture.kv_heads == tuple((layer, head) for layer in range(2) for head in range(2))
    assert capture.tokens(1) == tuple(str(i) for i in token_ids(3)[1].tolist())
    rows = record_batch(llama, {"input_ids": token_ids(3)})
    np.testing.assert_allclose(capture.record(2, 1).queries, rows[2][1].queries, atol=1e-5)
    assert capture.record(0, 0).module == "layers.0.self_attn"


def test_provenance_says_where_a_capture_comes_from(llama):
    facts = hs.capture(llama, token_ids(2), length=None).provenance
    assert facts["model"]["class"] == "LlamaModel"
    assert len(facts["model"]["weights_hash"]) == 32
    assert set(facts["versions"]) >= {"headscape", "python", "numpy", "torch", "transformers"}
    assert (facts["sample"], facts["seed"], facts["sources"]) == ("spread", 0, None)
    other = hs.capture(llama, token_ids(2, seed=9), sample="random", seed=3).provenance
    assert facts["input_hash"] != other["input_hash"]
    assert (other["sample"], other["seed"], other["length"]) == ("random", 3, 256)


@pytest.mark.parametrize("stored", [False, True])
def test_provenance_names_the_text_of_every_window(llama, tmp_path, stored):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name * 20)
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    path = tmp_path / "c" if stored else None
    facts = hs.capture(llama, texts, tokenizer=Letters(), windows=3, length=8, path=path).provenance
    assert facts["sources"] == ["a.txt", "a.txt", "b.txt"]
    assert str(tmp_path) not in str(facts)


def test_disk_and_memory_agree(llama, tmp_path):
    in_memory = hs.capture(llama, token_ids(2), exact=True)
    on_disk = hs.capture(llama, token_ids(2), exact=True, path=tmp_path / "c")
    same(in_memory, on_disk)
    same(in_memory, hs.Capture.load(tmp_path / "c"))
    assert {**on_disk.provenance} == {**in_memory.provenance}
    np.testing.assert_allclose(on_disk.tensor(0).data[..., 5], on_disk.record(0, 1).probs[1], atol=1e-5)


@pytest.mark.parametrize("path", [None, "c"])
def test_only_the_chosen_layers_and_heads_are_kept(llama, tmp_path, path):
    target = None if path is None else tmp_path / path
    capture = hs.capture(llama, token_ids(1), layers=[1], path=target)
    assert capture.layers == (1,)
    whole = hs.capture(llama, token_ids(1))
    np.testing.assert_array_equal(capture.record(0, 1).keys, whole.record(0, 1).keys)
    with pytest.raises(InputError, match="layer must be one of 1 to 1, but is 0"):
        capture.record(0, 0)
    some = hs.capture(
        llama, token_ids(1), heads=[(1, 3), (1, 0)], path=None if path is None else tmp_path / "d"
    )
    assert some.heads == ((1, 0), (1, 3))
    assert some.tensor(0).shape == (LENGTH, LENGTH, 2)


@pytest.mark.parametrize("family", ["T5", "Bart"])
def test_encoder_decoder_keeps_self_and_cross_attention_apart(family):
    capture = hs.capture(
        tiny_model(family), {"input_ids": token_ids(1), "decoder_input_ids": token_ids(1, 3, 7)}
    )
    assert capture.stacks == ("encoder", "decoder", "cross")
    cross = capture.select("cross").tensor(0)
    assert cross.shape == (7, LENGTH, 8)
    assert cross.tokens == tuple(map(str, token_ids(1, 3, 7)[0].tolist()))
    assert cross.key_tokens == tuple(map(str, token_ids(1)[0].tolist()))
    assert capture.select("decoder").record(0, 1).visible[2, 3] == np.False_


def test_whisper_audio_and_decoder():
    capture = hs.capture(tiny_model("Whisper"), inputs_of("Whisper", rows=2))
    assert capture.stacks == ("encoder", "decoder", "cross")
    assert capture.tensor(1).shape == (10, 10, 8)
    assert capture.select("decoder").tokens(0) == tuple(map(str, token_ids(1, 2, 7)[0].tolist()))


@pytest.mark.parametrize("family", IMAGES)
def test_images(family):
    image = np.random.default_rng(0).integers(0, 256, size=(3, 24, 24, 3), dtype=np.uint8)
    capture = hs.capture(tiny_model(family), image)
    assert capture.n_windows == 3
    tensor = capture.tensor(2)
    special = tensor.shape[0] - 16
    assert tensor.tokens[special : special + 5] == ("0,0", "0,1", "0,2", "0,3", "1,0")
    assert tensor.tokens[:special] == tuple(f"[{i}]" for i in range(special))
    np.testing.assert_allclose(tensor.data.sum(axis=1), 1.0, atol=1e-5)


def test_padding_is_cut_out(llama):
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, :5] = 0
    capture = hs.capture(llama, {"input_ids": token_ids(2), "attention_mask": mask})
    assert capture.tensor(0).shape[0] == LENGTH
    assert capture.tensor(1).shape[0] == LENGTH - 5
    assert len(capture.tokens(1)) == LENGTH - 5
    np.testing.assert_array_equal(capture.record(1, 0).visible, np.tri(LENGTH - 5, dtype=bool))


def test_a_model_in_training_mode_is_captured_without_dropout():
    model = tiny_model("Bert").train()
    one, two = hs.capture(model, token_ids(1)), hs.capture(model, token_ids(1))
    same(one, two)
    assert model.training


def test_only_queries_and_keys_are_kept_not_what_they_were_cut_from(llama):
    record = hs.capture(tiny_model("GPT2"), token_ids(1)).record(0, 0)
    for array in (record.queries, record.keys):
        assert array.flags.c_contiguous
        assert array.base is None or array.base.nbytes == array.nbytes


def test_progress_counts_windows(llama):
    told = []
    hs.capture(llama, token_ids(2), progress=lambda *args: told.append(args))
    assert told == [("capturing", 0, 2), ("capturing", 1, 2), ("capturing", 2, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": [5]}, "layers must be from 0 to 1, but 5 was asked for"),
        ({"layers": []}, "at least one layer"),
        ({"layers": [0], "heads": [(1, 0)]}, "heads must lie in those layers"),
        ({"heads": [(1, 9)]}, r"no head 1\.9 \(layer\.head\)"),
    ],
)
def test_arguments_that_do_not_fit(llama, arguments, message):
    with pytest.raises(InputError, match=message):
        hs.capture(llama, token_ids(1), **arguments)


def test_heads_that_do_not_exist_leave_a_folder_that_can_be_used(llama, tmp_path):
    with pytest.raises(InputError, match=r"no head 1\.9"):
        hs.capture(llama, token_ids(1), heads=[(1, 9)], path=tmp_path / "c")
    assert hs.capture(llama, token_ids(1), heads=[(1, 3)], path=tmp_path / "c").heads == ((1, 3),)


def test_something_else_than_a_model():
    with pytest.raises(InputError, match=r"transformers model.*dict"):
        hs.capture({}, "text")
    with pytest.raises(ModelError, match="no attention was seen"):
        hs.capture(torch.nn.Linear(8, 8), torch.zeros(1, 4, 8))


def test_a_model_whose_attention_is_never_seen():
    with pytest.raises(ModelError, match=r"no attention was seen.*Families that work: GPT-2"):
        hs.capture(tiny_model("Longformer"), token_ids(1))


def test_windows_that_are_split_into_pieces_are_refused():
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1], num_heads=[2], window_size=4)
    with pytest.raises(ModelError, match="splits a window into pieces"):
        hs.capture(SwinModel(config), torch.randn(1, 3, 16, 16))


def test_inputs_that_the_model_cannot_take():
    with pytest.raises(ModelError, match=r"forward pass of CLIPModel failed on window 0 .*given input_ids"):
        hs.capture(tiny_model("CLIP"), token_ids(1))


def test_weights_that_are_not_finite(llama):
    broken = tiny_model("Llama")
    with torch.no_grad():
        broken.layers[1].self_attn.k_proj.weight[0, 0] = float("nan")
    with pytest.raises(InputError, match="the keys of layer 1"):
        hs.capture(broken, token_ids(1))


def test_a_capture_goes_on_where_it_stopped(llama, tmp_path, monkeypatch):
    whole = hs.capture(llama, token_ids(4))
    real, calls = record_batch, []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(capturing, "record_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hs.capture(llama, token_ids(4), path=tmp_path / "c")
    assert hs.Capture.load(tmp_path / "c").n_windows == 2
    same(whole, hs.capture(llama, token_ids(4), path=tmp_path / "c"))
    assert len(calls) == 3 + 2
    hs.capture(llama, token_ids(4), path=tmp_path / "c")
    assert len(calls) == 3 + 2


def test_another_text_model_or_choice_does_not_go_into_the_same_folder(llama, tmp_path):
    hs.capture(llama, token_ids(2), path=tmp_path / "c")
    with pytest.raises(StorageError, match="other inputs"):
        hs.capture(llama, token_ids(2, seed=5), path=tmp_path / "c")
    for other in ({"exact": True}, {"sample": "random"}, {"seed": 1}):
        with pytest.raises(StorageError, match=next(iter(other))):
            hs.capture(llama, token_ids(2), path=tmp_path / "c", **other)


def test_a_full_disk_loses_nothing_that_was_finished(llama, tmp_path, monkeypatch):
    real, room = PartWriter._write, [60]

    def nearly_full(self, key, content):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, key, content)

    with monkeypatch.context() as patched:
        patched.setattr(PartWriter, "_write", nearly_full)
        with pytest.raises(StorageError, match=r"the disk is full while writing .*window-"):
            hs.capture(llama, token_ids(6), path=tmp_path / "c")
    finished = hs.Capture.load(tmp_path / "c").n_windows
    assert 1 <= finished < 6
    same(hs.capture(llama, token_ids(6)), hs.capture(llama, token_ids(6), path=tmp_path / "c"))
    assert not list((tmp_path / "c" / "parts").glob(".partial*"))


def test_what_was_just_written_is_not_read_back(llama, tmp_path, monkeypatch):
    plain = hs.capture(llama, token_ids(3))
    size = sum(record.queries.nbytes + record.keys.nbytes for record in plain.records(0))
    monkeypatch.setattr(capturing, "KEPT_BYTES", 2 * size + size // 2)
    kept = hs.capture(llama, token_ids(3), path=tmp_path / "c")
    same(plain, kept)
    same(plain, hs.Capture.load(tmp_path / "c"))
    for chunk in (tmp_path / "c/parts").rglob("keys-0/c.*"):
        chunk.unlink()
    for window in (0, 1):
        np.testing.assert_array_equal(kept.record(window, 0).keys, plain.record(window, 0).keys)
    for elsewhere, window in ((kept, 2), (pickle.loads(pickle.dumps(kept)), 0)):
        with pytest.raises(FileFormatError, match="keys-0"):
            elsewhere.record(window, 0)


def test_a_file_where_the_folder_should_be(llama, tmp_path):
    (tmp_path / "c").write_text("x")
    with pytest.raises(StorageError, match="c could not be written"):
        hs.capture(llama, token_ids(1), path=tmp_path / "c")
    with pytest.raises(FileFormatError, match="is not a headscape folder"):
        hs.Capture.load(tmp_path)


def test_fields_of_a_capture_are_those_of_its_records(llama):
    capture = hs.capture(llama, token_ids(1))
    np.testing.assert_array_equal(capture.tensor(0).head(1, 2), probs(capture.record(0, 1), 2))
