"""Probe windows: random tokens repeated once, and windows whose tokens are replaced."""

import numpy as np
import pytest
import torch

from headscape.errors import InputError
from headscape.models.loading import as_model
from headscape.recorder.capturing import capture
from headscape.recorder.probes import probed, repeated_tokens, replaced_tokens
from tiny_models import inputs_of, tiny_model, token_ids


class Tokenizer:
    """Puts 1 before and 2 after a text of letters; 60 tokens."""

    all_special_ids = (0, 1, 2)

    def __len__(self):
        return 60

    def __call__(self, text, add_special_tokens=True, **_):
        ids = [3 + ord(letter) % 50 for letter in text]
        return {"input_ids": [1, *ids, 2] if add_special_tokens else ids}


@pytest.fixture(scope="module")
def llama():
    return as_model(tiny_model("Llama", vocab_size=80))


def test_random_tokens_are_repeated_once_and_differ_within_a_period(llama):
    window = repeated_tokens(llama, 24, seed=3)
    ids = window.arguments["input_ids"][0].numpy()
    assert len(ids) == 24
    np.testing.assert_array_equal(ids[:12], ids[12:])
    assert len(set(ids[:12])) == 12
    assert not set(ids) & {0, 1, 2}
    assert window.labels["input"] == tuple(map(str, ids))
    np.testing.assert_array_equal(repeated_tokens(llama, 24, seed=3).arguments["input_ids"][0], ids)
    assert (repeated_tokens(llama, 24, seed=4).arguments["input_ids"][0].numpy() != ids).any()


def test_special_tokens_go_around_and_the_vocabulary_is_that_of_the_tokenizer(llama):
    window = repeated_tokens(as_model(llama.model, Tokenizer()), 21)
    ids = window.arguments["input_ids"][0].numpy()
    assert len(ids) == 20
    assert (ids[0], ids[-1]) == (1, 2)
    np.testing.assert_array_equal(ids[1:10], ids[10:19])
    assert set(ids[1:-1]) <= set(range(3, 60))


def test_an_encoder_decoder_model_gets_its_decoder(llama):
    window = repeated_tokens(as_model(tiny_model("T5", vocab_size=80)), 16)
    assert window.arguments["decoder_input_ids"].shape == (1, 16)


@pytest.mark.parametrize(
    ("family", "changes", "length", "words"),
    [
        ("Llama", {}, 24, "vocabulary of 48 tokens is too small"),
        ("Llama", {"vocab_size": 80}, 3, "too short"),
        ("ViT", {}, 24, "does not read tokens"),
    ],
)
def test_where_no_probe_is_possible_the_reason_is_told(family, changes, length, words):
    with pytest.raises(InputError, match=words):
        repeated_tokens(as_model(tiny_model(family, **changes)), length)


def test_replaced_tokens_come_from_the_same_text_and_special_ones_stay(llama):
    first, second = token_ids(1, seed=0), token_ids(1, seed=1)
    first[0, 0] = 1
    windows = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in (first, second)]
    found = replaced_tokens(llama, windows, 0, seed=0)
    ids = found.arguments["input_ids"]
    assert ids.shape == first.shape
    assert ids[0, 0] == 1
    assert (ids != first).sum() > 6
    assert set(ids[0].tolist()) <= {1, *first[0].tolist(), *second[0].tolist()}
    assert "attention_mask" in found.arguments
    with pytest.raises(InputError, match="does not read tokens"):
        replaced_tokens(llama, [inputs_of("ViT")], 0)


def test_a_probe_is_captured_with_the_heads_of_the_study():
    model = as_model(tiny_model("T5", vocab_size=80))
    whole = capture(model, {"input_ids": token_ids(1)}).select("decoder")
    like = whole.select(heads=[(1, 0), (1, 3)])
    found = probed(model, repeated_tokens(model, 12), like)
    assert (found.stack, found.heads, found.n_windows) == ("decoder", ((1, 0), (1, 3)), 1)
