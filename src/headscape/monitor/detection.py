"""From samples to alerts: one rule at a time, with memory, one alert per event."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscape.monitor import alert as kinds
from headscape.monitor.alert import Alert, HeadName
from headscape.monitor.head_history import Floats, HeadHistory
from headscape.monitor.rules import Rule, rules
from headscape.monitor.sample import ALERT, HEALTHY, WATCH, LayerShape, Sample, Values, head_names
from headscape.monitor.thresholds import Thresholds

Bools = NDArray[np.bool_]

_TINY = 1e-12
_MASK_TOLERANCE = 0.05
_MASK_NOISE = 0.05


@dataclass(frozen=True, eq=False)
class _Verdict:
    """What one rule finds in one sample, per head."""

    bad: Bools
    certain: Bools
    at_once: Bools
    z: Floats
    before: Floats
    threshold: Floats


class Detector:
    """Judges one sample after the other.

    Parameters
    ----------
    layers
        The attention modules, in the order of all arrays.
    thresholds
        Levels and memory.

    Attributes
    ----------
    odd
        As in :class:`~headscape.monitor.sample.Sample`, of the sample that was judged last.

    Notes
    -----
    Deterministic: the same samples give the same alerts, so that a resumed run picks up its memory by judging the
    samples of its file again.
    """

    def __init__(self, layers: Sequence[LayerShape], thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self._heads = head_names(layers)
        n, t = len(self._heads), thresholds
        past = (t.window, t.settle, t.reference)
        noise = np.log(t.factor) / t.z if t.z else 0.0
        self._events = [(rule, HeadHistory(*past, noise), _Events(n, t)) for rule in rules(t)]
        self._mask = HeadHistory(*past, _MASK_NOISE)
        self._mask_events, self._future_events = _Events(n, t), _Events(n, t)
        self._broken = _Events(n, t)
        self.odd: dict[str, tuple[int, ...]] = {}
        self._causal: Bools | None = None
        self._clean: int | None = None  # the last sample without NaN

    def judge(self, sample: Sample) -> tuple[NDArray[np.int8], list[Alert]]:
        """Return the state of every head (0 healthy, 1 watch, 2 alert) and the alerts that begin with a sample."""
        states, self.odd = np.full(len(self._heads), HEALTHY, np.int8), {}
        found = [*self._not_finite(sample), *self._masks(sample)]
        for rule, history, events in self._events:
            verdict = _judged(rule, sample.values, history, self.thresholds)
            new = events.update(verdict, sample.step)
            if new.any():
                found.append(
                    self._alert(rule.kind, rule.metric, sample, verdict, events, new, change=rule.change)
                )
        every = [
            ("nonfinite", self._broken),
            ("visible", self._mask_events),
            ("future", self._future_events),
            *((rule.metric, events) for rule, _, events in self._events),
        ]
        for metric, events in every:
            states[events.seen] = np.maximum(states[events.seen], WATCH)
            states[events.active] = ALERT
            if (odd := np.flatnonzero(events.seen & ~events.active)).size:
                self.odd[metric] = tuple(odd.tolist())
        return states, _merged(found)

    def _not_finite(self, sample: Sample) -> list[Alert]:
        """Tell of NaN once, and of the first layer that has it: everything after it follows."""
        bad = sample.values["nonfinite"] > 0
        told = self._broken.active.any()
        verdict = _certain(bad, np.zeros(len(bad)))
        new = self._broken.update(verdict, sample.step)
        clean, self._clean = self._clean, self._clean if bad.any() else sample.step
        if told or not new.any():
            return []
        first = self._heads[int(np.flatnonzero(new)[0])][:2]
        origin = np.array([head[:2] == first for head in self._heads]) & new
        later = int(new.sum() - origin.sum())
        detail = f"{later} heads of later layers follow from it." if later else ""
        if bad.all():  # one update with NaN gradients spreads it over all weights
            origin = new
            began = "from the start" if clean is None else f"after step {clean}, the last clean sample"
            detail = f"Every head has it, so where it began is not known; when: {began}."
        return [self._alert(kinds.NOT_FINITE, "nonfinite", sample, verdict, self._broken, origin, detail)]

    def _masks(self, sample: Sample) -> list[Alert]:
        """Tell of later keys that become visible, and of any other lasting change of what is visible."""
        future, visible = sample.values["future"], sample.values["visible"].astype(np.float64)
        if self._causal is None:
            self._causal = future == 0
        found = []
        leaking = self._causal & (future > 0)
        verdict = _certain(leaking, np.zeros(len(future)))
        new = self._future_events.update(verdict, sample.step)
        if new.any():
            detail = "Queries see later keys."
            found.append(
                self._alert(kinds.MASK_CHANGE, "future", sample, verdict, self._future_events, new, detail)
            )
        y = np.log(np.maximum(visible, _TINY))
        z, before = self._mask.change(y, both_sides=True)
        changed = (z > self.thresholds.z) & (np.abs(y - before) > _MASK_TOLERANCE) & ~leaking
        self._mask.add(np.where(changed, np.nan, y))
        none = np.zeros(len(y), bool)
        verdict = _Verdict(changed, none, none, z, np.exp(before), np.full(len(y), _MASK_TOLERANCE))
        new = self._mask_events.update(verdict, sample.step)
        if new.any():
            found.append(self._alert(kinds.MASK_CHANGE, "visible", sample, verdict, self._mask_events, new))
        return found

    def _alert(
        self,
        kind: str,
        metric: str,
        sample: Sample,
        verdict: _Verdict,
        events: _Events,
        new: Bools,
        detail: str = "",
        change: str | None = None,
    ) -> Alert:
        """Return the alert of some heads; its figures are those of the head that is furthest out."""
        places = np.flatnonzero(new)
        worst = int(places[np.argmax(verdict.z[places])])
        before = float(verdict.before[worst])
        if change is not None:
            detail = f"Its {change} is {sample.values[change][worst]:.3g}, before {before:.3g}."
            before = np.nan
        certain = bool(verdict.certain[worst])
        z = float(verdict.z[worst])
        hits = int(events.hits[worst])
        far = (
            f", {min(z, 999.0):.0f} robust deviations from its past" if np.isfinite(z) and not certain else ""
        )
        sure = "certain" if certain else "very likely" if z > 2 * self.thresholds.z else "likely"
        if kind == kinds.DUPLICATE_HEADS:
            detail = self._twins(places, sample.values["nearest_head"])
        return Alert(
            kind=kind,
            heads=tuple(self._heads[place] for place in places),
            step=sample.step,
            since=int(events.since[places].min()),
            metric=metric,
            value=float(sample.values[metric][worst]),
            threshold=float(verdict.threshold[worst]),
            reference=before if np.isfinite(before) and before != 0 else None,
            confidence=sure,
            evidence=f"{hits} of the last {events.length} samples{far}",
            detail=detail,
        )

    def _twins(self, places: NDArray[np.intp], nearest: Values) -> str:
        """Name pairs of heads, each once."""
        pairs = dict.fromkeys(
            (stack, layer, *sorted((head, int(nearest[place]))))
            for place, (stack, layer, head) in ((int(place), self._heads[place]) for place in places)
        )
        return "Pairs: " + ", ".join(f"layer {layer} heads {a} and {b}" for _, layer, a, b in pairs) + "."


class _Events:
    """Which heads have an event of one rule going on, and what was seen lately."""

    def __init__(self, n_heads: int, thresholds: Thresholds) -> None:
        self._t = thresholds
        self._last: deque[Bools] = deque(maxlen=thresholds.memory)
        self._quiet = np.zeros(n_heads, np.int64)
        self.active = np.zeros(n_heads, bool)
        self.seen = np.zeros(n_heads, bool)
        self.since = np.zeros(n_heads, np.int64)
        self.hits = np.zeros(n_heads, np.int64)

    @property
    def length(self) -> int:
        """How many samples the hits are counted in."""
        return len(self._last)

    def update(self, verdict: _Verdict, step: int) -> Bools:
        """Take a sample in, and return the heads whose event begins to be told."""
        fresh = verdict.bad & (self.hits == 0) & ~self.active
        self.since[fresh] = step
        self._last.append(verdict.bad)
        self.hits = np.sum(self._last, axis=0)
        self.seen = verdict.bad
        new = verdict.bad & ~self.active & ((self.hits >= self._t.persistence) | verdict.at_once)
        self._quiet = np.where(verdict.bad, 0, self._quiet + 1)
        self.active = (self.active & (self._quiet < self._t.clear)) | new
        return new


def _judged(rule: Rule, values: Mapping[str, Values], history: HeadHistory, t: Thresholds) -> _Verdict:
    """Compare values with the rule's level and limit and with their past, and add them to it unless they are bad."""
    sign = 1.0 if rule.high else -1.0
    y = _signed_log(values[rule.metric], sign)
    of_change = y if rule.change is None else _signed_log(values[rule.change], sign)
    deviation, usual = history.change(of_change)
    level = sign * np.log(rule.level)
    beyond_limit, at_once = (
        np.zeros(len(y), bool) if bound is None else y > sign * np.log(bound)
        for bound in (rule.limit, rule.at_once)
    )
    if rule.after_learning and not history.settled:
        beyond_limit[:] = False
    changed, reached = deviation > t.z, np.full(len(y), level)
    if rule.change is None:
        changed &= usual <= level  # NaN is not
        if changed.any():
            reached -= np.minimum(history.reach(t.margin), np.log(t.factor) / 2)
    bad = beyond_limit | (changed & (y > reached))
    history.add(np.where(bad, np.nan, of_change))
    threshold = np.where(beyond_limit, rule.limit or rule.level, np.exp(sign * reached))
    return _Verdict(bad, beyond_limit, at_once, deviation, np.exp(sign * usual), threshold)


def _signed_log(values: Values, sign: float) -> Floats:
    """Return logarithms of which larger ones are worse."""
    signed: Floats = sign * np.log(np.maximum(values.astype(np.float64), _TINY))
    return signed


def _certain(bad: Bools, before: Floats) -> _Verdict:
    return _Verdict(bad, bad, bad, np.full(len(bad), np.inf), before, np.zeros(len(bad)))


def _merged(alerts: list[Alert]) -> list[Alert]:
    """Keep one alert per kind: rules of one kind that speak up together tell of the same event."""
    found: dict[str, Alert] = {}
    for alert in alerts:
        first = found.setdefault(alert.kind, alert)
        if first is not alert:
            heads: tuple[HeadName, ...] = tuple(dict.fromkeys((*first.heads, *alert.heads)))
            found[alert.kind] = Alert(
                **{**first.__dict__, "heads": heads, "since": min(first.since, alert.since)}
            )
    return list(found.values())
