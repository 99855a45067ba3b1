"""A monitored run in the terminal: a sentence, one line per layer with a sparkline and its state, the newest alerts."""

import math
import sys
from collections.abc import Sequence
from typing import Any

from headscape.monitor.overview import ALERT, HEALTHY, WATCH, Overview

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
MISSING = "·"
COLORS = {HEALTHY: "green", WATCH: "yellow", ALERT: "bold red"}
NEWEST = 5


def sparkline(values: Sequence[float], width: int = 30, blocks: str = BLOCKS) -> str:
    """Return numbers as a line of blocks, lowest to highest; means over equal stretches if there are many.

    Examples
    --------
    >>> sparkline([1, 2, 3, 4, float("nan"), 2])
    '▁▃▅█·▃'
    """
    n = len(values)
    if n > width:
        edges = [round(i * n / width) for i in range(width + 1)]
        values = [_mean(values[start:stop]) for start, stop in zip(edges[:-1], edges[1:], strict=True)]
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    flat = high - low <= 1e-9 * max(abs(low), abs(high))
    top = len(blocks) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return MISSING if blocks == BLOCKS else "?"
        return blocks[top // 2 if flat else round(top * (value - low) / (high - low))]

    return "".join(map(block, values))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def view(overview: Overview, width: int) -> Any:
    """Return what rich shows of a run on a terminal of some width."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(overview.sentence, style=f"bold {COLORS[overview.state].removeprefix('bold ')}")]
    parts += [Text(overview.progress, style="dim"), Text(""), _layers(overview, width)]
    if overview.alerts:
        newest = overview.alerts[::-1][:NEWEST]
        rest = len(overview.alerts) - len(newest)
        parts += [Text(""), Text("Newest alerts" + (f" ({rest} earlier)" if rest else ""), style="bold")]
        for alert in newest:
            parts += [Text(f"- {alert.message}", style="red"), Text(f"  What people do: {alert.advice}", style="dim")]
    return Group(*parts)


def _layers(overview: Overview, width: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("layer", "state", f"{overview.metric} (median of the heads)", "now", "range of the heads"):
        table.add_column(column, justify="right" if column == "now" else "left", no_wrap=True)
    blocks = BLOCKS if _speaks_unicode() else PLAIN_BLOCKS
    room = max(10, min(48, width - 52))
    for layer in overview.layers:
        table.add_row(
            layer.name,
            Text(layer.state, style=COLORS[layer.state]),
            sparkline(layer.medians, room, blocks),
            f"{layer.medians[-1]:.4g}" if len(layer.medians) else "-",
            f"{layer.low:.4g} to {layer.high:.4g}",
        )
    return table


def _speaks_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()
