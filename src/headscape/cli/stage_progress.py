"""The live display of a long command: what is being done, how far all of it is, and the time left."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headscape.engine import Progress, no_progress

# A log file needs signs of life, not a line per percent.
SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def stage_progress(quiet: bool) -> Iterator[Progress]:
    """Yield a progress whose counts run over the whole command; it is shown on standard error."""
    if quiet:
        yield no_progress
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:<42}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600) as bar:
        task = bar.add_task("starting", total=None)

        def tell(stage: str, done: float, total: float) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield tell


def _lines() -> Progress:
    """Return a progress that writes a line now and then, for logs and pipes."""
    start = time.monotonic()
    last = ("", -SECONDS_BETWEEN_LINES)

    def tell(stage: str, done: float, total: float) -> None:
        nonlocal last
        now = time.monotonic() - start
        if stage != last[0] and now - last[1] >= SECONDS_BETWEEN_LINES:
            last = (stage, now)
            sys.stderr.write(f"{now:5.0f} s  {done / max(total, 1e-9):4.0%}  {stage}\n")
            sys.stderr.flush()

    return tell
