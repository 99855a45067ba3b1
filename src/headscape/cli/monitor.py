"""``headscape monitor``: how the attention of a training run is doing, in the terminal and as a page."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headscape.cli.console import Console
from headscape.cli.given import require_file
from headscape.cli.options import OUTPUT, with_options
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError, StorageError

if TYPE_CHECKING:
    from headscape.monitor.monitor_run import MonitorRun
    from headscape.monitor.overview import Overview

SHORTEST, LONGEST = 0.1, 3600.0
LENGTH = 256
"""Tokens per window on which checkpoints are measured."""


@with_options(OUTPUT)
def monitor(
    run: Annotated[str | None, typer.Argument(help="The file or folder that HeadMonitor writes to.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep watching until the run ends, or Ctrl-C.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with all heads and steps; --follow keeps it up to date.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric of the sparklines. (default: attention_entropy, or what is wrong)"),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks with --follow.")] = 2.0,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="Measure the checkpoints in this folder (checkpoint-500, ...) into --out, and show them."
        ),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Text file (UTF-8) that checkpoints are measured on.")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per window of the text. (default: 256)")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="File or folder for measured checkpoints; resumes if interrupted."),
    ] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Show how the attention of a training run is doing: the state of every layer, and the newest alerts.

    The run is what hs.HeadMonitor(model, path=RUN) writes, finished or going on. Takes a second. With --checkpoints the
    saved models of a run are measured, all on the same text: about 5 seconds each for 135 million parameters.

    Example:  headscape monitor out/run --follow --html out/run.html
    """
    _check(follow, html, interval, given)
    if checkpoints is not None:
        run = _replay(
            *_required(run, follow, checkpoints, text, out), LENGTH if length is None else length, given
        )
    if run is None:
        raise InputError("specify a run, the file or folder that HeadMonitor writes to, or --checkpoints.")
    if checkpoints is None and any(value is not None for value in (text, length, out)):
        raise InputError("--text, --length and -o are for --checkpoints.")
    from headscape.monitor.overview import overview

    console = Console(quiet=given.quiet, json=given.json)
    if follow:
        _follow(run, html, metric, interval, console)
        return
    found = _load(run)
    seen = overview(found, metric)
    if html is not None:
        _write_page(found, run, html)
    console.result(_summary(found, seen, run))
    if not (given.quiet or given.json):
        _show_once(found, seen)
    if html is not None:
        console.say(f"Page: {html}")


def _check(follow: bool, html: Path | None, interval: float, given: SimpleNamespace) -> None:
    """Raise unless the options fit together."""
    if follow and given.json:
        raise InputError("--json prints one object: leave --follow out.")
    if follow and given.quiet and html is None:
        raise InputError("--follow with --quiet shows nothing: leave one out, or add --html.")
    if not SHORTEST <= interval <= LONGEST:
        raise InputError(f"--interval must be {SHORTEST} to {LONGEST:.0f} seconds, but is {interval}.")
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        wrong = "is a folder" if html.is_dir() else f"is in {html.parent}, which does not exist"
        raise StorageError(f"--html must name a file in an existing folder, but {html} {wrong}.")


def _required(
    run: str | None, follow: bool, checkpoints: Path, text: Path | None, out: Path | None
) -> tuple[Path, Path, Path]:
    """Return what a replay needs, or raise naming what is missing or too much."""
    if text is None or out is None:
        raise InputError("--checkpoints needs --text, a text file, and -o, the file or folder of the result.")
    if run is not None or follow:
        raise InputError("--checkpoints measures saved models into -o: leave RUN and --follow out.")
    require_file(text, "--text")
    return checkpoints, text, out


def _replay(checkpoints: Path, text: Path, out: Path, length: int, given: SimpleNamespace) -> str:
    """Measure checkpoints, and return the run that holds them."""
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.monitor.checkpoints import checkpoints_in, monitor_checkpoints
    from headscape.study.expected_time import replaying_seconds

    found = checkpoints_in(checkpoints)
    with shown_progress(quiet=given.quiet) as progress:
        announce_time(progress, given, lambda: replaying_seconds(found, out, length))
        monitor_checkpoints(checkpoints, text, out, length=length, progress=progress)
    return str(out)


def _load(run: str) -> "MonitorRun":
    from headscape.monitor.monitor_run import MonitorRun

    return MonitorRun.load(run)


def _write_page(found: "MonitorRun", run: str, path: Path) -> None:
    from headscape.monitor.monitor_run import run_path
    from headscape.report.monitor_page import write_monitor_page
    from headscape.study.monitor_display import monitor_page_data

    if not found.samples:
        raise InputError(f"{run} has no sample yet: a page needs one. Wait, or add --follow.")
    file = run_path(run)
    name = file.parent.name if file.name == "monitor.jsonl" and file.parent.name else file.stem
    write_monitor_page(monitor_page_data(found, name, str(run)), path)


def _show_once(found: "MonitorRun", seen: "Overview") -> None:
    from rich.console import Console as RichConsole

    from headscape.cli.monitor_view import view

    screen = RichConsole(file=sys.stdout)
    screen.print(view(seen, screen.width, _age(found)))


def _age(found: "MonitorRun") -> str:
    """Return how long ago the latest sample was taken, in words."""
    if _ended(found):
        return "the run has ended"
    if not found.samples or "checkpoints" in found.header.about:
        return ""
    seconds = max(0.0, time.time() - found.samples[-1].time)
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"latest sample {seconds / size:.0f} {unit} ago"
    return f"latest sample {seconds:.0f} s ago" if seconds == seconds else ""


def _follow(run: str, html: Path | None, metric: str | None, interval: float, console: Console) -> None:
    """Show a run until it ends or the user does: Ctrl-C is the usual way out, not a failure."""
    try:
        if sys.stdout.isatty() and not console.quiet:
            _follow_on_screen(run, html, metric, interval)
        else:
            _follow_in_lines(run, html, metric, interval, console)
    except KeyboardInterrupt:
        return


def _looks(run: str, html: Path | None, interval: float) -> Iterator[tuple["MonitorRun", bool]]:
    """Yield the run and whether it has grown, look after look, until it ends; write its page when it has."""
    from headscape.monitor.monitor_run import run_path

    before = -1
    while True:
        size = run_path(run).stat().st_size if run_path(run).exists() else -2
        grown = size != before
        if grown:
            before, found = size, _load(run)
            if html is not None and found.samples:
                _write_page(found, run, html)
        yield found, grown
        if _ended(found):
            return
        time.sleep(interval)


def _follow_on_screen(run: str, html: Path | None, metric: str | None, interval: float) -> None:
    from rich.console import Console as RichConsole
    from rich.live import Live

    from headscape.cli.monitor_view import view
    from headscape.monitor.overview import overview

    screen = RichConsole(file=sys.stdout)
    with Live(console=screen, auto_refresh=False, vertical_overflow="crop") as live:
        for found, _ in _looks(run, html, interval):
            live.update(view(overview(found, metric), screen.width, _age(found)), refresh=True)


def _follow_in_lines(
    run: str, html: Path | None, metric: str | None, interval: float, console: Console
) -> None:
    """Print a line when the sentence changes, and every alert once: for logs."""
    from headscape.monitor.overview import overview

    said, told = "", 0
    for found, grown in _looks(run, html, interval):
        if not grown:
            continue
        seen = overview(found, metric)
        for alert in seen.alerts[told:]:
            console.say(f"- {alert}")
        told = len(seen.alerts)
        if seen.sentence != said:
            console.say(seen.sentence)
            said = seen.sentence
        sys.stdout.flush()


def _summary(found: "MonitorRun", seen: "Overview", run: str) -> dict[str, Any]:
    from headscape.output import json_ready

    last = found.samples[-1] if found.samples else None
    summary = {
        "run": run,
        "state": seen.state,
        "sentence": seen.sentence,
        "step": None if last is None else last.step,
        "samples": len(found.samples),
        "heads": len(found.heads),
        "loss": None if last is None else last.loss,
        "overhead": found.overhead,
        "ended": _ended(found),
        "metric": seen.metric,
        "layers": [
            {
                "layer": layer.name,
                "state": layer.state,
                "shown": layer.curve_of,
                "value": layer.curve[-1] if layer.curve else None,
                "low": layer.low,
                "high": layer.high,
            }
            for layer in seen.layers
        ],
        "alerts": [
            {
                **alert.to_record(),
                "title": alert.title,
                "advice": alert.advice,
                "in_force": alert in seen.in_force,
            }
            for alert in seen.alerts
        ],
    }
    ready: dict[str, Any] = json_ready(summary)
    return ready


def _ended(found: "MonitorRun") -> bool:
    return found.ended
