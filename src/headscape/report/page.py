"""The report: display data in, one HTML file out that works offline, from disk, with everything inside.

The body, the style and the scripts lie in ``page_files``; the stages bring sections of their own.
"""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscape.report.html_page import Answer, frame_html, json_text, words
from headscape.report.section import Chart, Section, page_file
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
    "core.js",
    "names.js",
    "measures.js",
    "map.js",
    "tree.js",
    "panel.js",
    "table.js",
)


@dataclass(frozen=True)
class PageData:
    """What the page shows, as plain values that JSON can hold.

    Parameters
    ----------
    title
        Name of the model.
    heads
        ``names``, ``layer`` and ``head`` of every head, in the order of the head axis.
    measures
        One dict per column of the head table: ``key``, ``title``, ``meaning``, ``stage``, ``values``, ``numeric``,
        and whether it stands in the ``table`` (as it opens) and in the ``panel``. The columns ``pattern`` and
        ``name`` name the heads.
    answers
        The findings in the order of their questions; the first opens the page.
    warnings
        Dicts with ``title`` and ``message``.
    facts, about
        Pairs of a label and a value; in ``about`` a third entry says whether the value is code.
    first
        Which head is chosen when the page opens.
    sections
        What the stages show, in their order.
    """

    title: str
    heads: dict[str, list[Any]]
    measures: list[dict[str, Any]]
    answers: list[Answer]
    warnings: list[dict[str, str]]
    facts: list[tuple[str, str]]
    about: list[tuple[str, str, bool]]
    first: int = 0
    sections: tuple[Section, ...] = ()

    def to_json(self) -> str:
        """Return what the scripts show as JSON that is safe inside a script element."""
        values: dict[str, Any] = {name: getattr(self, name) for name in ("heads", "measures", "first")}
        values["titles"] = [list(anchor) for section in self.sections for anchor in section.navigation]
        values["charts"] = [
            {"traces": list(chart.traces), "layout": dict(chart.layout), "heads": list(chart.heads)}
            for section in self.sections
            for chart in section.charts
        ]
        values |= {section.key: dict(section.data) for section in self.sections if section.data}
        return json_text(values)


def write_page(data: PageData, path: Path) -> Path:
    """Write the report and return its path."""
    write_text_atomically(path, page_html(data))
    return path


def page_html(data: PageData) -> str:
    """Return the whole page as text."""
    parts = {
        **words(data.title, data.answers, data.warnings, data.facts, data.about),
        "sections": _bodies(data.sections),
        "panel": "\n".join(section.panel for section in data.sections if section.panel),
    }
    return frame_html("report.html", parts, data.to_json(), _scripts(data.sections))


def _bodies(sections: Iterable[Section]) -> str:
    """Return the HTML of all sections; charts without a script get a card each, numbered through."""
    bodies, number = [], 0
    for section in sections:
        bodies.append(section.body)
        for place, chart in enumerate(section.charts):
            anchor = f' id="{html.escape(section.key)}"' if place == 0 else ""
            hint = f'<p class="hint">{html.escape(section.text)}</p>' if place == 0 and section.text else ""
            bodies.append(
                f'<section{anchor} class="card half"><div class="bar"><h2{_help(chart)}>{html.escape(chart.title)}</h2>'
                f"</div>{hint}"
                f'<div class="chart" id="chart-{number}" role="img" aria-label="{html.escape(chart.title)}"></div>'
                "</section>"
            )
            number += 1
    return "\n".join(body for body in bodies if body)


def _help(chart: Chart) -> str:
    """Return the attributes that give a heading its "?"."""
    if not chart.help:
        return ""
    return f' data-help="{html.escape(chart.help)}" data-docs="{html.escape(chart.docs)}"'


def _scripts(sections: Iterable[Section]) -> str:
    """Return all scripts; each section's runs in a block of its own, so that names cannot collide."""
    of_stages = "\n".join(f"{{\n{section.script}}}" for section in sections if section.script)
    ours = [page_file(name) for name in SCRIPTS]
    return "\n".join([*ours, f"function setUpStages() {{\n{of_stages}\n}}", page_file("main.js")])
