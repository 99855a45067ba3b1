"""Pictures of an organization: affinity, tree, diffusion map, a matrix before and after (OA figures 1 and 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import PartitionTree
from headscape.report.style import (
    SEQUENTIAL,
    label_points,
    name_axes,
    name_point,
    new_axes,
    new_figure,
    set_heading,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLURALS = {"query": "queries", "key": "keys", "head": "heads"}
FADED = 0.15
"""Opacity of a folder that never comes back."""


def organization_figures(x: Any, organization: Organization, head: int | None = None) -> dict[str, Figure]:
    """Return all figures of an organization by name, ready to be saved."""
    of_heads = head_figures(organization) if "head" in organization.axes else {}
    return {**of_heads, **token_figures(x, organization, head)}


def head_figures(organization: Organization, support: NDArray[np.float64] | None = None) -> dict[str, Figure]:
    """Return affinity, tree and diffusion maps of the heads; folders of little support are faded."""
    return {
        "affinity_head": affinity_figure(organization, "head"),
        "tree_head": tree_figure(organization, "head", support),
        "diffusion_map_head_2d": diffusion_figure(organization, "head", dimensions=2),
        "diffusion_map_head_3d": diffusion_figure(organization, "head", dimensions=3),
    }


def token_figures(x: Any, organization: Organization, head: int | None = None) -> dict[str, Figure]:
    """Return affinities and trees of queries and keys, and a head before and after."""
    array = np.asarray(x)
    if "head" in organization.axes and head is None:
        head = _typical_head(array)
    figures: dict[str, Figure] = {}
    for axis in ("query", "key"):
        figures[f"affinity_{axis}"] = affinity_figure(organization, axis)
        figures[f"tree_{axis}"] = tree_figure(organization, axis)
    figures["matrix_before_after"] = matrix_figure(array, organization, head)
    return figures


def affinity_figure(organization: Organization, axis: str = "head") -> Figure:
    """Draw the affinity of an axis in tree order (OA figure 3b)."""
    tree = organization.trees[axis]
    order = tree.order
    affinity = organization.affinities[axis][np.ix_(order, order)]
    figure, axes = new_axes(5.6, 5.0)
    image = axes.imshow(affinity, cmap=SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest")
    names = [organization.labels(axis)[p] for p in order]
    label_points(axes.xaxis, names, rotate=True)
    label_points(axes.yaxis, names)
    for cut in tree.folders.start[tree.folders.parent == 0][1:]:
        axes.axhline(cut - 0.5, color="white", lw=0.6)
        axes.axvline(cut - 0.5, color="white", lw=0.6)
    remark = "white lines: the first level of the tree"
    set_heading(axes, f"Affinity of the {_PLURALS[axis]}, in tree order", remark)
    figure.colorbar(image, ax=axes, shrink=0.8, label="affinity")
    return figure


def tree_figure(
    organization: Organization, axis: str = "head", support: NDArray[np.float64] | None = None
) -> Figure:
    """Draw the tree of an axis; heads are colored by their layer (OA figure 3c).

    With the support of every distinct folder, folders of little support are faded.
    """
    tree = organization.trees[axis]
    figure, axes = new_axes(9.0, 4.2)
    value, meaning = _point_values(organization, axis)
    points = draw_tree(axes, tree, value, organization.labels(axis), support)
    figure.colorbar(points, ax=axes, label=meaning, shrink=0.8)
    fading = "" if support is None else "; pale: little support"
    remark = f"{tree.n_points} points, {tree.n_folders} folders, {tree.depth} levels; root at the top{fading}"
    set_heading(axes, f"Tree of the {_PLURALS[axis]}", remark)
    return figure


def draw_tree(
    axes: Axes,
    tree: PartitionTree,
    value: NDArray[np.float64],
    labels: Sequence[str],
    support: NDArray[np.float64] | None = None,
) -> Any:
    """Draw a tree, root at the top; every folder has the mean of its points' values, which sets its color."""
    from matplotlib.collections import LineCollection

    folders = tree.folders
    middle = (folders.start + folders.stop - 1) / 2
    height = tree.depth - 1 - folders.last_level
    child = np.arange(1, tree.n_folders)
    parent = folders.parent[1:]
    ends = [middle[parent], height[parent], middle[child], height[child]]
    segments = np.stack([np.stack(ends[:2], axis=1), np.stack(ends[2:], axis=1)], axis=1)
    axes.add_collection(LineCollection(list(segments), colors="#9ca3af", linewidths=0.7))
    shade = np.array([value[tree.folder(i)].mean() for i in range(tree.n_folders)])
    area = 6 + 60 * np.sqrt(folders.size / tree.n_points)
    faded: Any = 1.0 if support is None else np.maximum(support, FADED)
    points = axes.scatter(middle, height, c=shade, s=area, cmap=SEQUENTIAL, zorder=3, alpha=faded)
    label_points(axes.xaxis, [labels[p] for p in tree.order], rotate=True)
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    return points


def diffusion_figure(organization: Organization, axis: str = "head", dimensions: int = 2) -> Figure:
    """Draw the diffusion map of an axis in 2-D or 3-D (OA figure 3a)."""
    if dimensions not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3, but is {dimensions}.")
    coordinates = organization.diffusion_map(axis, n_components=dimensions)
    value, meaning = _point_values(organization, axis)
    figure = new_figure(6.2, 5.0)
    axes: Any = figure.add_subplot(projection="3d" if dimensions == 3 else None)
    points = draw_diffusion_map(axes, coordinates, value, organization.labels(axis))
    figure.colorbar(points, ax=axes, label=meaning, shrink=0.75)
    axes.set_title(f"Diffusion map of the {_PLURALS[axis]}", loc="left", fontsize=10)
    return figure


def draw_diffusion_map(
    axes: Any, coordinates: NDArray[np.float64], colors: Any, labels: Sequence[str]
) -> Any:
    """Draw points at their coordinates, 2 or 3 of them; in 2-D some that lie far apart are named."""
    cmap = None if isinstance(colors, list) else SEQUENTIAL  # a list has colors, an array has values
    points = axes.scatter(*coordinates.T, c=colors, cmap=cmap, s=22, edgecolors="white", linewidths=0.4)
    name_axes(axes, "coordinate 1", "coordinate 2")
    if coordinates.shape[1] == 3:
        axes.set_zlabel("coordinate 3", fontsize=8)
        return points
    for point in _far_apart(coordinates, count=10):
        name_point(axes, labels[point], coordinates[point])
    return points


def matrix_figure(x: Any, organization: Organization, head: int | None = None) -> Figure:
    """Draw a head (by its place on the head axis) as it came and in organized order (OA figure 1)."""
    array = np.asarray(x)
    if array.ndim == 3:
        head = 0 if head is None else head
        array = array[:, :, head]
    order = organization.order
    organized = array[np.ix_(order["query"], order["key"])]
    figure = new_figure(9.0, 4.4)
    panels = list(figure.subplots(1, 2))
    draw_pair(figure, panels, {"as it came": array, "organized": organized}, array, organization.field)
    name = "" if head is None else f"Head {organization.labels('head')[head]}: "
    figure.suptitle(f"{name}queries and keys before and after", x=0.01, ha="left", fontsize=10)
    return figure


def draw_pair(
    figure: Figure,
    panels: Sequence[Axes],
    matrices: Mapping[str, NDArray[Any]],
    scale: NDArray[Any],
    label: str = "",
) -> None:
    """Draw two matrices with one scale of colors, from the quantiles of ``scale``; NaN stays white."""
    # A few extreme entries (a sink) would leave the rest in one color.
    low, high = np.nanquantile(scale, [0.01, 0.99])
    span = {"vmin": low, "vmax": high} if high > low else {}
    for axes, (name, matrix) in zip(panels, matrices.items(), strict=True):
        image = axes.imshow(matrix, cmap=SEQUENTIAL, aspect="auto", interpolation="nearest", **span)
        axes.set_title(name, loc="left", fontsize=9)
        name_axes(axes, "key", "query")
    figure.colorbar(image, ax=panels, shrink=0.8, label=label)


def _point_values(organization: Organization, axis: str) -> tuple[NDArray[np.float64], str]:
    """Return what colors the points of an axis: the layer of heads, the position of tokens."""
    if axis == "head" and organization.heads:
        return np.array([layer for layer, _ in organization.heads], dtype=float), "layer"
    return np.arange(organization.trees[axis].n_points, dtype=float), "position"


def _typical_head(array: NDArray[Any]) -> int:
    """Pick the head with the median variance: neither the dullest nor the wildest."""
    variance = array.var(axis=(0, 1))
    return int(np.argsort(variance)[len(variance) // 2])


def _far_apart(coordinates: NDArray[np.float64], count: int) -> list[int]:
    """Choose points whose labels do not overlap: the outermost, then always the one farthest from all chosen."""
    center = np.median(coordinates, axis=0)
    chosen = [int(np.argmax(np.linalg.norm(coordinates - center, axis=1)))]
    gap = np.linalg.norm(coordinates - coordinates[chosen[0]], axis=1)
    while len(chosen) < count and gap.max() > 0:
        chosen.append(int(np.argmax(gap)))
        gap = np.minimum(gap, np.linalg.norm(coordinates - coordinates[chosen[-1]], axis=1))
    return chosen
