"""The page of a comparison: display data in, one HTML file out, with the heads of two networks side by side.

It has the frame, the style and the scripts of the report (``report/html_page.py``), and like the report it draws what
others computed.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
    "comparison.js",
    "comparison_heads.js",
    "comparison_changes.js",
    "comparison_measures.js",
    "comparison_networks.js",
    "comparison_main.js",
)


@dataclass(frozen=True)
class SourceView:
    """What the page shows of one network.

    Parameters
    ----------
    name
        Full name; ``label`` is the short one of charts and tables, different for every source.
    heads
        ``names``, ``layer`` and ``head`` of every head, in the order of the head axis.
    coordinates
        The head's place on the map, head x 2.
    patterns
        What every head does, in words; empty if that was not measured.
    values
        A value per head for every measure, by the measure's key.
    spectrum
        Tri-Haar coefficients in the order of decreasing support, over windows: ``support``, ``median``, ``low``,
        ``high``.
    entropies
        Network entropy of every window.
    trees
        One dict per axis: ``axis``, ``depth``, ``folders``, ``balance`` (means over windows), and ``levels``, the
        number of folders of every level.
    """

    name: str
    label: str
    heads: dict[str, list[Any]]
    coordinates: list[list[float]]
    patterns: list[str] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    spectrum: dict[str, list[float]] = field(default_factory=dict)
    entropies: list[float] = field(default_factory=list)
    trees: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class PairView:
    """What the page shows of two networks, ``first`` and ``second`` (places in the list of sources).

    Parameters
    ----------
    sentence
        How the two differ, for anyone.
    verdict
        In two or three words: "inside the noise", "3.1 times the noise".
    distance, noise
        Between the networks, and what windows of one and the same network differ by.
    inside
        Whether the distance is inside the noise.
    partners
        For every head of the first and of the second network the heads that it corresponds to on the other side, the
        strongest first, as pairs of an index and a share.
    exact
        Whether every head has one partner; else the shares are those of a transport plan.
    rows, columns
        The table of changes: ``rows["first"]`` and ``rows["second"]`` are indices of heads, None where the other side
        lacks the head; columns are dicts with ``key``, ``title``, ``meaning``, ``numeric`` and ``values``.
    layers
        What changed by layer: ``layer``, ``change``, ``noise`` (usual), ``limit`` (the most that noise makes),
        ``changed`` heads of ``heads``; empty where layers do not correspond.
    layer_plan
        The share of the heads of each layer of the first (rows) that corresponds to each of the second (columns).
    effects
        One dict per measure: ``key``, ``first`` and ``second`` (medians), ``effect``, ``low``, ``high``, ``verdict``.
    patterns
        One dict per pattern: ``pattern``, ``first`` and ``second`` (numbers of heads), ``verdict``.
    trees
        One dict per axis and property of a tree: ``axis``, ``property``, ``first``, ``second``, ``noise``, ``verdict``.
    not_compared
        What could not be compared, and why.
    """

    first: int
    second: int
    sentence: str
    verdict: str
    distance: float | None
    noise: float | None
    inside: bool
    partners: list[list[list[list[float]]]]
    exact: bool
    rows: dict[str, list[int | None]]
    columns: list[dict[str, Any]]
    layers: list[dict[str, Any]] = field(default_factory=list)
    layer_plan: list[list[float]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    patterns: list[dict[str, Any]] = field(default_factory=list)
    trees: list[dict[str, Any]] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ComparisonPageData:
    """What the page of a comparison shows, as plain values that JSON can hold.

    Parameters
    ----------
    title
        The names of what is compared.
    sources, pairs
        The networks, and every two of them.
    measures
        Dicts with ``key``, ``title`` and ``meaning`` of what every head was measured by.
    answers
        The findings in the order of their questions; the first opens the page.
    warnings
        Dicts with ``title`` and ``message``.
    facts, about
        Pairs of a label and a value; in ``about`` a third entry says whether the value is code.
    places
        The map of the networks, source x 2; empty for two.
    path
        The sources in the order of a run, if they are its checkpoints.
    """

    title: str
    sources: list[SourceView]
    pairs: list[PairView]
    measures: list[dict[str, str]]
    answers: list[Answer]
    warnings: list[dict[str, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    about: list[tuple[str, str, bool]] = field(default_factory=list)
    places: list[list[float]] = field(default_factory=list)
    path: list[int] = field(default_factory=list)

    def to_json(self) -> str:
        """Return what the scripts show as JSON that is safe inside a script element."""
        shown = ("sources", "pairs", "measures", "places", "path")
        values = asdict(self)
        return json_text({name: values[name] for name in shown})


def write_comparison_page(data: ComparisonPageData, path: Path) -> Path:
    """Write the page and return its path."""
    write_text_atomically(path, comparison_page_html(data))
    return path


def comparison_page_html(data: ComparisonPageData) -> str:
    """Return the whole page as text."""
    parts = words(data.title, data.answers, data.warnings, data.facts, data.about)
    script = "\n".join(map(page_file, SCRIPTS))
    return frame_html("comparison.html", parts, data.to_json(), script)
