"""The stage "softmax": how well the paraproduct and its invariant form describe softmax (OA corollary 1).

It organizes every head for itself, more than a second a head, so it runs only when asked for.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.analysis.head_logits import LogitSource
from headscape.analysis.softmax_experiment import softmax_experiment
from headscape.analysis.softmax_invariance import SoftmaxInvariance, softmax_invariance
from headscape.geometry.questionnaire import MAX_ITERATIONS
from headscape.output import json_ready
from headscape.report.section import Chart, Section
from headscape.report.softmax_figures import softmax_figures
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, Option, Outcome, Stage, require_one_of
from headscape.tensor.checks import MAX_DRAWS, MAX_WINDOWS, require_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study

MEASURES = {
    "softmax_residual": "residual",
    "softmax_share_explained": "share_explained",
    "softmax_mixed_size": "mixed_size",
}


class Softmax(Stage):
    """Compares the softmax of every head in the first windows with its paraproduct, layer by layer."""

    name, title, doing, unit, cost = "softmax", "Softmax", "testing softmax invariance", "layer", 360.0
    by_default = False
    columns = (
        Column(
            "softmax_residual",
            "paraproduct residual",
            "Relative residual of the complete paraproduct of softmax, organized.",
            direction="not described by its paraproduct",
            panel=True,
        ),
        Column(
            "softmax_share_explained",
            "softmax explained",
            "Share of softmax that the invariant form explains (OA corollary 1).",
            panel=True,
        ),
        Column("softmax_mixed_size", "mixed size", "Size of the mixed differences of the logits."),
    )
    options = (
        Option("softmax_windows", 1, "How many windows."),
        Option("softmax_n_iter", 10, "Iterations of the questionnaire of every head."),
        Option(
            "masked", "fill", "Masked entries: fill with the row's mean, or block: the fully visible block."
        ),
        Option("causal", False, "Tensors of logits or energies are of a causal model."),
        Option("draws", 3, "Shuffles that the organized order is compared with."),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless the counts are within their bounds, and masked and causal are known words."""
        require_integer(options["softmax_windows"], "softmax_windows", 1, MAX_WINDOWS)
        require_integer(options["softmax_n_iter"], "softmax_n_iter", 1, MAX_ITERATIONS)
        require_integer(options["draws"], "draws", 1, MAX_DRAWS)
        require_one_of(options["masked"], "masked", ("fill", "block"))
        require_one_of(options["causal"], "causal", (True, False))

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds of a layer: every head of every window is organized for itself."""
        windows = min(options["softmax_windows"], size.windows)
        return float(super().seconds(size, options) / size.layers * windows * options["softmax_n_iter"] / 10)

    def measure(self, context: Context, piece: int) -> Result:
        """Return the measures of the heads of one layer, in the first windows."""
        options = context.options[self.name]
        heads = [pair for pair in context.heads if pair[0] == piece]
        found = [
            softmax_invariance(
                _source(context, window),
                heads=heads,
                visible="causal" if options["causal"] else None,
                masked=options["masked"],
                draws=options["draws"],
                seed=int(context.parameters["seed"]),
                n_iter=options["softmax_n_iter"],
                engine=context.engine,
                progress=context.progress,
            )
            for window in range(min(options["softmax_windows"], context.data.n_windows))
        ]
        measures = {name: np.concatenate([f.measures[name] for f in found]) for name in found[0].measures}
        return Result(measures, {"parameters": dict(found[0].parameters)})

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the residuals and shares as columns, and the verdict on the corollary."""
        names = results[0].arrays
        measures = {name: np.concatenate([r.arrays[name] for r in results], axis=1) for name in names}
        found = SoftmaxInvariance(context.heads, measures, results[0].attributes["parameters"])
        columns = {column: found.of_heads(name) for column, name in MEASURES.items()}
        return Outcome(
            context.frame(columns),
            (found.verdict,),
            found.warnings,
            detail=found,
            tables={"softmax_heads": found.to_frame()},
        )

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return the claim over all heads, and experiments of three heads, or of one."""
        found: SoftmaxInvariance = study[self.name]
        options = study.options[self.name]
        shown = found.examples() if head is None else (head,)
        experiments = {
            one.head: softmax_experiment(
                one.logits,
                visible=one.visible,
                sink=one.sink,
                masked=options["masked"],
                draws=options["draws"],
                seed=int(study.parameters["seed"]),
                n_iter=options["softmax_n_iter"],
            )
            for one in LogitSource(_source(study, 0), shown, "causal" if options["causal"] else None).window(
                0
            )
        }
        return {f"softmax_{name}": figure for name, figure in softmax_figures(found, experiments).items()}

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return the claim of the corollary, head by head."""
        found: SoftmaxInvariance = study[self.name]
        sizes, shares = found.of_heads("mixed_size"), 100 * found.of_heads("share_explained")
        trace = {
            "type": "scatter",
            "mode": "markers",
            "x": json_ready(sizes.tolist()),
            "y": json_ready(shares.tolist()),
        }
        layout = {
            "xaxis": {"title": {"text": "size of the mixed differences"}},
            "yaxis": {"title": {"text": "share of softmax explained, %"}},
        }
        chart = Chart("Softmax and its invariant form", (trace,), layout, tuple(range(len(found.heads))))
        return (Section(self.name, "Softmax", charts=(chart,), text=found.verdict),)


def _source(holder: "Context | Study", window: int) -> object:
    """Return one window as the analysis takes it: a capture, or a tensor."""
    one = holder.data.window(window)
    return one if hasattr(one, "records") else one.tensor(0)
