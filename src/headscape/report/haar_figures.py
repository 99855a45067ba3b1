"""Pictures of Haar coefficients and entropies (OA figures 4, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.entropy import CoarseCoefficients, coefficients_by_support
from headscape.analysis.entropy_study import EntropyStudy
from headscape.analysis.haar import haar_basis
from headscape.analysis.sparsity import ORDERS, SparsityCurves, sparsity_curves
from headscape.analysis.wavelets import wavelets
from headscape.errors import InputError
from headscape.geometry.partition_tree import PartitionTree
from headscape.report.style import (
    ACCENT,
    DIVERGING,
    QUIET,
    SEQUENTIAL,
    label_points,
    name_axes,
    new_axes,
    new_figure,
    set_heading,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ORDER_COLORS = {"organized": ACCENT, "original": "#1d4ed8", "shuffled": QUIET}


def entropy_figures(study: EntropyStudy, x: Any) -> dict[str, Figure]:
    """Return all figures of a study by name; x is the tensor of its first window."""
    array = np.asarray(x)
    trees = study.trees[0]
    pair = {axis: trees[axis] for axis in ("query", "key")}
    mean = study.entropies.mean(axis=0)
    low, high = int(np.argmin(mean)), int(np.argmax(mean))
    names = [f"{layer}.{head}" for layer, head in study.heads]
    k = study.parameters["k"]
    coefficients = coefficients_by_support(array[:, :, [low, high]], pair, k)
    return {
        "coefficients": coefficient_figure(
            coefficients, [f"lowest entropy: head {names[low]}", f"highest entropy: head {names[high]}"]
        ),
        "coefficients_network": coefficient_figure(
            coefficients_by_support(array, trees, min(100, array.size)), ["whole network"]
        ),
        "entropies": entropy_figure(study),
        "entropy_map": entropy_map_figure(
            mean, study.heads, f"Mean l{study.parameters['p']:g} entropy of the heads ({study.field})"
        ),
        "basis_head": basis_figure(trees["head"], names),
        "sparsity": sparsity_figure(sparsity_curves(array[:, :, high], pair), f"Head {names[high]}"),
    }


def coefficient_figure(coefficients: CoarseCoefficients, titles: Sequence[str]) -> Figure:
    """Draw coefficients in the order of decreasing support, one panel per column (OA figures 4 and 6)."""
    count = coefficients.values.shape[1]
    if len(titles) != count:
        raise InputError(f"titles must have one entry per column ({count}), but has {len(titles)}.")
    figure = new_figure(max(5.0, 4.5 * count), 3.4)
    place = np.arange(len(coefficients.supports))
    steps = np.flatnonzero(np.diff(coefficients.supports)) + 0.5
    for column, title in enumerate(titles):
        axes = figure.add_subplot(1, count, column + 1)
        if len(steps) <= 40:
            axes.vlines(steps, 0, 1, transform=axes.get_xaxis_transform(), color="#e5e7eb", lw=0.5)
        axes.vlines(place, 0, coefficients.values[:, column], color=ACCENT, lw=0.8)
        axes.axhline(0, color=QUIET, lw=0.5)
        # The constant is far larger than the rest and would flatten it.
        axes.set_yscale("symlog", linthresh=np.median(np.abs(coefficients.values[:, column])) or 1.0)
        name_axes(axes, "tensor wavelet, largest support first", "coefficient")
        first, last = int(coefficients.supports[0]), int(coefficients.supports[-1])
        set_heading(axes, title, f"{len(place)} coefficients, supports {first} to {last}")
    return figure


def entropy_figure(study: EntropyStudy, windows: int = 3) -> Figure:
    """Draw the entropies of all heads in the first windows, colored by layer (OA figure 5)."""
    count = min(windows, len(study.entropies))
    figure = new_figure(max(5.0, 3.6 * count), 3.6)
    layer = np.array([layer for layer, _ in study.heads])
    place = np.arange(len(layer))
    for window, axes in enumerate(figure.subplots(1, count, sharey=True, squeeze=False)[0]):
        points = axes.scatter(place, study.entropies[window], c=layer, cmap=SEQUENTIAL, s=9)
        remark = f"{int(study.used[window])} wavelets; network entropy {study.network[window]:.4g}"
        set_heading(axes, f"Window {window}", remark)
        name_axes(axes, "head, layer-major", "Haar entropy" if window == 0 else "")
    figure.colorbar(points, ax=figure.axes, label="layer", shrink=0.8)
    return figure


def entropy_map_figure(
    values: NDArray[np.float64], heads: Sequence[tuple[int, int]], title: str, label: str = "entropy"
) -> Figure:
    """Draw one value per head on the grid layer x head; places without a head stay empty."""
    grid = pd.Series(values, index=pd.MultiIndex.from_tuples(list(heads))).unstack()
    figure, axes = new_axes(2.6 + 0.3 * len(grid.columns), 2.0 + 0.18 * len(grid))
    image = axes.imshow(grid, cmap=SEQUENTIAL, aspect="auto", interpolation="nearest")
    label_points(axes.xaxis, list(map(str, grid.columns)))
    label_points(axes.yaxis, list(map(str, grid.index)))
    axes.set_xlabel("head", fontsize=8)
    axes.set_ylabel("layer", fontsize=8)
    axes.set_title(title, loc="left", fontsize=9)
    figure.colorbar(image, ax=axes, label=label, shrink=0.8)
    return figure


def basis_figure(tree: PartitionTree, names: Sequence[str] | None = None) -> Figure:
    """Draw the Haar basis vectors of a tree, points in leaf order (OA figures 4c and 4f)."""
    basis = haar_basis(tree)[tree.order]
    figure, axes = new_axes(6.0, 5.2)
    largest = float(np.abs(basis).max())
    # The fine vectors are tall and narrow, the coarse ones flat: the root shows both.
    shown = np.sign(basis) * np.sqrt(np.abs(basis) / largest)
    image = axes.imshow(shown.T, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    if names is not None:
        label_points(axes.xaxis, [names[point] for point in tree.order], rotate=True)
    axes.set_xlabel("point, in tree order", fontsize=8)
    axes.set_ylabel("basis vector, coarse to fine", fontsize=8)
    axes.tick_params(axis="y", labelsize=6)
    levels = int(wavelets(tree).level.max()) + 1
    remark = f"{tree.n_points} vectors on {levels} levels; colors show signed roots of the values"
    set_heading(axes, "Haar basis vectors of the tree", remark)
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def sparsity_figure(curves: SparsityCurves, title: str = "") -> Figure:
    """Draw the energy that the largest coefficients leave out, for the three orders of the points."""
    figure, axes = new_axes(5.6, 4.0)
    needed = curves.needed((0.99,))
    for order in ORDERS:
        curve = getattr(curves, order)
        missing = np.maximum(1 - curve, 1e-12)
        text = f"{order}: {needed[order][0]} for 99 %"
        axes.plot(np.arange(len(curve)), missing, color=_ORDER_COLORS[order], lw=1.3, label=text)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 1.3)
    name_axes(axes, "number of largest coefficients kept", "share of energy left out")
    axes.legend(fontsize=7, frameon=False)
    axes.set_title(f"Sparsity. {title}".strip(), loc="left", fontsize=10)
    return figure
