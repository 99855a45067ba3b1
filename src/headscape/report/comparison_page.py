"""The page of a comparison: display data in, one HTML file out, with the heads of two networks side by side.

It has the frame, the style and the scripts of the report (``report/html_page.py``), and like the report it draws what
others computed.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headscape.report.html_page import FRAME_SCRIPTS, Answer, frame_html, json_text, words
from headscape.report.section import page_file
from headscape.tensor.store import write_text_atomically

SCRIPTS = (
    *FRAME_SCRIPTS,
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
        Sizes of the tri-Haar coefficients, by their order ("size" or "support", largest first): ``median``, ``low`` and
        ``high`` over windows.
    entropies
        Network entropy of every window.
    folders
        Number of folders at every level of the head tree, from the root.
    """

    name: str
    label: str
    heads: dict[str, list[Any]]
    coordinates: list[list[float]]
    patterns: list[str] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    spectrum: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    entropies: list[float] = field(default_factory=list)
    folders: list[int] = field(default_factory=list)


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
    groups
        What changed by layer and by folder: dicts with ``kind`` ("layer" or "folder"), ``labels``, ``heads`` (numbers
        of heads) and ``series``; a series is a measure (``key``, ``title``) with ``times`` (the difference in units of
        the noise, or in its own ``unit``) and ``changed`` of every group. Empty where heads are not matched.
    matrices
        Layers of the first network (rows) against layers of the second: dicts with ``key``, ``title``, ``meaning`` and
        ``values``.
    effects
        One dict per measure: ``key``, ``first`` and ``second`` (medians), ``effect``, ``low``, ``high``, ``times``,
        ``verdict``.
    patterns
        One dict per pattern: ``pattern``, ``first`` and ``second`` (numbers of heads).
    networks
        One dict per measure of the whole network, such as the depth of the head tree: ``title``, ``meaning``, ``first``
        and ``second`` (means over windows), ``times``, ``verdict``.
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
    groups: list[dict[str, Any]] = field(default_factory=list)
    matrices: list[dict[str, Any]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    patterns: list[dict[str, Any]] = field(default_factory=list)
    networks: list[dict[str, Any]] = field(default_factory=list)
    not_compared: list[tuple[str, str]] = field(default_factory=list)


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
    answers, warnings, facts, about
        As :func:`headscape.report.html_page.words` takes them.
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
