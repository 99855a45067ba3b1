"""How commands talk: results on standard output, progress and errors on standard error."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscape.errors import StorageError


@dataclass(frozen=True)
class Console:
    """What a command may say: ``quiet`` shows no progress, ``json`` prints one JSON object and nothing else."""

    quiet: bool = False
    json: bool = False

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a small table for people."""
        if self.quiet or self.json:
            return
        from rich.table import Table

        table = Table(title=title, title_justify="left", title_style="bold")
        for i, column in enumerate(columns):
            table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
        for row in rows:
            table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
        _rich().print(table)

    def say(self, text: str, indent: int = 0) -> None:
        """Print a sentence for people; all its lines are indented."""
        if not (self.quiet or self.json):
            from rich.padding import Padding
            from rich.text import Text

            # Padding shows no line for an empty text.
            _rich().print(Padding(Text(text), (0, 0, 0, indent), expand=False) if text else "")

    def findings(self, warnings: Iterable[object], sentences: Iterable[str]) -> None:
        """Print warnings, and what was found."""
        for warning in warnings:
            self.say(f"Warning: {warning}")
        for sentence in sentences:
            self.say(f"- {sentence}")

    def result(self, values: Mapping[str, Any]) -> None:
        """Print the result for programs, if ``--json`` was given."""
        if self.json:
            sys.stdout.write(json.dumps(values, indent=2, allow_nan=False) + "\n")


def output_folder(path: Path) -> Path:
    """Return the folder that ``-o`` names, or raise one clear error unless it can be written.

    It is not made yet, so that a command that fails leaves no empty folder behind.
    """
    if str(path) in ("", "."):
        raise StorageError("-o must name a folder for the results, but is empty.")
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "no permission to write there")
        for folder in missing:
            with suppress(OSError):  # another run may be writing there by now
                folder.rmdir()
    except OSError as error:
        raise StorageError(
            f"the output folder {path} cannot be created or written ({error.strerror}). Choose another one with -o."
        ) from error
    return path


def set_up_logging(verbose: bool) -> None:
    """Send warnings of the library to standard error, a line each; its whole log and others' only with --verbose."""
    log = logging.getLogger("headscape")
    if verbose:
        form = "%(levelname)s %(name)s: %(message)s"
        logging.basicConfig(stream=sys.stderr, format=form, level=logging.ERROR)
        log.setLevel(logging.DEBUG)
        return
    warnings.showwarning = _show_own
    logging.basicConfig(handlers=[logging.NullHandler()])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("Warning: %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.WARNING)


def be_quiet() -> None:
    """Keep warnings back: only errors are printed."""
    warnings.showwarning = lambda *_, **__: None
    logging.getLogger("headscape").setLevel(logging.ERROR)


def _show_own(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    """Print a warning of headscape as one line, and none of numpy or zarr, whose cause a user cannot know."""
    if category is UserWarning and "headscape" in Path(filename).parts:
        sys.stderr.write(f"Warning: {message}\n")


def _rich() -> Any:
    from rich.console import Console as RichConsole

    return RichConsole(file=sys.stdout)
