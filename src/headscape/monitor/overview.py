"""A monitored run at a glance: one sentence that anyone understands, the state of every layer, alerts in force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.monitor.alert import Alert
from headscape.monitor.monitor_run import MonitorRun
from headscape.monitor.sample import ALERT, HEALTHY, WATCH
from headscape.output import counted

STATES = ("healthy", "watch", "alert")
"""The states of heads, layers and runs, in words; the index is the number in a sample."""
USUAL_METRIC = "attention_entropy"


@dataclass(frozen=True)
class LayerOverview:
    """One layer: its name, its state, and a metric of its heads.

    Attributes
    ----------
    name
        Number of the layer, after the name of its stack if there are several.
    state
        One of :data:`STATES`: that of its worst head at the latest sample.
    curve, curve_of
        The metric at every sampled step: of the worst head of a layer that is not healthy (its name), else the
        "median" of its heads.
    low, high
        Smallest and largest value of a head at the latest sample.
    """

    name: str
    state: str
    curve: tuple[float, ...]
    curve_of: str
    low: float
    high: float


@dataclass(frozen=True)
class Overview:
    """A run at a glance.

    Attributes
    ----------
    sentence
        How the run is doing.
    progress
        How far it is, and what the monitor costs.
    state
        One of :data:`STATES`: that of the worst head at the latest sample.
    metric, layers
        A metric, and how it developed in every layer.
    alerts, in_force
        All alerts in order, and those that go on.
    """

    sentence: str
    progress: str
    state: str
    metric: str
    layers: tuple[LayerOverview, ...]
    alerts: tuple[Alert, ...]
    in_force: tuple[Alert, ...]


def overview(run: MonitorRun, metric: str | None = None) -> Overview:
    """Sum up a run.

    Parameters
    ----------
    run
        A run, also one that is going on.
    metric
        Whose development is shown per layer; by default what the newest alert in force or an odd value is about, else
        the entropy of attention.
    """
    if metric is not None and metric not in run.metrics:
        raise InputError(f"metric must be one of {', '.join(run.metrics)}, but is {metric!r}.")
    states = run.samples[-1].states if run.samples else np.zeros(len(run.heads), np.int8)
    going_on = tuple(alert for alert in run.alerts if is_in_force(run, alert))
    odd = run.samples[-1].odd if run.samples else {}
    usual = [*(alert.metric for alert in going_on[::-1]), *odd, USUAL_METRIC, *run.metrics]
    wanted = metric or next(name for name in usual if name in run.metrics)
    return Overview(
        sentence=_sentence(run, states, going_on),
        progress=_progress(run),
        state=STATES[int(states.max())],
        metric=wanted,
        layers=_layers(run, wanted, states),
        alerts=run.alerts,
        in_force=going_on,
    )


def is_in_force(run: MonitorRun, alert: Alert) -> bool:
    """Tell whether an alert goes on: one of its heads has been in the state "alert" ever since."""
    places = [run.heads.index(head) for head in alert.heads if head in run.heads]
    since = [sample.states[places] for sample in run.samples if sample.step >= alert.step]
    return bool(places and since) and all((states == ALERT).any() for states in since)


def head_label(run: MonitorRun, place: int) -> str:
    """Return the short name of a head: 3.7 is head 7 of layer 3, after its stack if there are several."""
    stack, layer, head = run.heads[place]
    return f"{stack} {layer}.{head}" if len(run.stacks) > 1 else f"{layer}.{head}"


def thinned(run: MonitorRun, most: int) -> list[int]:
    """Return which samples are shown if there are too many: evenly spaced ones, those of alerts, and the last.

    Examples
    --------
    >>> from headscape.monitor.monitor_run import RunHeader
    >>> from headscape.monitor.sample import LayerShape, Sample
    >>> header = RunHeader((LayerShape("self", 0, 1),), ("mu_K",))
    >>> thinned(MonitorRun(header, tuple(Sample(step, {}) for step in range(10))), 4)
    [0, 3, 6, 9]
    """
    n = len(run.samples)
    stride = max(1, math.ceil(n / most))
    told = {step for alert in run.alerts for step in (alert.step, alert.since)}
    alerts = [i for i, sample in enumerate(run.samples) if sample.step in told]
    return sorted({*range(0, n, stride), *alerts[:most], *([n - 1] if n else [])})


def _layers(run: MonitorRun, metric: str, states: NDArray[np.int8]) -> tuple[LayerOverview, ...]:
    values = np.stack([sample.values[metric] for sample in run.samples]) if run.samples else None
    found, start = [], 0
    for shape in run.layers:
        place = slice(start, start + shape.n_heads)
        start += shape.n_heads
        own = np.zeros((0, shape.n_heads)) if values is None else values[:, place]
        latest = own[-1:][np.isfinite(own[-1:])]
        worst = int(states[place].argmax())
        healthy = states[place][worst] == HEALTHY
        found.append(
            LayerOverview(
                name=f"{shape.stack} {shape.layer}" if len(run.stacks) > 1 else str(shape.layer),
                state=STATES[int(states[place].max(initial=0))],
                curve=tuple(_median(row) if healthy else float(row[worst]) for row in own),
                curve_of="median" if healthy else f"head {worst}",
                low=float(latest.min()) if latest.size else math.nan,
                high=float(latest.max()) if latest.size else math.nan,
            )
        )
    return tuple(found)


def _median(values: NDArray[np.floating[Any]]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else math.nan


def _sentence(run: MonitorRun, states: NDArray[np.int8], going_on: Sequence[Alert]) -> str:
    n = len(run.heads)
    if not run.samples:
        return "No training step has been sampled yet."
    step = f"step {run.samples[-1].step:,}"
    wrong = int((states == ALERT).sum())
    if going_on:
        first = going_on[0]
        more = len(going_on) - 1
        others = f"; {counted(more, 'more alert')} in force" if more else ""
        share = "all heads" if wrong == n else f"{max(wrong, 1)} of {counted(n, 'head')}"
        return f"Attention is going wrong in {share}: {first.title} since step {first.since:,} ({first.where}){others}."
    if wrong or (states == WATCH).any():
        odd = [_odd_head(run, int(i)) for i in np.flatnonzero(states)]
        some = ", ".join(odd[:3]) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        looks = "looks" if len(odd) == 1 else "look"
        return (
            f"Nothing is certain yet at {step}, but {len(odd)} of {counted(n, 'head')} {looks} odd: {some}."
        )
    if run.alerts:
        last = run.alerts[-1]
        return (
            f"Attention looks healthy at {step}; {counted(len(run.alerts), 'earlier alert')} no longer in force, the "
            f"last at step {last.step:,} ({last.title})."
        )
    return f"Attention looks healthy: no alert in {counted(n, 'head')} up to {step}."


def _odd_head(run: MonitorRun, place: int) -> str:
    """Return the name of a head with the values that are odd at the latest sample."""
    stack, layer, head = run.heads[place]
    name = f"{stack + ' ' if len(run.stacks) > 1 else ''}layer {layer} head {head}"
    last = run.samples[-1]
    why = [
        f"{metric} {last.values[metric][place]:.3g}" for metric, heads in last.odd.items() if place in heads
    ]
    return f"{name} ({', '.join(why)})" if why else name


def _progress(run: MonitorRun) -> str:
    if not run.samples:
        return f"{counted(len(run.heads), 'head')} in {counted(len(run.layers), 'layer')}"
    last = run.samples[-1]
    parts = [f"step {last.step:,}", counted(len(run.samples), "sample")]
    if isinstance(every := run.header.about.get("every"), int):
        parts[-1] += f", one every {counted(every, 'step')}"
    if math.isfinite(last.loss):
        parts.append(f"loss {last.loss:.4g}")
    if math.isfinite(run.overhead):
        parts.append(f"{100 * run.overhead:.2g} % of the time inside the monitor")
    return ", ".join(parts)
