"""The report: display data in, one HTML file out that works offline, from disk, with everything inside.

The template, the style and the scripts lie in ``page_files``. Names of models and tokens reach the page only
as JSON, and the scripts show them as text.
"""

import json
from dataclasses import dataclass, field
from importlib import resources, util
from pathlib import Path
from typing import Any

from headscape.errors import MissingPartError
from headscape.tensor.store import write_text_atomically

SCRIPTS = ("core.js", "geometry.js", "stages.js", "panel.js", "table.js", "main.js")


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
        One dict per column of the head table: ``key``, ``title``, ``meaning``, ``values``, ``numeric``, and
        whether it stands in the ``table`` and in the ``panel``.
    findings, warnings
        Sentences; warnings as dicts with ``title`` and ``message``.
    facts, about
        Pairs of a label and a value; in ``about`` a third entry says whether the value is code.
    first
        Which head is chosen when the page opens.
    sections
        ``geometry``, ``entropy``, ``energy``, ``window``, ``haar``: each is left out if it is not there.
    """

    title: str
    heads: dict[str, list[Any]]
    measures: list[dict[str, Any]]
    findings: list[str]
    warnings: list[dict[str, str]]
    facts: list[tuple[str, str]]
    about: list[tuple[str, str, bool]]
    first: int = 0
    sections: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return all of it as JSON that is safe inside a script element."""
        values = {name: value for name, value in vars(self).items() if name != "sections"}
        return _inside_script(json.dumps({**values, **self.sections}, allow_nan=False, separators=(",", ":")))


def write_page(data: PageData, path: Path) -> Path:
    """Write the report and return its path."""
    write_text_atomically(path, page_html(data))
    return path


def page_html(data: PageData) -> str:
    """Return the whole page as text."""
    parts = {
        "title": _as_text(f"headscape: {data.title}"),
        "css": _read("report.css"),
        "data": data.to_json(),
        "plotly": _plotly(),
        "script": "\n".join(_read(name) for name in SCRIPTS),
    }
    page = []
    # Split first, fill then: what is filled in may itself hold the marks of the template.
    for piece in _read("template.html").split("{{"):
        name, found, rest = piece.partition("}}")
        page.append(parts[name] + rest if found else piece)
    return "".join(page)


def _read(name: str) -> str:
    return (resources.files("headscape.report") / "page_files" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    if util.find_spec("plotly") is None:
        raise MissingPartError(
            'the report needs plotly, which is not installed. Install it with: pip install "headscape[report]"'
        )
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _inside_script(text: str) -> str:
    """Escape what could end a script element or a line of JavaScript; JSON reads the same."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _as_text(text: str) -> str:
    import html

    return html.escape(text)
