"""Pictures of an ablation study: what it costs to switch heads off, in the order of every ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscape.pruning.ablation_result import REPAIRED, AblationStudy, is_random
from headscape.report.style import QUIET, new_figure, note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be185d", "#4d7c0f", "#475569")


def ablation_figures(study: AblationStudy) -> dict[str, Figure]:
    """Return the figures of a study by name."""
    figures = {"ablation": ablation_figure(study)}
    if study.intact_accuracy is not None:
        figures["ablation_accuracy"] = accuracy_figure(study)
    return figures


def ablation_figure(study: AblationStudy) -> Figure:
    """Draw the increase of the loss over the number of heads off, with intervals, random orders as a band."""
    figure = new_figure(7.6, 4.8)
    axes = figure.add_subplot()
    for method, color in method_colors(study.methods).items():
        found = [study.interval(method, count) for count in study.counts]
        low, high = [i.low for i in found], [i.high for i in found]
        line = "--" if method.endswith(REPAIRED) else "-"
        axes.fill_between(
            study.counts, low, high, color=color, alpha=0.25 if is_random(method) else 0.12, lw=0
        )
        marker = "" if is_random(method) else "o"
        axes.plot(
            study.counts,
            [i.estimate for i in found],
            line,
            marker=marker,
            ms=3,
            color=color,
            lw=1.4,
            label=method,
        )
    # The best rankings cost hundredths where the worst cost units: a linear scale would hide them.
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_xlabel(f"heads switched off, of {study.n_heads}", fontsize=8)
    axes.set_ylabel(f"increase of the loss ({study.loss})", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.axhline(0, color=QUIET, lw=0.5)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title("What it costs to switch heads off", loc="left", fontsize=10, pad=16)
    draws = max((len(c.losses) for c in study.curves.values()), default=1)
    band = f"; random: middle 90 % of {draws} orders" if draws > 1 else ""
    note(
        axes, f"{len(study.intact)} windows held out, 95 % intervals{band}; intact {study.intact.mean():.3g}"
    )
    return figure


def accuracy_figure(study: AblationStudy) -> Figure:
    """Draw the share of right answers over the number of heads off."""
    assert study.intact_accuracy is not None
    figure = new_figure(7.6, 4.4)
    axes = figure.add_subplot()
    intact = float(study.intact_accuracy.mean())
    for method, color in method_colors(study.methods).items():
        accuracy = study.curves[method].accuracy
        assert accuracy is not None
        means = accuracy.mean(axis=2)
        if len(means) > 1:
            axes.fill_between(
                study.counts, *np.quantile(means, [0.05, 0.95], axis=0), color=color, alpha=0.25, lw=0
            )
        line = "--" if method.endswith(REPAIRED) else "-"
        axes.plot([0, *study.counts], [intact, *means.mean(axis=0)], line, color=color, lw=1.4, label=method)
    axes.set_xlabel(f"heads switched off, of {study.n_heads}", fontsize=8)
    axes.set_ylabel("share of right answers", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title("Accuracy with heads switched off", loc="left", fontsize=10, pad=16)
    note(axes, f"{len(study.intact)} windows held out; intact {intact:.1%}")
    return figure


def method_colors(methods: tuple[str, ...]) -> dict[str, str]:
    """Return a color per curve: gray for random orders, one for a ranking and the same repaired."""
    bases = list(dict.fromkeys(m.removesuffix(REPAIRED) for m in methods if not is_random(m)))
    return {
        method: QUIET
        if is_random(method)
        else COLORS[bases.index(method.removesuffix(REPAIRED)) % len(COLORS)]
        for method in methods
    }
