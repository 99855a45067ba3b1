"""Texts are read in regions that start and end between words, the same for strings and files."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from headscape.errors import InputError
from headscape.recorder.text import Text, texts_of


@pytest.fixture(params=["string", "file"])
def made(request, tmp_path):
    def make(content):
        if request.param == "string":
            return Text.of_string(content)
        (tmp_path / "text.txt").write_text(content, encoding="utf-8", newline="")
        return Text.of_file(tmp_path / "text.txt")

    return make


def test_regions_end_between_words(made):
    text = made("größer als die Welt " * 100)
    for stop in range(15, 60):
        region = text.decoded(0, stop)
        assert ("größer als die Welt " * 5).startswith(region)
        assert region.rsplit(" ", 1)[-1] in ("größer", "als", "die", "Welt")
    assert made("ü" * 2000).decoded(0, 3001) == "ü" * 1500
    assert made("ab cd").decoded(0, 5) == "ab cd"


def test_words_start_after_whitespace(made):
    text = made("one two  three" + "ü" * 2000)
    assert [text.word_start(position) for position in (0, 1, 3, 4, 7, 8)] == [0, 4, 4, 9, 9, 9]
    assert [text.word_start(position) for position in (20, 21)] == [20, 22]


@pytest.mark.parametrize("seed", range(20))
def test_the_middle_line_is_counted_in_characters(made, seed, monkeypatch):
    monkeypatch.setattr("headscape.recorder.text._BLOCK", 64)
    rng = np.random.default_rng(seed)
    content = "".join(rng.choice(list("abcü日😀 " + "\n" * (seed % 3)), size=300))
    half = len(content) // 2
    cut = content.rfind("\n", 0, half) + 1 or half
    text = made(content)
    middle = text.middle_line()
    assert text.part(0, middle).decoded(0, middle) == content[:cut]
    assert text.part(middle, text.stop).decoded(middle, text.stop) == content[cut:]


def test_the_mark_at_the_start_of_a_file_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfabc")
    text = Text.of_file(tmp_path / "a.txt")
    assert text.decoded(text.start, text.stop) == "abc"


def test_a_file_that_shrinks_or_goes(tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    text = Text.of_file(tmp_path / "a.txt")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a\.txt cannot be read"):
        text.decoded(0, 4)


def test_half_a_character_is_not_text():
    with pytest.raises(InputError, match="the text is not UTF-8"):
        Text.of_string("a\ud800b").decoded(0, 5)


def test_what_is_sampled_and_what_is_a_window_each(tmp_path):
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_text("text")
    assert [text.name for text in texts_of(paths)] == ["a.txt", "b.txt"]
    assert [text.name for text in texts_of(str(paths[0]))] == ["a.txt"]
    for other in (
        ["a", "b"],
        [],
        [tmp_path / "a.png"],
        tmp_path / "a.png",
        np.arange(3),
        None,
        {"text": "a"},
    ):
        assert texts_of(other) is None


def test_line_ends_are_normalized_after_a_region_is_read(made):
    text = made("one\r\ntwo\rthree\n" * 100)
    assert text.decoded(0, 15) == "one\ntwo\rthree".replace("\r", "\n")
    assert text.size == 1500
    assert text.decoded(0, text.stop) == "one\ntwo\nthree\n" * 100
    assert text.part(5, text.stop).changes == {"CRLF read as LF"}
    plain = made("one\ntwo\n")
    plain.decoded(0, plain.stop)
    assert not plain.changes


def test_a_file_with_nul_bytes_is_not_called_badly_encoded(made):
    text = made("ab\0cd")
    with pytest.raises(InputError, match="contains NUL bytes"):
        text.decoded(0, text.stop)


@pytest.mark.parametrize("kind", [str, Path])
def test_pipes_devices_and_sockets_are_refused_without_waiting(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(InputError, match=f"expected a text file, but {path} is not a regular file"):
                texts_of(kind(path))
