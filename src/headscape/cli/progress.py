"""The progress of long commands on standard error: a bar on terminals, a plain line per stage and minute elsewhere."""

import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, TextIO

from headscape.output import in_words

FIRST_LINE, NEXT_LINE, SPACING = 2.0, 60.0, 1.0
"""Seconds until the first line, so that short commands print none; between lines of a stage; between any two."""
LONG = 10.0
"""Seconds from which on a command says how long it will take."""
_TRUSTED_SHARE = 0.15
"""Share of the work from which on the time left is told."""


class Display(ABC):
    """Shows how far a command is: a progress callback that can also print a line."""

    @abstractmethod
    def __call__(self, stage: str, done: float, total: float) -> None:
        """Show the current stage, and how much of the work is done."""

    @abstractmethod
    def announce(self, text: str) -> None:
        """Print a line that stays."""


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Display]:
    """Yield a progress callback that shows on standard error how far the command is; nothing if ``quiet``."""
    if quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        with ProgressLines(sys.stderr) as lines:
            yield lines


def announce_time(
    display: Display, given: SimpleNamespace, expected_seconds: Callable[[], float | None]
) -> None:
    """Say how long a command will take, if that is long and known, to people; programs do not ask."""
    if given.quiet or given.json or getattr(given, "csv", False):
        return
    seconds = expected_seconds()
    if seconds is not None and seconds >= LONG:
        display.announce(f"Expected time: {in_words(seconds)} (estimate for 2 cores without a GPU).")


class _Silent(Display):
    def __call__(self, stage: str, done: float, total: float) -> None:
        """Show nothing."""

    def announce(self, text: str) -> None:
        """Print nothing."""


class _TimeLeft:
    """Says how long a command will still take, once enough of it is done to tell."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self._done, self._share, self._one_count = 0.0, 0.0, True

    def note(self, done: float, total: float) -> float:
        """Note how much of the work is done, and return it as a share."""
        if done < self._done:  # a count per step: what is left of it says nothing about the command
            self._one_count = False
        self._done, self._share = done, min(1.0, done / total) if total > 0 else 0.0
        return self._share

    def in_words(self, now: float) -> str:
        """Return the time left in words; nothing if it cannot be told."""
        if not self._one_count or not _TRUSTED_SHARE <= self._share < 1:
            return ""
        return f"{in_words((now - self.start) * (1 - self._share) / self._share)} left"


class _Bar(Display):
    def __init__(self, bar: Any) -> None:
        self._bar, self._task = bar, bar.add_task("starting", total=None, left="")
        self._left = _TimeLeft()

    def __call__(self, stage: str, done: float, total: float) -> None:
        self._left.note(done, total)
        left = self._left.in_words(time.monotonic())
        self._bar.update(self._task, description=stage, completed=done, total=total, left=left)

    def announce(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


def _bar() -> Iterator[Display]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description:<42}"),
        bars.BarColumn(bar_width=30),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[left]}"),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar)


class ProgressLines(Display):
    """Writes a line for every stage when it begins, and one a minute; none before ``first`` seconds have passed.

    Stages that differ in a number only, as those of several windows, are one; a stage that is over within
    ``spacing`` seconds of the last line has none.
    """

    def __init__(
        self,
        stream: TextIO,
        first: float = FIRST_LINE,
        every: float = NEXT_LINE,
        spacing: float = SPACING,
    ) -> None:
        self._stream, self._every, self._spacing = stream, every, spacing
        self._left = _TimeLeft()
        self._next_stage = self._due = self._left.start + first
        self._stage, self._share = "starting", 0.0
        self._told: set[str] = set()
        self._lock, self._ended = threading.Lock(), threading.Event()
        # A stage may take minutes without a word: the clock must not depend on it.
        self._clock = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ProgressLines":
        self._clock.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._clock.join()

    def __call__(self, stage: str, done: float, total: float) -> None:
        """Note where the command is, and write a line if the stage is new."""
        with self._lock:
            self._stage, self._share = stage, self._left.note(done, total)
            if _kind(stage) not in self._told and time.monotonic() >= self._next_stage:
                self._tell()

    def announce(self, text: str) -> None:
        """Write a line; a reader that is gone is no reason to stop."""
        with suppress(OSError):
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _watch(self) -> None:
        while not self._ended.wait(max(0.0, self._due - time.monotonic())):
            with self._lock:
                if time.monotonic() >= self._due:
                    self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        self._told.add(_kind(self._stage))
        self._due, self._next_stage = now + self._every, now + self._spacing
        percent = f" {self._share:4.0%}" if self._share else ""
        left = self._left.in_words(now)
        minutes, seconds = divmod(int(now - self._left.start), 60)
        self.announce(f"[{minutes}:{seconds:02d}]{percent} {self._stage}{left and ', '}{left}")


def _kind(stage: str) -> str:
    """Return the words of a stage without its numbers."""
    return re.sub("[0-9]+", "", stage)
