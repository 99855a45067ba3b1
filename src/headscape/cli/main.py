"""The program ``headscape``: one thin file per command; errors become one line and exit code 2."""

import errno
import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import Annotated, Any, NoReturn, Self

import typer

from headscape._version import __version__
from headscape.cli.ablate import ablate
from headscape.cli.analyze import analyze
from headscape.cli.capture import capture
from headscape.cli.check import check
from headscape.cli.compare import compare
from headscape.cli.console import set_up_logging
from headscape.cli.energy import energy
from headscape.cli.entropy import entropy
from headscape.cli.info import info
from headscape.cli.monitor import monitor
from headscape.cli.organize import organize
from headscape.cli.patterns import patterns
from headscape.cli.prune import prune
from headscape.cli.reproduce import reproduce
from headscape.cli.softmax import softmax
from headscape.errors import HeadscapeError

COLLECTION = (100_000, 50, 50)
"""Thresholds of the garbage collector: most objects are those of imported modules, and stay."""
EXIT_BAD_INPUT = 2
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted. What was finished is kept; the same command resumes from there."

app = typer.Typer(
    name="headscape",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(analyze)
app.command()(capture)
app.command()(organize)
app.command()(patterns)
app.command()(entropy)
app.command()(softmax)
app.command()(energy)
app.command()(check)
app.command()(compare)
app.command()(ablate)
app.command()(prune)
app.command()(monitor)
app.command()(reproduce)
app.command()(info)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"headscape {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the library's log on standard error.")
    ] = False,
) -> None:
    """Map the attention heads of transformers.

    Start with:  headscape analyze -o out/demo

    Exit codes: 0 done, 1 a check failed, 2 bad input, 130 interrupted, 70 internal error.
    """
    set_up_logging(verbose)


def run() -> None:
    """Run the program, turning headscape's errors into one line on standard error."""
    gc.set_threshold(*COLLECTION)
    with _Interrupts() as interrupts:
        try:
            app(prog_name="headscape")
        except BaseException as error:
            # An interrupt in the middle of an import of compiled code can come out as another error. A command that
            # ends well after one, such as one that watches, has taken it as its end.
            if interrupts.came and not _ended_well(error):
                _fail(INTERRUPTED, EXIT_INTERRUPTED)
            _end(error)


def _ended_well(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and not error.code


class _Interrupts:
    """Turns SIGTERM into the KeyboardInterrupt that Ctrl-C is for the length of a block, and notes either."""

    def __init__(self) -> None:
        self.came = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Only the main thread of a program can say what signals do.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self.came = True
        raise KeyboardInterrupt


def _end(error: BaseException) -> NoReturn:
    """End the program as an error asks for: one line on standard error, and its exit code."""
    try:
        sys.stdout.flush()
    except OSError as unwritten:
        # Nobody reads our output any more, or it cannot be kept: the rest of it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        error = unwritten
    if isinstance(error, SystemExit) and error.code != EXIT_INTERRUPTED:
        raise error
    if isinstance(error, BrokenPipeError):
        sys.exit(0)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        _fail(INTERRUPTED, EXIT_INTERRUPTED)
    if isinstance(error, HeadscapeError):
        _fail(str(error), EXIT_BAD_INPUT)
    if isinstance(error, MemoryError):
        _fail("out of memory. Take a shorter length, fewer heads, or a smaller --max-memory.", EXIT_BAD_INPUT)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _fail("the disk is full. Free some space and run the same command again.", EXIT_BAD_INPUT)
    if isinstance(error, OSError) and error.filename is not None:
        _fail(f"{error.filename}: {error.strerror}.", EXIT_BAD_INPUT)
    if os.environ.get("HEADSCAPE_DEBUG"):
        raise error
    what = f"internal error: {type(error).__name__}: {error}"
    _fail(f"{what}. Please report it; HEADSCAPE_DEBUG=1 shows where it happened.", EXIT_INTERNAL)


def _fail(message: str, code: int) -> NoReturn:
    line = " ".join(message.split("\n")).strip()  # names of files may hold line breaks
    sys.stderr.write(f"headscape: {line}\n")
    sys.exit(code)
