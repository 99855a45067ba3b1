"""The progress of commands where there is no terminal: a line per stage and minute, nothing of short commands."""

import io
import re
import sys
import time

import pytest

from headscape.cli.progress import ProgressLines, shown_progress

LINE = re.compile(r"\[\d+:\d\d\]( +\d+%)? [ -~]+")


def wait_for(stream, lines, seconds=5.0):
    """Wait until so many lines are written; the clock runs in a thread of its own."""
    end = time.monotonic() + seconds
    while stream.getvalue().count("\n") < lines and time.monotonic() < end:
        time.sleep(0.005)
    return stream.getvalue().splitlines()


def test_every_stage_has_one_line_however_many_windows_it_has():
    stream = io.StringIO()
    with ProgressLines(stream, first=0.0, spacing=0.0) as tell:
        for window in range(1, 7):
            tell(f"organizing, window {window} of 6", window - 1, 12)
        tell("measuring energy", 6, 12)
        tell("measuring energy", 9, 12)
    lines = stream.getvalue().splitlines()
    told = [line for line in lines if "starting" not in line]
    assert [line.split("] ")[1].split(",")[0].strip() for line in told] == [
        "organizing",
        "50% measuring energy",
    ]
    assert all(LINE.fullmatch(line) for line in lines)


def test_a_short_command_prints_nothing():
    stream = io.StringIO()
    with ProgressLines(stream) as tell:
        tell("opening the source", 0, 1)
        tell("organizing", 1, 2)
    assert stream.getvalue() == ""


def test_a_stage_that_began_before_the_first_line_and_says_nothing_is_told_by_the_clock():
    stream = io.StringIO()
    with ProgressLines(stream, first=0.02, every=0.02) as tell:
        tell("loading the model", 0, 1)
        lines = wait_for(stream, 3)
    assert len(lines) >= 3
    assert all(line.endswith("loading the model") for line in lines)


def test_the_time_left_is_told_of_one_count_only():
    stream = io.StringIO()
    with ProgressLines(stream, first=0.0, spacing=0.0) as tell:
        tell("one", 5, 10)
        tell("two", 1, 10)
        tell("three", 5, 10)
    one, two, three = (line for line in stream.getvalue().splitlines() if "starting" not in line)
    assert "about 1 second left" in one
    assert "left" not in two + three


def test_a_bar_tells_the_time_left_only_when_enough_is_done(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def shown(done):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("COLUMNS", "160")
        with shown_progress(quiet=False) as progress:
            progress("organizing", done, 10)
            progress.announce("written above the bar")
        return stream.getvalue()

    assert "organizing" in shown(1)
    assert "left" not in shown(1)
    assert "about 1 second left" in shown(5)


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_is_silent(quiet, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with shown_progress(quiet) as progress:
        progress.announce("Expected time: about 2 minutes.")
    assert stream.getvalue() == ("" if quiet else "Expected time: about 2 minutes.\n")


def test_a_reader_that_is_gone_does_not_end_the_command():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with ProgressLines(Gone(), first=0.0, spacing=0.0) as tell:
        tell("organizing", 1, 2)
