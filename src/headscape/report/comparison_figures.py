"""Pictures of comparisons for papers: distances, the map of the networks, tri-Haar spectra (OA figure 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscape.report.comparison_page import ComparisonPageData
from headscape.report.style import QUIET, SEQUENTIAL, label_points, name_axes, new_axes, set_heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
"""Okabe and Ito's, in the order of the page."""
MOST_NUMBERS = 14


def comparison_figures(data: ComparisonPageData) -> dict[str, Figure]:
    """Return all figures of a comparison by name; the map is left out for two networks."""
    figures = {"distances": distance_figure(data), "spectra": spectra_figure(data)}
    return figures | ({"networks": network_figure(data)} if data.places else {})


def distance_figure(data: ComparisonPageData) -> Figure:
    """Draw the distances between all networks; those inside the noise are marked."""
    labels = [source.label for source in data.sources]
    n = len(labels)
    distances = np.zeros((n, n))
    for pair in data.pairs:
        distances[pair.first, pair.second] = distances[pair.second, pair.first] = pair.distance or 0.0
    figure, axes = new_axes(2.4 + 0.55 * n, 1.8 + 0.5 * n)
    image = axes.imshow(distances, cmap=SEQUENTIAL, vmin=0)
    for pair in data.pairs if n <= MOST_NUMBERS else ():
        bright = (pair.distance or 0.0) > 0.6 * distances.max()
        text = f"{'≈' if pair.inside else ''}{pair.distance:.2g}"
        for x, y in ((pair.first, pair.second), (pair.second, pair.first)):
            axes.text(x, y, text, ha="center", va="center", fontsize=7, color="black" if bright else "white")
    label_points(axes.xaxis, labels, rotate=True)
    label_points(axes.yaxis, labels)
    remark = "Gromov-Wasserstein, in median EMDs; ≈ inside the noise"
    set_heading(axes, "Distances between the networks", remark)
    figure.colorbar(image, ax=axes, label="distance", shrink=0.8)
    return figure


def network_figure(data: ComparisonPageData) -> Figure:
    """Draw the map of the networks; a line follows checkpoints in their order."""
    figure, axes = new_axes(5.0, 4.2)
    places = np.array(data.places)
    if data.path:
        axes.plot(*places[data.path].T, color=QUIET, lw=0.8, ls=":", zorder=1)
    for place, (spot, source) in enumerate(zip(places, data.sources, strict=True)):
        axes.scatter(spot[0], spot[1], color=COLORS[place % len(COLORS)], s=36, zorder=2)
        axes.annotate(source.label, spot, xytext=(5, 4), textcoords="offset points", fontsize=7)
    name_axes(axes, "coordinate 1", "coordinate 2")
    axes.set_aspect("equal", adjustable="datalim")
    set_heading(axes, "Map of the networks", "multidimensional scaling of their distances")
    return figure


def spectra_figure(data: ComparisonPageData, order: str = "support") -> Figure:
    """Draw the tri-Haar coefficients of all networks, medians and ranges over windows (OA figure 6)."""
    figure, axes = new_axes(6.0, 3.8)
    top = 0.0
    for place, source in enumerate(data.sources):
        sizes = {name: np.array(values) for name, values in source.spectrum[order].items()}
        x, color = np.arange(1, len(sizes["median"]) + 1), COLORS[place % len(COLORS)]
        axes.fill_between(x, sizes["low"], sizes["high"], color=color, alpha=0.15, lw=0)
        axes.plot(x, sizes["median"], color=color, lw=1.2, label=source.label)
        top = max(top, float(sizes["high"].max()))
    axes.set_yscale("log")
    # Coefficients that happen to vanish would stretch the axis over ten decades.
    axes.set_ylim(1e-4 * (top or 1.0), 1.5 * (top or 1.0))
    axes.legend(fontsize=7, frameon=False)
    name_axes(axes, f"tri-Haar wavelet, largest {order} first", "size of the coefficient")
    set_heading(axes, "Tri-Haar spectra", "medians and ranges over windows")
    return figure
