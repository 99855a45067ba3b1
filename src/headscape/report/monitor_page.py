"""The page of a monitored run: display data in, one HTML file out that works offline, like the report."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.report.html_page import Answer, frame_html, json_text, words
from headscape.report.section import page_file
from headscape.tensor.store import write_text_atomically

SCRIPTS = (
    "charts.js",
    "frame.js",
    "filters.js",
    "help.js",
    "save.js",
    "search.js",
    "sheet.js",
    "rows.js",
    "monitor.js",
)


@dataclass(frozen=True, eq=False)
class MonitorPageData:
    """What the page shows, as plain values that JSON can hold, and one array per measure.

    Parameters
    ----------
    title
        Name of the run.
    heads
        ``names``, ``layer``, ``head`` and ``state`` of every head.
    steps
        The sampled steps.
    metrics
        One dict per measure: ``key``, ``title``, ``meaning``, its range ``low`` to ``high``, whether its scale is
        ``log``, ``band`` (three lists: what 5, 50 and 95 % of the heads stay below at every step), ``threshold``
        (limits that its alerts crossed), and whether it has a curve in the ``panel``.
    values
        The array (step, head) of every measure, and of the ``state`` (2 = alert).
    alerts
        In the order in which they were raised: dicts with ``step``, ``since``, ``title``, whether it is ``over``,
        ``heads`` (indices), ``message``, ``facts`` and ``advice``.
    answers, warnings, facts, about
        The words of the page, as in :class:`headscape.report.page.PageData`.
    first, metric, kept
        Which head and measure are chosen when the page opens, and which heads have a curve from the start.
    """

    title: str
    heads: dict[str, list[Any]]
    steps: Sequence[int]
    metrics: list[dict[str, Any]]
    values: Mapping[str, NDArray[np.floating[Any]]]
    alerts: list[dict[str, Any]]
    answers: list[Answer]
    warnings: list[dict[str, str]]
    facts: list[tuple[str, str]]
    about: list[tuple[str, str, bool]]
    first: int = 0
    metric: str = ""
    kept: Sequence[int] = ()

    def to_json(self) -> str:
        """Return what the scripts show as JSON that is safe inside a script element."""
        names = ("heads", "metrics", "alerts", "first", "metric")
        return json_text(
            {name: getattr(self, name) for name in names}
            | {"steps": [int(step) for step in self.steps], "kept": [int(head) for head in self.kept]}
            | {"values": {key: _packed(values) for key, values in self.values.items()}}
        )


def write_monitor_page(data: MonitorPageData, path: Path) -> Path:
    """Write the page, so that a browser sees the old one or the whole new one, and return its path."""
    write_text_atomically(path, monitor_page_html(data))
    return path


def monitor_page_html(data: MonitorPageData) -> str:
    """Return the whole page as text."""
    parts = words(data.title, data.answers, data.warnings, data.facts, data.about)
    script = "\n".join(page_file(name) for name in SCRIPTS)
    return frame_html("monitor.html", parts, data.to_json(), script)


def _packed(values: NDArray[np.floating[Any]]) -> str:
    """Return an array as the page inflates it: little-endian float32, step by step."""
    return base64.b64encode(zlib.compress(values.astype("<f4").tobytes(), level=6)).decode()
