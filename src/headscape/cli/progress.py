"""The progress display of long commands: current step, share done, time left."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headscape.engine import Progress, no_progress


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """Yield a progress callback, shown on terminals only, on standard error."""
    if quiet or not sys.stderr.isatty():
        yield no_progress
    else:
        yield from _bar()


def _bar() -> Iterator[Progress]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description:<42}"),
        bars.BarColumn(bar_width=30),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(
        *columns, console=Console(stderr=True), transient=True, speed_estimate_period=600
    ) as bar:
        task = bar.add_task("starting", total=None)

        def tell(stage: str, done: float, total: float) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield tell
