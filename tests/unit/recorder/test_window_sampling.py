"""Windows are placed by the rule, never overlap, and cost no more tokenizing than they need."""

from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from headscape.errors import InputError
from headscape.recorder.text import Text
from headscape.recorder.window_sampling import SAMPLES, WindowSampler, window_starts

PROSE = "\n\n".join(topics[name] for name in sorted(topics))

# The tiny tokenizer's tokens of "The quick brown fox ...", cut by hand.
FROZEN = [
    [341, 221, 81, 85, 73, 67, 75, 285],
    [350, 87, 78, 288, 79, 88, 221, 74],
    [85, 327, 83, 271, 492, 268, 221, 306],
]


class Words:
    """A tokenizer whose tokens are numbered words; it counts the characters it is given."""

    def __init__(self):
        self.characters = 0

    def __call__(self, text, add_special_tokens=True, **_):
        self.characters += len(text)
        return {"input_ids": [int(word) for word in text.split() if word.isdigit()]}


def numbers(n):
    """Return a text whose words count from 0 to n - 1."""
    return " ".join(map(str, range(n)))


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(Path(__file__).parents[3] / "examples" / "tiny_model")


@given(
    n=st.integers(0, 500),
    length=st.integers(1, 40),
    count=st.integers(1, 60),
    sample=st.sampled_from(SAMPLES),
    seed=st.integers(0, 5),
)
def test_windows_are_in_order_inside_the_run_and_apart(n, length, count, sample, seed):
    starts = window_starts(n, length, count, sample, seed)
    assert len(starts) == min(count, n // length)
    assert all(0 <= start <= n - length for start in starts)
    assert all(b - a >= length for a, b in pairwise(starts))
    if len(starts) == n // length:
        assert starts == window_starts(n, length, count, "first")


def test_spread_windows_reach_both_ends_with_equal_gaps():
    starts = window_starts(10_007, 10, 7)
    assert (starts[0], starts[-1]) == (0, 9990)
    assert set(np.diff(starts)) == {1665}


def test_random_windows_follow_the_seed():
    drawn = [tuple(window_starts(1000, 10, 5, "random", seed)) for seed in range(20)]
    assert len(set(drawn)) == 20
    assert drawn[3] == tuple(window_starts(1000, 10, 5, "random", 3))
    assert {start % 10 for starts in drawn for start in starts} == {0}


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_large_text_is_tokenized_only_where_its_windows_are(sample, tmp_path):
    text = numbers(1_000_000)
    (tmp_path / "large.txt").write_text(text)
    of_string, of_file = Words(), Words()
    sampler = WindowSampler(32, sample, seed=4)
    windows = [ids.tolist() for ids in sampler.of_text(Text.of_string(text), of_string, 3)]
    again = sampler.of_text(Text.of_file(tmp_path / "large.txt"), of_file, 3)
    assert [ids.tolist() for ids in again] == windows
    assert of_string.characters == of_file.characters < 3 * 8192
    assert windows == [list(range(ids[0], ids[0] + 32)) for ids in windows]
    assert windows == sorted(windows)
    if sample == "spread":
        assert windows[0][0] == 0
        assert windows[1][0] == pytest.approx(500_000, rel=0.05)
        assert windows[2][0] > 995_000


def test_a_large_file_is_read_only_where_its_windows_are():
    raw = (b"some words of a text that has no end \n" * 27)[:1024]
    read = []

    def endless(start, stop):
        read.append(stop - start)
        return b"".join(raw for _ in range(start // 1024, -(-stop // 1024)))[start % 1024 :][: stop - start]

    class Split(Words):
        def __call__(self, text, **options):
            return super().__call__(" ".join("7" for _ in text.split()), **options)

    huge = Text(endless, 0, 10**12)
    for sample in SAMPLES:
        assert len(WindowSampler(32, sample).of_text(huge, Split(), 2)) == 2
    assert sum(read) < 8e6


@pytest.mark.parametrize("sample", ["spread", "random"])
def test_windows_of_a_short_text_are_placed_by_tokens(sample):
    text = numbers(100)
    windows = WindowSampler(10, sample, seed=2).of_text(Text.of_string(text), Words(), 4)
    starts = window_starts(100, 10, 4, sample, 2)
    assert [ids.tolist() for ids in windows] == [list(range(start, start + 10)) for start in starts]


def test_a_text_with_too_few_tokens_near_a_place_is_tokenized_whole():
    gap = "- " * 200_000  # no tokens of Words
    text = numbers(500) + " " + gap + " ".join(map(str, range(500, 1000)))
    windows = WindowSampler(10).of_text(Text.of_string(text), Words(), 3)
    assert [ids[0] for ids in windows] == [0, 495, 990]


@pytest.mark.parametrize("sample", SAMPLES)
def test_megabytes_without_tokens_are_not_tokenized_whole(sample, monkeypatch):
    monkeypatch.setattr("headscape.recorder.window_sampling.MOST", 100_000)
    text, counted = Text.of_string(numbers(40) + " " + "- " * 2_000_000), Words()
    if sample == "random":
        with pytest.raises(InputError, match="has fewer than 10 tokens in"):
            WindowSampler(10, sample, seed=1).of_text(text, counted, 3)
    else:
        found = WindowSampler(10, sample).of_text(text, counted, 3)
        assert [ids[0] for ids in found] == ([0] if sample == "spread" else [0, 10, 20])
    assert counted.characters < 1_500_000


@pytest.mark.parametrize("count", [1, 6, 40])
@pytest.mark.parametrize("length", [7, 64, 256])
def test_the_first_windows_are_those_of_the_whole_text(tokenizer, count, length):
    text = "An ünusual start 日本語 😀 " + PROSE[:200_000]
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    wanted = [ids[start : start + length] for start in range(0, count * length, length)]
    found = WindowSampler(length, "first").of_text(Text.of_string(text), tokenizer, count)
    assert [window.tolist() for window in found] == wanted


@pytest.mark.parametrize("text", ["x" * 90_000, "日本" * 20_000, (" " * 3000 + "word\n") * 30])
def test_the_first_windows_of_texts_without_words(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    found = WindowSampler(64, "first").of_text(Text.of_string(text), tokenizer, 2)
    assert [window.tolist() for window in found] == [ids[:64], ids[64:128]]


def test_the_first_windows_of_a_frozen_example(tokenizer):
    text = "The quick brown fox jumps over the lazy dog. " * 400
    found = WindowSampler(8, "first").of_text(Text.of_string(text), tokenizer, 3)
    assert [window.tolist() for window in found] == FROZEN


def test_spread_windows_start_with_a_word(tokenizer):
    found = WindowSampler(16).of_text(Text.of_string(PROSE), tokenizer, 6)
    shown = [tokenizer.decode(window) for window in found]
    assert all(text in PROSE for text in shown)
    assert all(PROSE[PROSE.index(text) - 1].isspace() for text in shown[1:])


def test_what_cannot_be_sampled():
    with pytest.raises(InputError, match="sample must be one of spread, first, random, but is 'all'"):
        WindowSampler(8, "all")
    with pytest.raises(InputError, match="got 64 token ids, but length=256: pass length=64 or more tokens"):
        WindowSampler(256).of_ids(np.arange(64), 1)
    with pytest.raises(InputError, match="text needs a tokenizer"):
        WindowSampler(8).of_text(Text.of_string("a"), None, 1)
