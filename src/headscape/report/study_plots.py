"""``study.plot``: one call a picture, on matplotlib axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.report.geometry_figures import draw_diffusion_map, draw_tree
from headscape.report.style import DIVERGING, SEQUENTIAL, label_points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from headscape.geometry.head_geometry import HeadGeometry
    from headscape.geometry.organization import Organization

CATEGORIES = 10


class _Study(Protocol):
    """What the pictures need of a study."""

    @property
    def heads(self) -> pd.DataFrame: ...
    @property
    def organizations(self) -> tuple[Organization, ...]: ...
    @property
    def data(self) -> Any: ...
    @property
    def head_geometry(self) -> HeadGeometry: ...
    def __getitem__(self, stage: str) -> Any: ...
    def attention(
        self, layer: int, head: int, window: int = 0, *, organized: bool = False, field: str | None = None
    ) -> NDArray[Any]: ...


class StudyPlots:
    """Pictures of a study; each returns the matplotlib axes that it drew on, new ones unless ``ax`` is given.

    ``color`` is a column of ``study.heads``, "layer" or "head". Columns of words are drawn with a legend.
    """

    def __init__(self, study: _Study) -> None:
        self._study = study

    def map(self, color: str = "layer", *, ax: Axes | None = None) -> Axes:
        """Draw the diffusion map of the heads."""
        axes = _axes(ax, 6.2, 5.0)
        coordinates = self._study.head_geometry.diffusion_map(n_components=2)
        values, labels = self._values(color), self._labels()
        if values.dtype.kind in "fiub":
            points = draw_diffusion_map(axes, coordinates, values, labels)
            _colorbar(axes, points, color)
        else:
            draw_diffusion_map(axes, coordinates, _by_category(axes, values, color), labels)
        axes.set_title("Diffusion map of the heads", loc="left", fontsize=10)
        return axes

    def tree(self, color: str = "layer", *, ax: Axes | None = None) -> Axes:
        """Draw the tree of the heads; a folder has the mean color of its heads."""
        values = self._values(color)
        if values.dtype.kind not in "fiub":
            raise InputError(f"the tree is colored by numbers, but {color!r} has words: use study.plot.map.")
        tree, axes = self._study.head_geometry.tree, _axes(ax, 9.0, 4.2)
        support = self._study["folders"].support
        points = draw_tree(axes, tree, values.astype(float), self._labels(), support)
        _colorbar(axes, points, color)
        axes.set_title("Tree of the heads", loc="left", fontsize=10)
        return axes

    def _labels(self) -> list[str]:
        return [f"{layer}.{head}" for layer, head in self._study.data.heads]

    def head(
        self,
        layer: int,
        head: int,
        *,
        window: int = 0,
        organized: bool = False,
        field: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw a field of one head, queries down, keys to the right; without a sign the colors follow the cube root."""
        from matplotlib.colors import CenteredNorm, Normalize, PowerNorm

        values = self._study.attention(layer, head, window, organized=organized, field=field)
        data = self._study.data
        names = {"query": list(data.tokens(window)), "key": list(data.key_tokens(window))}
        if organized:
            order = self._study.organizations[window].order
            names = {axis: [found[i] for i in order[axis]] if found else [] for axis, found in names.items()}
        limit = float(np.quantile(np.abs(values), 0.995)) or 1.0
        signed = float(values.min()) < 0
        norm: Normalize = CenteredNorm(halfrange=limit) if signed else PowerNorm(1 / 3, vmin=0)
        axes = _axes(ax, 5.6, 5.0)
        cmap = DIVERGING if signed else SEQUENTIAL
        image = axes.imshow(values, cmap=cmap, norm=norm, interpolation="nearest", aspect="auto")
        _colorbar(axes, image, field or "attention")
        for axis, words, rotate in ((axes.yaxis, names["query"], False), (axes.xaxis, names["key"], True)):
            if words:
                label_points(axis, words, rotate=rotate)
        axes.set_xlabel("key", fontsize=8)
        axes.set_ylabel("query", fontsize=8)
        order_words = ", organized" if organized else ""
        axes.set_title(f"Head {layer}.{head}, window {window + 1}{order_words}", loc="left", fontsize=10)
        return axes

    def entropy(self, *, ax: Axes | None = None) -> Axes:
        """Draw the Haar entropy of every head by layer, the mean over windows."""
        values = self._values("haar_entropy")
        axes = _axes(ax, 6.2, 4.0)
        layers = self._values("layer")
        points = axes.scatter(layers, values, c=self._values("head"), cmap=SEQUENTIAL, s=14)
        _colorbar(axes, points, "head")
        axes.set_xlabel("layer", fontsize=8)
        axes.set_ylabel("Haar entropy", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_title("Haar entropy of the heads", loc="left", fontsize=10)
        return axes

    def __repr__(self) -> str:
        return "StudyPlots(map, tree, head, entropy)"

    def _values(self, color: str) -> NDArray[Any]:
        """Return a column of the head table, or one of its index."""
        table = self._study.heads
        if color in table.index.names:
            return np.asarray(table.index.get_level_values(color))
        if color not in table:
            stage = ' Run the analysis with the stage "entropy".' if color == "haar_entropy" else ""
            raise InputError(
                f"color must be layer, head or a column of study.heads ({', '.join(map(str, table))}), but is "
                f"{color!r}.{stage}"
            )
        return table[color].to_numpy()


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or new ones of a figure that notebooks show."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def _colorbar(axes: Axes, drawn: Any, label: str) -> None:
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(drawn, ax=axes, label=label, shrink=0.8)


def _by_category(axes: Axes, values: NDArray[Any], title: str) -> list[Any]:
    """Return a color per value and add the legend; the most frequent get their own, all others gray."""
    import matplotlib as mpl

    words = [str(value) for value in values]
    known = sorted(set(words), key=lambda word: (-words.count(word), word))
    palette = mpl.colormaps["tab10"]
    color = {word: palette(i) if i < CATEGORIES else (0.7, 0.7, 0.7, 1.0) for i, word in enumerate(known)}
    for i, word in enumerate(known[: CATEGORIES + 1]):
        label = word if i < CATEGORIES else f"{len(known) - CATEGORIES} others"
        axes.scatter([], [], color=[color[word]], label=label.replace("$", r"\$"))
    axes.legend(title=title, fontsize=6, title_fontsize=7, loc="best")
    return [color[word] for word in words]
