"""Pictures of an ablation study: what it costs to switch heads off, in the order of every ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headscape.ablation.ablation_result import BAND, AblationStudy
from headscape.ablation.curves import REPAIRED, is_random
from headscape.report.style import QUIET, name_axes, new_axes, set_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

COLORS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be185d", "#111827", "#8b5e3c")
CROWD = 5
"""With more curves than these, intervals are drawn fainter: they lie over each other."""


def ablation_figures(study: AblationStudy) -> dict[str, Figure]:
    """Return the figures of a study by name."""
    figures = {"ablation": ablation_figure(study)}
    if study.intact_accuracy is not None:
        figures["ablation_accuracy"] = accuracy_figure(study)
    return figures


def ablation_figure(study: AblationStudy) -> Figure:
    """Draw the increase of the loss over the number of heads off, with intervals, random orders as a band."""
    figure, axes = new_axes(7.6, 4.8)
    faint = 0.12 if len(study.methods) <= CROWD else 0.05
    for method, color in method_colors(study.methods).items():
        found = [study.interval(method, count) for count in study.counts]
        low, high = [i.low for i in found], [i.high for i in found]  # NaN, where there is none, draws nothing
        alpha = _shade(method) if is_random(method) else faint
        axes.fill_between(study.counts, low, high, color=color, alpha=alpha, lw=0)
        _curve(axes, study.counts, [i.estimate for i in found], method, color)
    # The best rankings cost hundredths where the worst cost units: a linear scale would hide them.
    axes.set_yscale("symlog", linthresh=0.01, linscale=0.4)
    axes.axhline(0, color=QUIET, lw=0.5)
    _frame(axes, study, f"increase of the loss ({study.loss})")
    remark = f"{len(study.intact)} windows held out, 95 % intervals{_band(study)}"
    set_heading(axes, "What it costs to switch heads off", f"{remark}; intact {study.intact.mean():.3g}")
    return figure


def accuracy_figure(study: AblationStudy) -> Figure:
    """Draw the share of right answers over the number of heads off."""
    assert study.intact_accuracy is not None
    figure, axes = new_axes(7.6, 4.4)
    intact, counts = float(study.intact_accuracy.mean()), (0, *study.counts)
    for method, color in method_colors(study.methods).items():
        accuracy = study.curves[method].accuracy
        assert accuracy is not None
        means = np.pad(accuracy.mean(axis=2), ((0, 0), (1, 0)), constant_values=intact)
        if len(means) > 1:
            low, high = np.quantile(means, BAND, axis=0)
            axes.fill_between(counts, low, high, color=color, alpha=_shade(method), lw=0)
        _curve(axes, counts, means.mean(axis=0), method, color)
    axes.axhline(intact, color=QUIET, lw=0.5)
    axes.yaxis.set_major_formatter("{x:.0%}")
    _frame(axes, study, "share of right answers")
    remark = f"{len(study.intact)} windows held out{_band(study)}; intact {intact:.1%}"
    set_heading(axes, "Accuracy with heads switched off", remark)
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


def _curve(axes: Axes, counts: Sequence[int], values: ArrayLike, method: str, color: str) -> None:
    line, marker = "--" if method.endswith(REPAIRED) else "-", "" if is_random(method) else "o"
    axes.plot(counts, values, line, marker=marker, ms=3, color=color, lw=1.4, label=method)


def _frame(axes: Axes, study: AblationStudy, what: str) -> None:
    name_axes(axes, f"heads switched off, of {study.n_heads}", what)
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=7, frameon=False, handlelength=3.2, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _band(study: AblationStudy) -> str:
    draws = max((len(curve.losses) for curve in study.curves.values()), default=1)
    return f"; random: middle {100 * (BAND[1] - BAND[0]):.0f} % of {draws} orders" if draws > 1 else ""


def _shade(method: str) -> float:
    """Return how dark a band of random orders is: lighter after repair, to tell the two apart."""
    return 0.12 if method.endswith(REPAIRED) else 0.25
