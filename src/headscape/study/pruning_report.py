"""The report of a pruning trial: the trade-off, the heads that go and what they cost, as one HTML page."""

import os
from pathlib import Path
from typing import Any

from headscape._version import __version__
from headscape.models.anatomy import of_stack
from headscape.output import counted, json_ready
from headscape.pruning.pruned import Pruned
from headscape.pruning.savings import Savings
from headscape.pruning.tradeoff import MEASURES, SizePoint, TradeOff
from headscape.pruning.trial_result import PruningTrial
from headscape.report.html_page import Answer
from headscape.report.pruning_page import PruningPageData, write_pruning_page

AXES = {
    "key-value cache": ("cache, bytes per token", "Bytes of the key-value cache per token.", True),
    "heads": ("heads left", "Heads that the model keeps.", False),
    "parameters": ("parameters", "Parameters of the whole model.", True),
    "prefill time": (
        "prefill time",
        "Measured time of a forward pass, as a share of the intact model's.",
        True,
    ),
    "decoding time": ("decoding time", "Measured time of decoding, as a share of the intact model's.", True),
}
"""Title, meaning, and whether the table of sizes shows what is left as a share, by measure."""


def pruning_report(
    trial: PruningTrial,
    path: str | os.PathLike[str],
    *,
    pruned: Pruned | None = None,
    command: str = "",
) -> Path:
    """Write the report of a trial: one HTML file that works offline.

    Parameters
    ----------
    trial
        What :func:`headscape.pruning_trial` found; with ``sizes`` it has a trade-off to show, and
        ``trial.timed()`` adds the measured speed of every size.
    path
        Of the file.
    pruned
        The smaller model, for its measured speed.
    command
        The command that made it.

    Returns
    -------
    Path
        Of the file.
    """
    return write_pruning_page(pruning_page_data(trial, pruned, command), Path(path))


def pruning_page_data(
    trial: PruningTrial, pruned: Pruned | None = None, command: str = ""
) -> PruningPageData:
    """Return what the page shows of a trial."""
    curve = trial.curve or TradeOff((), 0)
    points = [_point(curve, point) for point in curve.points]
    modules = of_stack(trial.model.modules())
    known = [key for key in AXES if any(point["values"][key] is not None for point in points)]
    return PruningPageData(
        title=f"{trial.model.title}, without {counted(len(trial.heads), 'head')}",
        layers=[{"layer": m.layer, "heads": m.n_heads, "group": m.n_heads // m.n_kv_heads} for m in modules],
        heads=[f"{layer}.{head}" for layer, head in trial.heads],
        points=points,
        measures=[
            {
                "key": key,
                "title": AXES[key][0],
                "meaning": AXES[key][1],
                "short": key.removeprefix("key-value "),
                "share": AXES[key][2],
            }
            for key in known
        ],
        cost=_cost(trial, pruned),
        answers=_answers(trial),
        warnings=[{"title": notice.name, "message": notice.message} for notice in trial.warnings],
        facts=_facts(trial),
        about=_about(trial, command),
        windows=curve.windows,
        first=next((place for place, point in enumerate(points) if point["chosen"]), 0),
    )


def _point(curve: TradeOff, point: SizePoint) -> dict[str, Any]:
    best = curve.best_for(point)
    name = next((name for name, known in curve.choices.items() if known is point), "")
    savings = point.savings
    shares = {
        "key-value cache": 1 - savings.cache_bytes_per_token.share,
        "parameters": 1 - savings.parameters.share,
        "prefill time": MEASURES["prefill time"](point),
        "decoding time": MEASURES["decoding time"](point),
    }
    found = {
        "name": name,
        "title": f"{counted(len(point.heads), 'head')} in {point.kind}",
        "kind": point.kind,
        "removed": len(point.heads),
        "heads": [f"{layer}.{head}" for layer, head in point.heads],
        "increase": point.increase.estimate,
        "low": point.increase.low,
        "high": point.increase.high,
        "values": {key: MEASURES[key](point) for key in AXES},
        "shares": shares,
        "best_for": list(best),
        "best_for_words": ", ".join(best),
        "chosen": point.chosen,
        "words": _words(point, best),
        "option": point.option,
    }
    return {**json_ready(found), "numbers": _saved(savings) + _times(point)}


def _words(point: SizePoint, best: tuple[str, ...]) -> str:
    text = f"Costs {point.increase} more loss on the windows that compare sizes."
    if point.chosen:
        text = f"This is the model that was chosen. {text}"
    return f"{text} A Pareto choice for {', '.join(best)}." if best else f"{text} Another size is better."


def _saved(savings: Savings) -> list[tuple[str, str]]:
    lines = [
        ("parameters", str(savings.parameters)),
        (f"FLOPs per token at {savings.length} tokens", str(savings.flops_per_token)),
    ]
    if savings.cache_bytes_per_token.before:
        lines.append(("key-value cache, bytes per token", str(savings.cache_bytes_per_token)))
    return lines


def _times(point: SizePoint) -> list[tuple[str, str]]:
    if point.speed is None:
        return []
    timings = {"prefill": point.speed.prefill, "decoding": point.speed.decoding}
    return [(name, str(timing)) for name, timing in timings.items() if timing is not None]


def _cost(trial: PruningTrial, pruned: Pruned | None) -> dict[str, Any]:
    rows = [
        {
            "name": name,
            "used": name == trial.used,
            **json_ready({"increase": i.estimate, "low": i.low, "high": i.high}),
        }
        for name, i in trial.increases.items()
    ]
    saved = [] if trial.savings is None else _saved(trial.savings)
    if pruned is not None and pruned.speed is not None:
        timings = {"prefill": pruned.speed.prefill, "decoding": pruned.speed.decoding}
        saved += [(name, str(timing)) for name, timing in timings.items() if timing is not None]
    hint = (
        f"Loss of the intact model: {trial.intact.mean():.4g} ({trial.loss}), on "
        f"{counted(trial.windows[1], 'window')} that took part in no choice."
    )
    return {"hint": hint, "rows": rows, "savings": saved}


def _answers(trial: PruningTrial) -> list[Answer]:
    first, *rest = trial.findings
    return [Answer("", first), *(Answer("What else was measured?", sentence) for sentence in rest)]


def _facts(trial: PruningTrial) -> list[tuple[str, str]]:
    facts = [("heads removed", str(len(trial.heads))), ("heads before", str(trial.n_heads))]
    facts.append(("loss increase", f"{trial.increases[trial.used].estimate:.3g}"))
    if trial.savings is not None:
        facts.append(("fewer parameters", f"{trial.savings.parameters.share:.1%}"))
        if trial.savings.cache_bytes_per_token.before:
            facts.append(("smaller cache", f"{trial.savings.cache_bytes_per_token.share:.1%}"))
    return facts


def _about(trial: PruningTrial, command: str) -> list[tuple[str, str, bool]]:
    rows = [("Command", command, True)] if command else []
    rows += [
        ("Method", trial.method, True),
        ("Calibrated on", counted(trial.windows[0], "window"), False),
        ("Evaluated on", counted(trial.windows[1], "held-out window"), False),
    ]
    if trial.curve is not None:
        rows.append(
            ("Sizes compared on", f"{counted(trial.curve.windows, 'other calibration window')}", False)
        )
    if trial.plan:
        rows.append(("Heads of a layer", f"plan {trial.plan!r}, by the loss of windows left out", False))
    if trial.repair is not None and trial.repair.strength is not None:
        rows.append(("Repair", str(trial.repair.strength), False))
    license_of = getattr(trial.model, "license", "") or "not stated"
    return [*rows, ("License of the weights", license_of, False), ("headscape", __version__, False)]
