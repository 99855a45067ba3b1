"""The look of all figures, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscape.errors import InputError
from headscape.tensor.store import explain_write_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEQUENTIAL = "viridis"
DIVERGING = "RdBu_r"
ACCENT = "#c2410c"
QUIET = "#6b7280"
FORMATS = ("png", "svg", "pdf")
MAX_LABELS = 64


def new_figure(width: float = 6.0, height: float = 4.5) -> Figure:
    """Return an empty figure that needs no screen and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=150)


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure with one panel."""
    figure = new_figure(width, height)
    return figure, figure.add_subplot()


def name_axes(axes: Any, x: str, y: str) -> None:
    """Name the two axes of a panel, and make the labels of its ticks small."""
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=7)


def set_heading(axes: Axes, title: str, remark: str = "", size: float = 10) -> None:
    """Write a title above a panel, and a remark in a quiet color below the title."""
    axes.set_title(title, loc="left", fontsize=size, pad=16)
    axes.annotate(
        remark,
        (0, 1),
        xytext=(0, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=7,
        color=QUIET,
    )


def name_point(axes: Axes, text: str, spot: Any) -> None:
    """Write the name of a point beside it."""
    axes.annotate(text, spot, xytext=(4, 3), textcoords="offset points", fontsize=6, color=ACCENT)


def label_points(axis: Any, labels: Sequence[str], rotate: bool = False) -> None:
    """Name the points along an axis (``axes.xaxis`` or ``axes.yaxis``), or only some of them if there are many."""
    step = max(1, -(-len(labels) // MAX_LABELS))
    axis.set_ticks(range(0, len(labels), step))
    axis.set_ticklabels(
        [_printable(label) for label in labels[::step]], fontsize=5, rotation=90 if rotate else 0
    )
    axis.set_tick_params(length=1.5, pad=1)


def save_figures(figures: dict[str, Figure], folder: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write figures as NAME.FORMAT and return the paths."""
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise InputError(f"figure formats are {', '.join(FORMATS)}, but {', '.join(unknown)} was asked for.")
    paths = []
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            for ending in formats:
                path = folder / f"{name}.{ending}"
                figure.savefig(path, metadata={"Date": None} if ending == "svg" else None)
                paths.append(path)
    return paths


def _printable(label: str) -> str:
    """Escape what matplotlib would read as mathematics, and show white space."""
    shown = label.replace("\n", "⏎").replace("\t", "⇥").replace("$", r"\$")
    return shown if shown.strip() else "␣"
