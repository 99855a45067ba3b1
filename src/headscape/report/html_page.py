"""What every HTML page is made of: frame, words, scripts and the chart library, in one file that works offline.

Words (findings, warnings, parameters) are HTML, escaped, so that they can be read before any script runs. Everything
else reaches the page as JSON, and the scripts show names and tokens as text.
"""

import base64
import html
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import util
from itertools import groupby
from typing import Any

from headscape.errors import MissingDependencyError
from headscape.output import counted
from headscape.report.section import page_file

LONG_SENTENCE = 220
FRAME_SCRIPTS = (
    "charts.js",
    "frame.js",
    "filters.js",
    "help.js",
    "save.js",
    "search.js",
    "sheet.js",
    "rows.js",
)
"""What every page runs before its own scripts."""


@dataclass(frozen=True)
class Answer:
    """A finding: the question it answers, the sentence, its statistics, and whether it is on the first screen."""

    question: str
    sentence: str
    statistics: str = ""
    first: bool = True


def frame_html(body: str, parts: Mapping[str, str], data: str, script: str) -> str:
    """Return a whole page: the frame that all pages share around the body of one.

    Parameters
    ----------
    body
        The page file of what stands between the top bar and the scripts.
    parts
        What the places ``{{name}}`` of the body and of the frame hold, as HTML.
    data
        What the scripts show, by :func:`json_text`.
    script
        All scripts of the page.
    """
    frame = {
        "body": fill(page_file(body), parts),
        "css": page_file("report.css"),
        "data": data,
        "plotly": _plotly(),
        "script": script,
    }
    return fill(page_file("frame.html"), {**parts, **frame})


def json_text(values: Any) -> str:
    """Return plain values as JSON that is safe inside a script element."""
    return _inside_script(json.dumps(values, allow_nan=False, separators=(",", ":")))


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with its places ``{{name}}`` filled."""
    page = []
    # Split first, fill then: what is filled in may itself hold the marks of the template.
    for piece in template.split("{{"):
        name, found, rest = piece.partition("}}")
        page.append(parts[name] + rest if found else piece)
    return "".join(page)


def words(
    title: str,
    answers: Sequence[Answer],
    warnings: Iterable[Mapping[str, str]],
    facts: Iterable[tuple[str, str]],
    about: Iterable[tuple[str, str, bool]],
) -> dict[str, str]:
    """Return the words of a page as HTML, by their places in the template.

    Parameters
    ----------
    title
        Heading of the page.
    answers
        The findings in the order of their questions; the first opens the page.
    warnings
        Dicts with ``title`` and ``message``.
    facts, about
        Pairs of a label and a value; in ``about`` a third entry says whether the value is code.
    """
    opening, opened = answers[:1], answers[0].question if answers else ""
    same = [answer for answer in answers[1:] if answer.first and answer.question == opened]
    first = [answer for answer in answers[1:] if answer.first and answer.question != opened]
    rest = [answer for answer in answers[1:] if not answer.first]
    shown_facts = [f"<div><b>{html.escape(value)}</b>{html.escape(label)}</div>" for label, value in facts]
    notes = [
        f'<p role="note"><b>⚠ {html.escape(w["title"])}</b> {html.escape(w["message"])}</p>' for w in warnings
    ]
    more = (
        f'<details id="more" class="more"><summary>{counted(len(rest), "more finding")}</summary>'
        f"{_answers(rest)}</details>"
    )
    rows = []
    for label, value, code in about:
        text = f"<code>{html.escape(value)}</code>" if code else html.escape(value)
        rows.append(f"<dt>{html.escape(label)}</dt><dd>{text}</dd>")
    findings = {
        "opening": "".join(map(_opening, opening)) + _answers(same, asked=True),
        "facts": "".join(shown_facts),
        "warnings": "".join(notes),
        "first_findings": _answers(first),
        "more_findings": more if rest else "",
    }
    return {
        "title": html.escape(f"headscape: {title}"),
        "name": html.escape(title),
        "findings": fill(page_file("findings.html"), findings),
        "about": fill(page_file("about.html"), {"about": "".join(rows)}),
    }


def _opening(answer: Answer) -> str:
    """Return the first finding, large; a little less so if it is long, to leave room for the others."""
    kind = "opening long" if len(answer.sentence) > LONG_SENTENCE else "opening"
    question = f'<h3 class="question">{html.escape(answer.question)}</h3>'
    return f'{question}<p id="opening" class="{kind}">{html.escape(answer.sentence)}</p>{_statistics(answer)}'


def _answers(answers: Iterable[Answer], asked: bool = False) -> str:
    """Return findings under the questions that they answer, unless these stand above them already."""
    parts = []
    for question, found in groupby(answers, key=lambda answer: answer.question):
        items = "".join(
            f'<li><span class="sentence">{html.escape(answer.sentence)}</span>{_statistics(answer)}</li>'
            for answer in found
        )
        heading = "" if asked else f'<h3 class="question">{html.escape(question)}</h3>'
        parts.append(f'{heading}<ul class="sentences">{items}</ul>')
    return "".join(parts)


def _statistics(answer: Answer) -> str:
    if not answer.statistics:
        return ""
    text = html.escape(answer.statistics)
    return f'<details class="statistics"><summary>numbers</summary><p>{text}</p></details>'


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
