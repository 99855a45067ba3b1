"""A monitored run as display data for its page; everything was measured by the monitor."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape._version import __version__
from headscape.monitor.alert import Alert
from headscape.monitor.metrics import MEANINGS, METRICS
from headscape.monitor.monitor_run import MonitorRun
from headscape.monitor.overview import STATES, Overview, head_label, is_in_force, overview, thinned
from headscape.report.html_page import Answer
from headscape.report.monitor_page import MonitorPageData

MOST_VALUES = 4_000_000
"""Numbers in a page; long runs of large models are thinned to so many."""
FEWEST_SAMPLES = 100
NOT_SHOWN = ("nearest_head",)
CURVES = 3
_WIDE = 50.0


def monitor_page_data(run: MonitorRun, title: str, path: str) -> MonitorPageData:
    """Return what the page shows of a run.

    Parameters
    ----------
    run
        A run with at least one sample, also one that is going on.
    title, path
        Name of the run, and where it is kept.
    """
    seen = overview(run)
    names = [name for name in (*METRICS, *run.metrics) if name in run.metrics and name not in NOT_SHOWN]
    names = list(dict.fromkeys(names))
    places = thinned(run, max(FEWEST_SAMPLES, MOST_VALUES // (len(run.heads) * (len(names) + 1))))
    shown = [run.samples[i] for i in places]
    values = {name: np.stack([sample.values[name] for sample in shown]) for name in names}
    states = np.stack([sample.states for sample in shown])
    struck = _struck(run, seen)
    return MonitorPageData(
        title=title,
        heads={
            "names": [head_label(run, i) for i in range(len(run.heads))],
            "layer": _layer_labels(run),
            "head": [head for _, _, head in run.heads],
            "state": [STATES[int(state)] for state in run.samples[-1].states],
        },
        steps=[sample.step for sample in shown],
        metrics=[_metric(name, values[name], run) for name in names],
        values={**values, "state": states.astype(np.float32)},
        alerts=[_alert(run, alert) for alert in run.alerts],
        answers=_answers(seen),
        warnings=[],
        facts=_facts(run),
        about=_about(run, path, len(shown)),
        first=struck[0] if struck else 0,
        metric=_first_metric(seen, names),
        kept=struck[:CURVES],
    )


def _layer_labels(run: MonitorRun) -> list[int]:
    """Return a column of the grid for every head; the layers of several stacks stand side by side."""
    order = {(shape.stack, shape.layer): i for i, shape in enumerate(run.layers)}
    several = len(run.stacks) > 1
    return [order[stack, layer] if several else layer for stack, layer, _ in run.heads]


def _struck(run: MonitorRun, seen: Overview) -> list[int]:
    """Return the heads of alerts in force, heads that are watched, and those of earlier alerts; the newest first."""

    def heads_of(alerts: Iterable[Alert]) -> list[int]:
        return [run.heads.index(head) for alert in alerts for head in alert.heads if head in run.heads]

    watched = np.flatnonzero(run.samples[-1].states).tolist()
    return list(dict.fromkeys([*heads_of(seen.in_force[::-1]), *watched, *heads_of(run.alerts[::-1])]))


def _first_metric(seen: Overview, names: list[str]) -> str:
    """Return what is wrong or odd now, else what the newest alert was about."""
    now = [seen.metric] if seen.state != STATES[0] else []
    newest = [*now, *(alert.metric for alert in seen.alerts[::-1]), seen.metric]
    return next((metric for metric in newest if metric in names), names[0])


def _metric(name: str, values: NDArray[np.float32], run: MonitorRun) -> dict[str, Any]:
    """Return how a metric is shown: its range over the run, and what most heads have at every step."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    log = low > 0 and high > _WIDE * low
    if low == high:
        low, high = low - 0.5, high + 0.5
    meaning = MEANINGS.get(name, name)
    thresholds = {
        alert.threshold for alert in run.alerts if alert.metric == name and math.isfinite(alert.threshold)
    }
    return {
        "key": name,
        "title": name.replace("_", " "),
        "meaning": f"{meaning[0].upper()}{meaning[1:]}.",
        "low": low,
        "high": high,
        "log": log,
        "band": [_quantiles(values, share) for share in (0.05, 0.5, 0.95)],
        "threshold": sorted(thresholds)[:4],
        "panel": name in METRICS,
    }


def _quantiles(values: NDArray[np.float32], share: float) -> list[float | None]:
    """Return what a share of the heads stays below at every step; None where nothing is known."""
    known = [row[np.isfinite(row)] for row in values]
    return [float(np.quantile(row, share)) if row.size else None for row in known]


def _alert(run: MonitorRun, alert: Alert) -> dict[str, Any]:
    going_on = is_in_force(run, alert)
    return {
        "step": alert.step,
        "since": alert.since,
        "over": not going_on,
        "title": alert.title,
        "heads": [run.heads.index(head) for head in alert.heads if head in run.heads],
        "message": str(alert),
        "facts": f"{alert.confidence}, {'in force' if going_on else 'no longer in force'} at the latest step",
        "advice": alert.advice,
    }


def _answers(seen: Overview) -> list[Answer]:
    """Return the sentence on top, the newest alerts that go on, and those that are over."""
    going_on, over = seen.in_force[::-1], [a for a in seen.alerts[::-1] if a not in seen.in_force]
    return [
        Answer("", seen.sentence, seen.progress),
        *(
            Answer("What is wrong now?", str(alert), alert.advice, i < 3)
            for i, alert in enumerate(going_on[:20])
        ),
        *(Answer("What was wrong before?", str(alert), alert.advice, first=False) for alert in over[:20]),
    ]


def _facts(run: MonitorRun) -> list[tuple[str, str]]:
    last = run.samples[-1]
    found = [
        ("latest step", f"{last.step:,}"),
        ("samples", f"{len(run.samples):,}"),
        ("heads", f"{len(run.heads):,}"),
    ]
    found += [("layers", f"{len(run.layers):,}"), ("alerts", f"{len(run.alerts):,}")]
    if math.isfinite(last.loss):
        found.append(("loss", f"{last.loss:.4g}"))
    if math.isfinite(run.overhead):
        found.append(("of the time inside the monitor", f"{100 * run.overhead:.2g} %"))
    return found


def _about(run: MonitorRun, path: str, shown: int) -> list[tuple[str, str, bool]]:
    """Return the settings of the run and of the page."""
    found = [("Run", path, True), ("Show it again", f"headscape monitor {path} --html FILE", True)]
    for name, value in run.header.about.items():
        if isinstance(value, str | int | float):
            found.append((name.replace("_", " ").capitalize(), f"{value}", False))
    if shown < len(run.samples):
        found.append(("Thinned", f"{shown:,} of {len(run.samples):,} samples are in this page", False))
    return [*found, ("headscape", __version__, False)]
