"""Pictures of softmax and its paraproduct (OA figures 1 and 2), and of the claim over all heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.paraproduct import Paraproduct
from headscape.analysis.softmax_experiment import SoftmaxExperiment
from headscape.analysis.softmax_invariance import SoftmaxInvariance
from headscape.report.haar_figures import entropy_map_figure
from headscape.report.style import ACCENT, QUIET, SEQUENTIAL, new_figure, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMALLEST = 1e-12


def softmax_figures(
    study: SoftmaxInvariance, experiments: Mapping[tuple[int, int], SoftmaxExperiment]
) -> dict[str, Figure]:
    """Return all figures by name: those of the network, and two for every head in ``experiments``."""
    figures: dict[str, Figure] = {}
    if len(study.heads) > 1:
        figures = {
            "claim": claim_figure(study),
            "orders": orders_figure(study),
            "residual_map": entropy_map_figure(
                study.of_heads("residual"), study.heads, "Relative residual of the paraproduct", "residual"
            ),
        }
    for (layer, head), experiment in experiments.items():
        figures[f"head_{layer}_{head}"] = experiment_figure(experiment, f"Head {layer}.{head}")
        figures[f"levels_{layer}_{head}"] = levels_figure(experiment.complete, f"Head {layer}.{head}")
    return figures


def experiment_figure(experiment: SoftmaxExperiment, title: str = "") -> Figure:
    """Draw a head as it came and organized, and its paraproduct beside its softmax (OA figures 1 and 2)."""
    complete = experiment.complete
    seen = complete.scored
    logits = np.where(seen, experiment.logits, np.nan)
    organized = experiment.organized
    softmax = organized(np.where(seen, experiment.softmax, np.nan))
    figure = new_figure(9.0, 8.4)
    panels = [figure.add_subplot(2, 2, place + 1) for place in range(4)]
    _draw_pair(
        figure, panels[:2], {"logits as they came": logits, "logits organized": organized(logits)}, logits
    )
    approximation = organized(np.where(seen, complete.approximation, np.nan))
    _draw_pair(figure, panels[2:], {"paraproduct": approximation, "softmax": softmax}, softmax)
    note(
        panels[2],
        f"relative residual {complete.relative_residual:.2f}, shuffled {experiment.residual_shuffled:.2f}",
    )
    note(panels[3], f"the invariant form explains {100 * experiment.share_explained:.1f} %")
    queries, keys = experiment.logits.shape
    figure.suptitle(f"{title} ({queries} queries x {keys} keys)".strip(), x=0.01, ha="left", fontsize=10)
    return figure


def levels_figure(found: Paraproduct, title: str = "") -> Figure:
    """Draw the size of the term and of the local residual at every pair of levels."""
    figure = new_figure(8.6, 3.9)
    shown = {"term": found.contributions, "local residual": found.local_residuals}
    top = max((float(values.max()) for values in shown.values() if values.size), default=0.0)
    floor = max(top * 1e-4, _SMALLEST)
    image = None
    for place, (name, values) in enumerate(shown.items()):
        axes = figure.add_subplot(1, 2, place + 1)
        if values.size:
            logs = np.log10(np.maximum(values, floor))
            image = axes.imshow(
                logs, cmap=SEQUENTIAL, vmin=np.log10(floor), vmax=np.log10(max(top, floor)) + 1e-9
            )
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel("key level", fontsize=8)
        axes.set_ylabel("query level", fontsize=8)
        axes.tick_params(labelsize=6)
    if image is not None:
        figure.colorbar(image, ax=figure.axes, shrink=0.8, label="log10 of the root mean square")
    figure.suptitle(f"{title}: what every pair of levels gives".strip(": "), x=0.01, ha="left", fontsize=10)
    return figure


def claim_figure(study: SoftmaxInvariance) -> Figure:
    """Draw the share explained by the invariant form against the size of the mixed differences, head by head."""
    figure = new_figure(5.8, 4.2)
    axes = figure.add_subplot()
    size, share = study.of_heads("mixed_size"), 100 * study.of_heads("share_explained")
    layer = [layer for layer, _ in study.heads]
    points = axes.scatter(size, share, c=layer, cmap=SEQUENTIAL, s=14)
    for place in np.argsort(-np.nan_to_num(share))[:5]:
        name = f"{study.heads[place][0]}.{study.heads[place][1]}"
        axes.annotate(
            name,
            (size[place], share[place]),
            xytext=(4, 2),
            textcoords="offset points",
            fontsize=6,
            color=ACCENT,
        )
    if np.nanmax(size) > 10 * np.nanmin(size) > 0:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("size of the mixed differences of the logits", fontsize=8)
    axes.set_ylabel("share of softmax explained, %", fontsize=8)
    axes.tick_params(labelsize=6)
    axes.set_title(
        "Does the invariant form fit better where mixed differences are large?",
        loc="left",
        fontsize=9,
        pad=16,
    )
    found = study.correlation
    note(
        axes,
        "too few heads for a rank correlation" if np.isnan(found.estimate) else f"rank correlation {found}",
    )
    figure.colorbar(points, ax=axes, label="layer", shrink=0.8)
    return figure


def orders_figure(study: SoftmaxInvariance) -> Figure:
    """Draw the residual in organized against shuffled order, head by head."""
    figure = new_figure(4.8, 4.4)
    axes = figure.add_subplot()
    organized, shuffled = study.of_heads("residual"), study.of_heads("residual_shuffled")
    axes.scatter(shuffled, organized, s=12, color=ACCENT, alpha=0.7)
    ends = [float(np.nanmin([organized, shuffled])), float(np.nanmax([organized, shuffled]))]
    axes.plot(ends, ends, color=QUIET, lw=0.8)
    axes.set_xlabel("relative residual, shuffled points", fontsize=8)
    axes.set_ylabel("relative residual, organized points", fontsize=8)
    axes.tick_params(labelsize=6)
    axes.set_title("What the organization is worth", loc="left", fontsize=9, pad=16)
    better = int((organized < shuffled).sum())
    note(axes, f"below the line: organized is better ({better} of {len(organized)} heads)")
    return figure


def _draw_pair(
    figure: Figure, panels: list[Axes], matrices: Mapping[str, NDArray[Any]], scale: NDArray[Any]
) -> None:
    """Draw two matrices with one scale of colors, from the quantiles of ``scale``; NaN stays white."""
    # A few extreme entries (a sink) would leave the rest in one color.
    low, high = np.nanquantile(scale, [0.01, 0.99])
    span = {"vmin": low, "vmax": high} if high > low else {}
    image = None
    for axes, (name, matrix) in zip(panels, matrices.items(), strict=True):
        image = axes.imshow(matrix, cmap=SEQUENTIAL, aspect="auto", interpolation="nearest", **span)
        axes.set_title(name, loc="left", fontsize=9, pad=16)
        axes.set_xlabel("key", fontsize=8)
        axes.set_ylabel("query", fontsize=8)
        axes.tick_params(labelsize=6)
    assert image is not None
    figure.colorbar(image, ax=panels, shrink=0.8)
