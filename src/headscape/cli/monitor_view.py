"""A monitored run in the terminal: a sentence, one line per layer with a sparkline and its state, the newest alerts."""

import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from headscape.monitor.overview import STATES, Overview

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
MISSING = "·"
COLORS = dict(zip(STATES, ("green", "yellow", "red"), strict=True))
NEWEST = 5
NOISE = 0.2


def sparkline(values: Sequence[float], width: int = 30, blocks: str = BLOCKS) -> str:
    """Return numbers as a line of blocks, lowest to highest; means over equal stretches if there are many.

    The scale spans at least a fifth of the largest value: small noise looks small.

    Examples
    --------
    >>> sparkline([1, 2, 3, 4, float("nan"), 2])
    '▁▃▆█·▃'
    >>> sparkline([2.50, 2.52, 2.51])
    '▄▅▄'
    """
    n = len(values)
    if n > width:
        edges = [round(i * n / width) for i in range(width + 1)]
        values = [_mean(values[start:stop]) for start, stop in pairwise(edges)]
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = max(high - low, NOISE * max(abs(low), abs(high)), 1e-30)
    bottom, top = (low + high - span) / 2, len(blocks) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return MISSING if blocks == BLOCKS else "?"
        return blocks[round(top * (value - bottom) / span)]

    return "".join(map(block, values))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def view(overview: Overview, width: int, age: str = "") -> Any:
    """Return what rich shows of a run on a terminal of some width; ``age`` says when it was sampled last."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = [Text(overview.sentence, style=f"bold {COLORS[overview.state]}")]
    parts.append(Text(", ".join(filter(None, (overview.progress, age))), style="dim"))
    if any(layer.curve for layer in overview.layers):
        parts += [Text(""), _layers(overview, width)]
    newest = overview.alerts[::-1][:NEWEST]
    if newest:
        rest = len(overview.alerts) - len(newest)
        parts += [Text(""), Text("Newest alerts" + (f" ({rest} earlier)" if rest else ""), style="bold")]
    for alert in newest:
        style = COLORS[STATES[-1]] if alert in overview.in_force else ""
        parts += [Text(f"- {alert}", style=style), Padding(Text(alert.advice, style="dim"), (0, 0, 0, 2))]
    return Group(*parts)


def _layers(overview: Overview, width: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("layer", "state", overview.metric, "of", "now", "heads now"):
        table.add_column(column, justify="right" if column == "now" else "left", no_wrap=True)
    blocks = BLOCKS if _speaks_unicode() else PLAIN_BLOCKS
    room = max(10, min(48, width - 54))
    for layer in overview.layers:
        table.add_row(
            layer.name,
            Text(layer.state, style=COLORS[layer.state]),
            sparkline(layer.curve, room, blocks),
            layer.curve_of,
            f"{layer.curve[-1]:.3g}",
            f"{layer.low:.3g} to {layer.high:.3g}",
        )
    return table


def _speaks_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()
