"""How commands talk: results on standard output, progress and errors on standard error."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscape.engine import Progress, no_progress
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
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in rows:
            table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
        _rich().print(table)

    def say(self, text: str) -> None:
        """Print a sentence for people."""
        if not (self.quiet or self.json):
            _rich().print(text, markup=False, highlight=False)

    def result(self, values: Mapping[str, Any]) -> None:
        """Print the result for programs, if ``--json`` was given."""
        if self.json:
            sys.stdout.write(json.dumps(values, indent=2, allow_nan=False) + "\n")

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show a progress bar while the block runs, on terminals only."""
        if self.quiet or not sys.stderr.isatty():
            yield no_progress
            return
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import (
            Progress as Bar,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Bar(*columns, console=RichConsole(stderr=True), transient=True) as bar:
            task = bar.add_task("starting", total=None)
            current = ""

            def tell(stage: str, done: float, total: float) -> None:
                nonlocal current
                if stage != current:
                    current = stage
                    bar.reset(task, description=stage, total=total)
                bar.update(task, completed=done)

            yield tell


def output_folder(path: Path) -> Path:
    """Make the folder that ``-o`` names, or raise one clear error."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "no permission to write there")
    except OSError as error:
        raise StorageError(
            f"the output folder {path} cannot be made or written ({error.strerror}). Give another one with -o."
        ) from error
    return path


def set_up_logging(verbose: bool) -> None:
    """Send the library's log to standard error: warnings, or everything with --verbose."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", level=logging.ERROR)
    logging.getLogger("headscape").setLevel(logging.DEBUG if verbose else logging.ERROR)


def _rich() -> Any:
    from rich.console import Console as RichConsole

    return RichConsole(file=sys.stdout)
