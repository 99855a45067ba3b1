"""The report: display data in, one HTML file out that works offline, from disk, with everything inside.

The template, the style and the scripts lie in ``page_files``; the stages bring sections of their own. Words (findings,
warnings, parameters) are HTML, escaped, so that they can be read before any script runs. Everything else reaches the
page as JSON, and the scripts show names and tokens as text.
"""

import base64
import html
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import util
from itertools import groupby
from pathlib import Path
from typing import Any

from headscape.errors import MissingDependencyError
from headscape.output import counted
from headscape.report.section import Chart, Section, page_file
from headscape.tensor.store import write_text_atomically

LONG_SENTENCE = 220
SCRIPTS = (
    "core.js",
    "names.js",
    "filters.js",
    "help.js",
    "save.js",
    "measures.js",
    "map.js",
    "tree.js",
    "panel.js",
    "table.js",
)


@dataclass(frozen=True)
class Answer:
    """A finding: the question it answers, the sentence, its statistics, and whether it is on the first screen."""

    question: str
    sentence: str
    statistics: str = ""
    first: bool = True


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
        return _inside_script(json.dumps(values, allow_nan=False, separators=(",", ":")))


def write_page(data: PageData, path: Path) -> Path:
    """Write the report and return its path."""
    write_text_atomically(path, page_html(data))
    return path


def page_html(data: PageData) -> str:
    """Return the whole page as text."""
    parts = {
        "title": html.escape(f"headscape: {data.title}"),
        **_words(data),
        "sections": _bodies(data.sections),
        "panel": "\n".join(section.panel for section in data.sections if section.panel),
        "css": page_file("report.css"),
        "data": data.to_json(),
        "plotly": _plotly(),
        "script": _scripts(data.sections),
    }
    page = []
    # Split first, fill then: what is filled in may itself hold the marks of the template.
    for piece in page_file("template.html").split("{{"):
        name, found, rest = piece.partition("}}")
        page.append(parts[name] + rest if found else piece)
    return "".join(page)


def _words(data: PageData) -> dict[str, str]:
    """Return the words of the page as HTML."""
    first = [answer for answer in data.answers[1:] if answer.first]
    rest = [answer for answer in data.answers[1:] if not answer.first]
    facts = [f"<div><b>{html.escape(value)}</b>{html.escape(label)}</div>" for label, value in data.facts]
    warnings = [
        f'<p role="note"><b>⚠ {html.escape(w["title"])}</b> {html.escape(w["message"])}</p>'
        for w in data.warnings
    ]
    more = (
        f'<details id="more" class="more"><summary>{counted(len(rest), "more finding")}</summary>'
        f"{_answers(rest)}</details>"
    )
    about = []
    for label, value, code in data.about:
        text = f"<code>{html.escape(value)}</code>" if code else html.escape(value)
        about.append(f"<dt>{html.escape(label)}</dt><dd>{text}</dd>")
    return {
        "name": html.escape(data.title),
        "opening": "".join(map(_opening, data.answers[:1])),
        "facts": "".join(facts),
        "warnings": "".join(warnings),
        "first_findings": _answers(first),
        "more_findings": more if rest else "",
        "about": "".join(about),
    }


def _opening(answer: Answer) -> str:
    """Return the first finding, large; a little less so if it is long, to leave room for the others."""
    kind = "opening long" if len(answer.sentence) > LONG_SENTENCE else "opening"
    return f'<p id="opening" class="{kind}">{html.escape(answer.sentence)}</p>{_statistics(answer)}'


def _answers(answers: Iterable[Answer]) -> str:
    """Return findings under the questions that they answer."""
    parts = []
    for question, found in groupby(answers, key=lambda answer: answer.question):
        items = "".join(
            f'<li><span class="sentence">{html.escape(answer.sentence)}</span>{_statistics(answer)}</li>'
            for answer in found
        )
        parts.append(f'<h3 class="question">{html.escape(question)}</h3><ul class="sentences">{items}</ul>')
    return "".join(parts)


def _statistics(answer: Answer) -> str:
    if not answer.statistics:
        return ""
    text = html.escape(answer.statistics)
    return f'<details class="statistics"><summary>numbers</summary><p>{text}</p></details>'


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


def _plotly() -> str:
    if util.find_spec("plotly") is None:
        raise MissingDependencyError(
            'the report needs plotly, which is not installed. Install it with: pip install "headscape[report]"'
        )
    return _deflated_library()


@cache
def _deflated_library() -> str:
    """Return the chart library at a third of its size; a browser inflates it in hundredths of a second."""
    from plotly.offline import get_plotlyjs

    script = _without_module_wrapper(str(get_plotlyjs()))
    return base64.b64encode(zlib.compress(script.encode(), level=9)).decode()


def _without_module_wrapper(script: str) -> str:
    """Take the library out of the function that module loaders want; text of another form stays as it is.

    A browser reads the text of a function that it may never call once, and again when it is called. Here that is
    the whole library, a fifth of the time to start it.
    """
    comment, opened, rest = script.partition("*/\n")
    _, start, inside = rest.partition('() => {\n"use strict";var Plotly=')
    body, end, after = inside.rpartition("\nreturn Plotly;\n}));")
    if not (opened and start and end) or after.strip():
        return script
    return f'{comment}{opened}"use strict";var Plotly={body}\n'


def _inside_script(text: str) -> str:
    """Escape what could end a script element or a line of JavaScript; JSON reads the same."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
