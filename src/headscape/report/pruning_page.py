"""The page of a pruned model: display data in, one HTML file out that works offline, like the report."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscape.report.html_page import FRAME_SCRIPTS, Answer, frame_html, json_text, words
from headscape.report.section import page_file
from headscape.tensor.store import write_text_atomically

SCRIPTS = (*FRAME_SCRIPTS, "pruning.js")


@dataclass(frozen=True)
class PruningPageData:
    """What the page shows, as plain values that JSON can hold.

    Parameters
    ----------
    title
        Name of the model.
    layers
        One dict per layer: ``layer``, how many ``heads`` it had, and how many of them share a key (``group``).
    heads
        Names of the heads that are removed.
    points
        The sizes of the trade-off, the lowest loss first: dicts with ``name`` (empty unless a Pareto choice),
        ``title``, ``kind``, ``removed``, ``heads``, ``increase``, ``low``, ``high``, ``values`` and ``shares``
        by measure, ``best_for`` (keys of measures), ``best_for_words``,
        ``chosen``, ``words``, ``numbers`` and ``option``.
    measures
        What loss can be shown against: dicts with ``key``, ``title``, ``short``, ``meaning``, and whether the
        table of sizes shows it as a ``share``.
    cost
        ``hint``, ``rows`` (the variants on held-out windows) and ``savings`` (pairs of a label and a value).
    answers, warnings, facts, about
        As :func:`headscape.report.html_page.words` takes them.
    windows
        How many windows compared the sizes.
    first
        Which size is chosen when the page opens.
    """

    title: str
    layers: list[dict[str, int]]
    heads: list[str]
    points: list[dict[str, Any]]
    measures: list[dict[str, Any]]
    cost: dict[str, Any]
    answers: list[Answer]
    warnings: list[dict[str, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    about: list[tuple[str, str, bool]] = field(default_factory=list)
    windows: int = 0
    first: int = 0

    def to_json(self) -> str:
        """Return what the scripts show as JSON that is safe inside a script element."""
        shown = ("layers", "heads", "points", "measures", "cost", "windows", "first")
        return json_text({name: getattr(self, name) for name in shown})


def write_pruning_page(data: PruningPageData, path: Path) -> Path:
    """Write the page and return its path."""
    write_text_atomically(path, pruning_page_html(data))
    return path


def pruning_page_html(data: PruningPageData) -> str:
    """Return the whole page as text."""
    parts = words(data.title, data.answers, data.warnings, data.facts, data.about)
    return frame_html("pruning.html", parts, data.to_json(), "\n".join(map(page_file, SCRIPTS)))
