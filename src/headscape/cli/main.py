"""The program ``headscape``: one thin file per command; errors become one line and exit code 2."""

import os
import sys
from typing import Annotated

import typer

from headscape._version import __version__
from headscape.cli.ablate import ablate
from headscape.cli.analyze import analyze
from headscape.cli.capture import capture
from headscape.cli.check import check
from headscape.cli.console import set_up_logging
from headscape.cli.energy import energy
from headscape.cli.entropy import entropy
from headscape.cli.info import info
from headscape.cli.organize import organize
from headscape.cli.prune import prune
from headscape.cli.softmax import softmax
from headscape.errors import HeadscapeError

EXIT_BAD_INPUT = 2
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="headscape",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(analyze)
app.command()(capture)
app.command()(organize)
app.command()(entropy)
app.command()(softmax)
app.command()(energy)
app.command()(check)
app.command()(ablate)
app.command()(prune)
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

    Exit codes: 0 done, 1 a check failed, 2 bad input, 130 interrupted, 70 a defect of headscape.
    """
    set_up_logging(verbose)


def run() -> None:
    """Run the program, turning headscape's errors into one line on standard error."""
    try:
        app()
    except HeadscapeError as error:
        _fail(str(error), EXIT_BAD_INPUT)
    except MemoryError:
        _fail("out of memory. Take a shorter length, fewer heads, or a smaller --max-memory.", EXIT_BAD_INPUT)
    except (KeyboardInterrupt, SystemExit) as end:
        # typer turns an interrupt into an exit without a word.
        if isinstance(end, SystemExit) and end.code != EXIT_INTERRUPTED:
            raise
        _fail("interrupted. Finished parts are kept; the same command resumes there.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (head, less): nothing is wrong on our side.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("HEADSCAPE_DEBUG"):
            raise
        what = f"internal error: {type(error).__name__}: {error}"
        _fail(f"{what}. Please report it; HEADSCAPE_DEBUG=1 shows where it happened.", EXIT_INTERNAL)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"headscape: {message}\n")
    sys.exit(code)
