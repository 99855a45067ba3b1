"""The stage "ablation": what rankings of the heads are worth on this model, tested by switching heads off.

It evaluates the model dozens of times, so it runs only when asked for. The rankings are calibrated on the first half
of the text and judged on the second.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.ablation.ablation_result import AblationStudy
from headscape.ablation.ablation_study import DRAWS, SHARES, ablation_study, curve_labels
from headscape.ablation.curves import REPAIRED, is_random
from headscape.errors import InputError
from headscape.output import json_ready
from headscape.report.ablation_figures import ablation_figures, method_colors
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size, ablation_seconds
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, NotApplicableError, Option, Outcome, Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study

METHODS = ("haar", "gradient", "reconstruction", "reconstruction+repair", "random")


class Ablation(Stage):
    """Switches heads off in the order of several rankings, and measures the loss on windows held out."""

    name, title, doing, unit, cost = "ablation", "Ablation", "switching heads off", "model", 0.0
    by_default = False
    columns = (
        Column("place_haar", "haar place", "Place in the order of removal by Haar entropy, 0 goes first."),
        Column(
            "place_gradient",
            "gradient place",
            "Place in the order of removal by the gradient of the gates, 0 goes first.",
            direction="the loss depends on it",
            panel=True,
        ),
        Column(
            "place_reconstruction",
            "reconstruction place",
            "Place in the greedy order by what other heads cannot make up for, 0 goes first.",
            direction="other heads cannot replace it",
            panel=True,
        ),
    )
    options = (Option("methods", METHODS, "Rankings to test, as in headscape ablate.", many=True),)

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless every method is known."""
        curve_labels(options["methods"], repair=False)

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds, most of them evaluations of the model."""
        return ablation_seconds(size, options["methods"], len(SHARES), DRAWS)

    def measure(self, context: Context, piece: int) -> Result:
        """Return the curves of the ablation study."""
        if context.model is None:
            raise NotApplicableError("the model is not at hand, only what was captured from it")
        try:
            study = ablation_study(
                context.model,
                context.inputs,
                context.options[self.name]["methods"],
                length=context.parameters["length"],
                sample=context.parameters["sample"],
                stack=context.data.stack,
                seed=int(context.parameters["seed"]),
                out=None if context.folder is None else context.folder / "ablation",
                progress=context.progress,
            )
        except InputError as error:
            raise NotApplicableError(str(error)) from error
        return Result(study.arrays(), {"study": study.attributes()})

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the places of the heads in each ranking, and the verdicts."""
        study = AblationStudy.from_arrays(results[0].arrays, results[0].attributes["study"])
        columns: dict[str, Any] = {}
        for method, curve in study.curves.items():
            if not is_random(method) and not method.endswith(REPAIRED):
                places = {(int(layer), int(head)): i for i, (layer, head) in enumerate(curve.orders[0])}
                columns[f"place_{method}"] = [places.get(pair, np.nan) for pair in context.heads]
        best, *verdicts = study.findings
        findings = (Finding(best, Question.little), *verdicts)
        return Outcome(context.frame(columns), findings, study.warnings, detail=study)

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return the loss increase over the number of heads off."""
        return ablation_figures(study[self.name])

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return the curves, their verdicts, and the place of every head."""
        found: AblationStudy = study[self.name]
        colors = method_colors(found.methods)
        curves = [_curve(found, method, colors[method]) for method in found.methods]
        data = {
            "counts": list(found.counts),
            "heads": found.n_heads,
            "windows": len(found.intact),
            "loss": found.loss,
            "intact": float(found.intact.mean()),
            "curves": curves,
        }
        return (
            Section(self.name, "Ablation", data, page_file("ablation.html"), script=page_file("ablation.js")),
        )


def _curve(study: AblationStudy, method: str, color: str) -> dict[str, Any]:
    found = [study.interval(method, count) for count in study.counts]
    verdict = study.verdicts.get(method)
    order = [] if is_random(method) else study.curves[method].orders[0]
    return {
        "method": method,
        "color": color,
        "random": is_random(method),
        "repaired": method.endswith(REPAIRED),
        "increase": [i.estimate for i in found],
        "low": json_ready([i.low for i in found]),
        "high": json_ready([i.high for i in found]),
        "verdict": "" if verdict is None else verdict.word,
        "difference": None if verdict is None else str(verdict.difference),
        "order": [f"{layer}.{head}" for layer, head in order],
    }
