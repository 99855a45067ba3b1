"""A section of the report: HTML, data, and a script or ready-made charts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Chart:
    """A chart that the page draws by itself, for sections without a script of their own.

    Parameters
    ----------
    title
        Heading of the card.
    traces, layout
        As Plotly takes them; colors and fonts come from the page.
    heads
        Index of the head behind every point of the first trace: a click chooses it, and the chosen head is marked.
    help, docs
        What the "?" of the heading explains, and the page of the documentation that says more.
    """

    title: str
    traces: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any] = field(default_factory=dict)
    heads: tuple[int, ...] = ()
    help: str = ""
    docs: str = "docs/glossary.md"


@dataclass(frozen=True)
class Section:
    """What one stage shows in the report.

    Parameters
    ----------
    key
        Name of its data in the page (``data[key]``) and of its anchor.
    title
        In the navigation; empty to stay out of it. ``anchors`` are (id, title) pairs in its place, for a section with
        several cards.
    data
        Plain values that JSON can hold.
    body, panel
        HTML for the main column and for the panel of the chosen head.
    script
        JavaScript that sets it up: it runs once, inside the page's own function.
    charts
        Charts that need no script.
    text
        A sentence under the heading of the charts.
    """

    key: str
    title: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    panel: str = ""
    script: str = ""
    charts: tuple[Chart, ...] = ()
    text: str = ""
    anchors: tuple[tuple[str, str], ...] = ()

    @property
    def navigation(self) -> tuple[tuple[str, str], ...]:
        """The (id, title) pairs of the navigation."""
        return self.anchors or (((self.key, self.title),) if self.title else ())


def page_file(name: str) -> str:
    """Return a file of the page: a fragment of HTML, a script, the style."""
    return (resources.files("headscape.report") / "page_files" / name).read_text(encoding="utf-8")
