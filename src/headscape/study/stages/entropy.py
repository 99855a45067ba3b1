"""The stage "entropy": Haar entropies of the heads in every window, and whether their ranking is stable (OA 21)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.analysis.entropy import coefficients_by_support
from headscape.analysis.entropy_study import (
    EntropyStudy,
    WindowEntropies,
    study_of_windows,
    window_entropies,
)
from headscape.analysis.intervals import FEWEST_UNITS
from headscape.analysis.sensitivity import sensitivity
from headscape.analysis.supports import number_of_wavelets
from headscape.energy.statements import name_heads
from headscape.geometry.organization import organize
from headscape.report.haar_figures import entropy_figures
from headscape.report.pictures import float_text
from headscape.report.section import Section, page_file
from headscape.study.stages.context import Context
from headscape.study.stages.cost import ORGANIZING, Size
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, Option, Outcome, Stage, require_one_of
from headscape.tensor.checks import require_number
from headscape.tensor.network_tensor import FIELDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.study import Study

COEFFICIENTS = 192
RERUNS = 12
"""Organizations that the sensitivity takes."""
EXPONENTS, MAX_WAVELETS = (0.01, 16), 10**9


class Entropy(Stage):
    """Ranks the heads by the l_p entropy of their coarse Haar coefficients."""

    name, title, doing, cost, needs = "entropy", "Haar entropy", "measuring entropies", 0.1, ("geometry",)
    concurrent = True
    columns = (
        *Column(
            "haar_entropy",
            "Haar entropy",
            "Sum of the absolute coarse Haar coefficients of the head, mean over windows.",
            direction="much coarse structure",
            panel=True,
        ).with_bounds("low", "high"),
        *Column(
            "haar_rank",
            "Haar rank",
            "Mean rank of the Haar entropy over windows, 1 for the lowest.",
            panel=True,
        ).with_bounds("min", "max"),
        Column(
            "haar_bottom_count",
            "windows with low Haar entropy",
            "Number of windows in which the Haar entropy is among the lowest tenth.",
            panel=True,
        ),
        Column(
            "haar_top_count",
            "windows with high Haar entropy",
            "Number of windows in which the Haar entropy is among the highest tenth.",
        ),
    )
    options = (
        Option("k", 400, "How many wavelets of largest support, or a share of all such as 0.01."),
        Option("p", 1.0, "Exponent of the entropy."),
        Option(
            "fields",
            (),
            "Other fields of a capture to compare the ranking with, such as logits,energy.",
            many=True,
        ),
        Option("sensitivity", False, "Also re-run the first window with neighboring parameters."),
    )

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise unless k and p are numbers that an entropy has, and the fields are known."""
        number_of_wavelets(options["k"], total=1)
        require_number(options["k"], "k", 0, MAX_WAVELETS)
        require_number(options["p"], "p", *EXPONENTS)
        require_one_of(options["sensitivity"], "sensitivity", (True, False))
        for name in options["fields"]:
            require_one_of(name, "fields", FIELDS)

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds of a window; other fields are organized for themselves."""
        again = len(options["fields"]) + (RERUNS / size.windows if options["sensitivity"] else 0)
        return super().seconds(size, options) + again * ORGANIZING * size.times()

    def measure(self, context: Context, piece: int) -> Result:
        """Return the entropies of all heads in one window, on the trees of its organization."""
        options, field = context.options[self.name], context.parameters["field"]
        x = context.tensor(piece, field)
        trees = context.organizations[piece].trees
        others = []
        for name in options["fields"]:
            other = context.window(piece).tensor(0, name)
            found = organize(other, **context.options["geometry"], engine=context.engine)
            others.append(window_entropies(other, found.trees, options["k"], options["p"]).entropies)
        row = window_entropies(x, trees, options["k"], options["p"], by_field=others)
        arrays = {
            "entropies": row.entropies,
            "network": np.array([row.network]),
            "used": np.array([row.used]),
            "k_values": np.asarray(row.k_values, dtype=np.float64),
            "by_k": row.by_k,
            "by_field": row.by_field,
        }
        tables = {}
        if piece == 0:
            total = trees["query"].n_points * trees["key"].n_points
            coarse = coefficients_by_support(
                x, {a: trees[a] for a in ("query", "key")}, min(COEFFICIENTS, total)
            )
            arrays["coefficients"] = coarse.values[:COEFFICIENTS].astype(np.float32)
            arrays["supports"] = np.asarray(coarse.supports[:COEFFICIENTS])
            if options["sensitivity"]:
                more = {**context.options["geometry"], "engine": context.engine, "progress": context.progress}
                tables["sensitivity"] = sensitivity(x, k=options["k"], **more).to_frame()
        return Result(arrays, tables=tables)

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return entropies, ranks and counts of every head, and what they are worth."""
        study = _study(context, results)
        frame = study.to_frame().set_index(["layer", "head"])
        return Outcome(
            frame,
            _findings(study),
            notices=study.stability.warnings,
            detail=study,
            tables=dict(results[0].tables),
        )

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return coefficients, entropies, their map, the basis of the head tree, and a sparsity curve."""
        found = entropy_figures(study[self.name], study.data.tensor(0, study.parameters["field"]))
        return {f"entropy_{name}": figure for name, figure in found.items()}

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return the entropies over windows, and the coefficients of every head in the first."""
        found: EntropyStudy = study[self.name]
        stability, windows = found.stability, len(found.entropies)
        order = np.argsort(stability.mean_ranks, kind="stable")
        repeated = windows >= FEWEST_UNITS
        first = study.results[self.name][0].arrays
        data = {
            "windows": found.entropies.tolist(),
            "order": order.tolist(),
            "share": stability.share,
            "low": [int(i) for i in order if repeated and stability.bottom_counts[i] == windows],
            "high": [int(i) for i in order[::-1] if repeated and stability.top_counts[i] == windows],
            "haar": {
                "values": float_text(first["coefficients"].T),
                "count": len(first["coefficients"]),
                "supports": first["supports"].tolist(),
            },
        }
        body, panel = page_file("entropy.html").split("<!-- panel -->")
        return (Section(self.name, "Entropy", data, body, panel, page_file("entropy.js")),)


def _study(context: Context, results: Sequence[Result]) -> EntropyStudy:
    """Put the windows together into the study that :func:`headscape.entropy_study` gives."""
    options = context.options["entropy"]
    rows = [
        WindowEntropies(
            entropies=result.arrays["entropies"],
            network=float(result.arrays["network"][0]),
            used=int(result.arrays["used"][0]),
            k_values=tuple(result.arrays["k_values"]),
            by_k=result.arrays["by_k"],
            by_field=result.arrays["by_field"].reshape(-1, len(context.heads)),
        )
        for result in results
    ]
    return study_of_windows(
        rows,
        heads=context.heads,
        trees=tuple(dict(organization.trees) for organization in context.organizations),
        field=context.parameters["field"],
        fields=tuple(options["fields"]),
        parameters={
            "k": options["k"],
            "p": options["p"],
            "trees": "per_window",
            "seed": context.parameters["seed"],
            "organize": dict(context.options["geometry"]),
        },
    )


def _findings(study: EntropyStudy) -> tuple[str, ...]:
    windows, stability = len(study.entropies), study.stability
    statistics = stability.statistics if windows >= FEWEST_UNITS else ""
    sentences: list[str] = [Finding(stability.verdict, Question.sure, statistics)]
    if windows >= FEWEST_UNITS:  # fewer windows say nothing about all windows
        sentences.append(_extremes(study))
    moved = study.sensitivity()
    if len(moved):
        low = moved["rank_correlation"].min()
        tried = ", ".join(str(value) for value in moved["value"])
        what = " and ".join(
            f"the {name}" if name == "field" else name for name in moved["parameter"].unique()
        )
        sentences.append(
            f"The Haar ranking depends {'little' if low > 0.9 else 'noticeably'} on {what}: with {tried} in place of "
            f"k = {study.parameters['k']:g} the rank correlation is at least {low:.2f}."
        )
    return tuple(sentences)


def _extremes(study: EntropyStudy) -> Finding:
    """Say which heads are lowest and highest in all windows, and what that does not mean."""
    windows, stability = len(study.entropies), study.stability
    always: list[Any] = []
    for counts, sign in ((stability.bottom_counts, 1), (stability.top_counts, -1)):
        which = np.flatnonzero(counts == windows)
        always.append([study.heads[i] for i in which[np.argsort(sign * stability.mean_ranks[which])]])
    low, high = always
    where = f"among the lowest {100 * stability.share:.0f} % in all {windows} windows"
    statistics = (
        f"l{study.parameters['p']:g} Haar entropy, k = {study.parameters['k']:g}; among the highest in all windows: "
        f"{len(high)}{f' ({name_heads(high, 8)})' if high else ''}."
    )
    layers = f" {found}" if (found := _layers_of_lowest(study)) else ""
    if not low:
        return Finding(f"No head has a Haar entropy {where}.{layers}", Question.little, statistics)
    return Finding(
        f"{len(low)} of {len(study.heads)} heads ({name_heads(low, 8)}) {'has' if len(low) == 1 else 'have'} little "
        f"coarse structure throughout: a Haar entropy {where}. That such heads do little is a hypothesis of arXiv "
        f"2506.15541, to be tested on every model.{layers}",
        Question.little,
        statistics,
    )


def _layers_of_lowest(study: EntropyStudy) -> str:
    """Say which layers the lowest tenth of the heads come from, if a few hold most of them."""
    count = max(1, round(0.1 * len(study.heads)))
    lowest = np.argsort(study.stability.mean_ranks, kind="stable")[:count]
    layers, counts = np.unique([study.heads[i][0] for i in lowest], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:3]
    held = int(counts[order].sum())
    if len(np.unique([layer for layer, _ in study.heads])) < 6 or held < 0.6 * count:
        return ""
    named = ", ".join(f"{counts[i]} in layer {layers[i]}" for i in order)
    return f"Most of the {count} heads with the lowest Haar entropy sit in few layers: {named}."
