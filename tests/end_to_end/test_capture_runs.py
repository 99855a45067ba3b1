"""Captures as a user runs them: the command, the tiny trained model, kill -9 in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

import headscape as hs
from cli_runs import environment, headscape, headscape_here, one_line, without_progress
from headscape.cli.given import parse_heads, parse_numbers
from headscape.errors import InputError

TINY = Path(__file__).parents[2] / "examples" / "tiny_model"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(topics["assert"] + topics["assignment"], encoding="utf-8")
    return path


def test_the_command_captures_a_text_file(text, tmp_path, monkeypatch, capsys):
    out = tmp_path / "capture"
    options = ("--text", text, "-o", out, "--windows", 3, "--length", 64, "--layers", "0-1,3")
    done = headscape("capture", TINY, *options)
    assert done.returncode == 0, done.stderr
    assert without_progress(done.stderr) == ""
    assert "3 windows" in done.stdout
    capture = hs.Capture.load(out)
    assert capture.layers == (0, 1, 3)
    assert capture.n_windows == 3
    assert "".join(capture.tokens(0)).startswith('The "assert" statement')
    again = headscape_here(monkeypatch, capsys, "capture", TINY, *options, "--json")
    assert again.returncode == 0
    summary = json.loads(again.stdout)
    assert summary["stacks"] == {"self": {"layers": 3, "heads": 12, "kv_heads": 6, "queries": 64, "keys": 64}}
    straight = hs.capture(TINY, text, windows=3, length=64, layers=[0, 1, 3])
    np.testing.assert_allclose(capture.tensor(2).data, straight.tensor(2).data, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("./nothing", "--text", "{text}"), "there is no model at './nothing'"),
        ((TINY, "--text", "{text}", "--length", "100000"), "tokens, but length (--length) is 100000"),
        ((TINY, "--text", "missing.txt"), "missing.txt does not exist"),
        ((TINY, "--text", "{text}", "--images", "{text}"), "either --text or --images"),
        ((TINY, "--text", "{text}", "--layers", "5-2"), "--layers must be numbers and ranges"),
    ],
)
def test_the_command_ends_with_one_line_and_exit_code_2(
    arguments, message, text, tmp_path, monkeypatch, capsys
):
    given = (str(argument).format(text=text) for argument in arguments)
    one_line(headscape_here(monkeypatch, capsys, "capture", *given, "-o", tmp_path / "c"), message)


def test_numbers_and_heads_on_the_command_line():
    assert parse_numbers("3, 0-1,8-8", "--layers") == [0, 1, 3, 8]
    assert parse_heads("1.2, 0.3", "--heads") == [(1, 2), (0, 3)]
    for wrong in ("", "a", "1-", "-3", "4-2", "1,,2"):
        with pytest.raises(InputError, match="--layers must be numbers and ranges such as 0-5,8"):
            parse_numbers(wrong, "--layers")
    for wrong in ("3", "3.", "a.b", "1.2.3"):
        with pytest.raises(InputError, match=r"--heads must be heads as layer\.head"):
            parse_heads(wrong, "--heads")


def test_the_tiny_model_has_heads_that_look_back_and_heads_that_copy():
    loaded = hs.load_model(TINY)
    ids = loaded.tokenizer(topics["assert"])["input_ids"][:64]
    capture = hs.capture(loaded, [ids + ids])
    probs = capture.tensor(0).data
    queries = np.arange(1, 128)
    previous = probs[queries, queries - 1].mean(axis=0)
    second = np.arange(64, 127)
    copying = probs[second, second - 63].mean(axis=0)
    assert capture.heads[int(previous.argmax())] == (2, 1)
    assert previous.max() > 0.6
    assert capture.heads[int(copying.argmax())] == (3, 3)
    assert copying.max() > 0.3
    assert np.sort(copying)[-2] < 0.1


CHILD = """
import sys, time
from pathlib import Path
import headscape as hs
from headscape.recorder import capturing
out, real = Path(sys.argv[2]), capturing.write_window

def hang_in_the_third(part, records, labels, observed):
    real(part, records, labels, observed)
    if (out / "parts" / "window-00001").exists():
        Path(sys.argv[3]).touch()
        time.sleep(600)

capturing.write_window = hang_in_the_third
hs.capture(sys.argv[1], Path(sys.argv[4]), windows=5, length=32, path=out)
"""


def test_a_capture_that_was_killed_goes_on(text, tmp_path):
    out, reached = tmp_path / "capture", tmp_path / "reached"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(TINY), str(out), str(reached), str(text)], env=environment()
    )
    try:
        end = time.monotonic() + 120
        while not reached.exists() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert reached.exists()
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert list((out / "parts").glob(".partial-*"))
    finished = {path.name: path.stat().st_ino for path in (out / "parts").glob("window-*")}
    assert sorted(finished) == ["window-00000", "window-00001"]
    assert hs.Capture.load(out).n_windows == 2

    resumed = hs.capture(TINY, text, windows=5, length=32, path=out)
    assert resumed.n_windows == 5
    assert not list((out / "parts").glob(".partial-*"))
    for name, inode in finished.items():
        assert (out / "parts" / name).stat().st_ino == inode
    straight = hs.capture(TINY, text, windows=5, length=32)
    for window in range(5):
        np.testing.assert_allclose(resumed.tensor(window).data, straight.tensor(window).data, atol=1e-5)
