"""Pictures of softmax and its paraproduct (OA figures 1 and 2), and of the claim over all heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from headscape.analysis.paraproduct import Paraproduct
from headscape.analysis.softmax_experiment import SoftmaxExperiment
from headscape.analysis.softmax_invariance import SoftmaxInvariance
from headscape.report.geometry_figures import draw_pair
from headscape.report.haar_figures import entropy_map_figure
from headscape.report.style import (
    ACCENT,
    QUIET,
    SEQUENTIAL,
    name_axes,
    name_point,
    new_axes,
    new_figure,
    set_heading,
)

if TYPE_CHECKING:
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
    came = {"logits as they came": logits, "logits organized": organized(logits)}
    draw_pair(figure, panels[:2], came, logits)
    approximation = organized(np.where(seen, complete.approximation, np.nan))
    draw_pair(figure, panels[2:], {"paraproduct": approximation, "softmax": softmax}, softmax)
    residuals = f"{complete.relative_residual:.2f}, shuffled {experiment.residual_shuffled:.2f}"
    set_heading(panels[2], "paraproduct", f"relative residual {residuals}", size=9)
    explained = f"the invariant form explains {100 * experiment.share_explained:.1f} %"
    set_heading(panels[3], "softmax", explained, size=9)
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
        name_axes(axes, "key level", "query level")
    if image is not None:
        figure.colorbar(image, ax=figure.axes, shrink=0.8, label="log10 of the root mean square")
    figure.suptitle(f"{title}: what every pair of levels gives".strip(": "), x=0.01, ha="left", fontsize=10)
    return figure


def claim_figure(study: SoftmaxInvariance) -> Figure:
    """Draw the share explained by the invariant form against the size of the mixed differences, head by head."""
    figure, axes = new_axes(5.8, 4.2)
    size, share = study.of_heads("mixed_size"), 100 * study.of_heads("share_explained")
    layer = [layer for layer, _ in study.heads]
    points = axes.scatter(size, share, c=layer, cmap=SEQUENTIAL, s=14)
    for place in np.argsort(-np.nan_to_num(share))[:5]:
        name = f"{study.heads[place][0]}.{study.heads[place][1]}"
        name_point(axes, name, (size[place], share[place]))
    if np.nanmax(size) > 10 * np.nanmin(size) > 0:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    name_axes(axes, "size of the mixed differences of the logits", "share of softmax explained, %")
    found = f"rank correlation {study.correlation}"
    remark = "too few heads for a rank correlation" if np.isnan(study.correlation.estimate) else found
    question = "Does the invariant form fit better where mixed differences are large?"
    set_heading(axes, question, remark, size=9)
    figure.colorbar(points, ax=axes, label="layer", shrink=0.8)
    return figure


def orders_figure(study: SoftmaxInvariance) -> Figure:
    """Draw the residual in organized against shuffled order, head by head."""
    figure, axes = new_axes(4.8, 4.4)
    organized, shuffled = study.of_heads("residual"), study.of_heads("residual_shuffled")
    axes.scatter(shuffled, organized, s=12, color=ACCENT, alpha=0.7)
    ends = [float(np.nanmin([organized, shuffled])), float(np.nanmax([organized, shuffled]))]
    axes.plot(ends, ends, color=QUIET, lw=0.8)
    name_axes(axes, "relative residual, shuffled points", "relative residual, organized points")
    better = int((organized < shuffled).sum())
    remark = f"below the line: organized is better ({better} of {len(organized)} heads)"
    set_heading(axes, "What the organization is worth", remark, size=9)
    return figure
