"""Which keys belong to a pattern, and what is said where a window cannot show one."""

import numpy as np
import pytest

from headscape.analysis.detections import (
    NO_REPEAT,
    NO_SEPARATOR,
    NO_TOKENIZER,
    NO_TOKENS,
    TOO_SHORT,
    Layout,
    detections,
    is_separator,
)
from patterns_planted import visibility


@pytest.mark.parametrize(
    "token", [".", ",", " (", "\n", " ", '"', "Ġ,", "▁.", "Ċ", "<0x0A>", "<0x2E>", "—", "。"]
)
def test_punctuation_and_whitespace_are_separators(token):
    assert is_separator(token)


@pytest.mark.parametrize("token", ["a", " the", "##ing", "é", "7", "3.5", "<0xE2>", "\ufffd", "[CLS]", "日"])
def test_words_numbers_and_parts_of_letters_are_not(token):
    assert not is_separator(token)


def test_special_tokens_are_separators_and_end_segments():
    tokens = ("[CLS]", *("a" * 9), "[SEP]", *("b" * 9), "[SEP]")
    found = detections(Layout(visibility(21, False), tokens, frozenset({"[CLS]", "[SEP]"}))).matrices
    assert np.flatnonzero(found["separator"][4]).tolist() == [10, 20]
    assert np.flatnonzero(found["segment"][4]).tolist() == list(range(1, 11))
    plain = detections(Layout(visibility(21, False), tokens))
    assert plain.left_out["separator"] == NO_SEPARATOR


@pytest.mark.parametrize(
    ("tokens", "name", "reason"),
    [
        ((), "induction", NO_TOKENS),
        ((), "separator", NO_TOKENS),
        (tuple("1234567890" * 2), "separator", NO_TOKENIZER),
        (tuple("abcdefghijklmnopqrst"), "separator", NO_SEPARATOR),
        (tuple("abcdefghijklmnopqrst"), "segment", NO_SEPARATOR),
        (tuple("abcdefghijklmnopqrst"), "induction_repeats", NO_REPEAT),
        (tuple("abcdefg.ijklmnopqrst"), "local", TOO_SHORT),
    ],
)
def test_what_a_window_cannot_show_is_left_out_with_the_reason(tokens, name, reason):
    found = detections(Layout(visibility(20, True), tokens))
    assert found.left_out[name] == reason
    assert name not in found.matrices


def test_in_bidirectional_attention_later_equal_tokens_count_too():
    tokens = ("a", "b") * 8
    causal = detections(Layout(visibility(16, True), tokens)).matrices
    both = detections(Layout(visibility(16, False), tokens)).matrices
    assert np.flatnonzero(causal["duplicate_token"][4]).tolist() == [0, 2]
    assert np.flatnonzero(both["duplicate_token"][4]).tolist() == [0, 2, 6, 8, 10, 12, 14]
    assert np.flatnonzero(causal["induction"][4]).tolist() == [1, 3]


def test_nearest_keys_are_visible_ones():
    visible = visibility(40, False).copy()
    visible[:, 18:22] = False
    found = detections(Layout(visible)).matrices["local"]
    assert np.flatnonzero(found[20]).tolist() == [14, 15, 16, 17, 22, 23, 24, 25]
