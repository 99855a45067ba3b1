"""What a trial of pruning found: which heads would go, what that costs on windows held out, and the trade-off."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.repair import Repair
from headscape.ablation.ridge_fit import NO_REPAIR
from headscape.analysis.intervals import Interval, bootstrap
from headscape.engine import Progress, no_progress
from headscape.models.loading import Model
from headscape.notices import Notice
from headscape.output import counted, json_ready
from headscape.pruning.manifest import Pairs
from headscape.pruning.model_card import model_card
from headscape.pruning.pruned import Pruned
from headscape.pruning.removal import prune
from headscape.pruning.savings import Savings
from headscape.pruning.speed import measured_speed
from headscape.pruning.tradeoff import SizePoint, TradeOff

FloatArray64 = NDArray[np.float64]
CURVE_REPEATS = 3
"""Repeats of the timing of every size of the trade-off."""


@dataclass(frozen=True, eq=False)
class PruningTrial:
    """What :func:`headscape.pruning_trial` found.

    Parameters
    ----------
    model
        The intact model, with its tokenizer.
    heads
        The (layer, head) pairs that would go, the first choice first.
    method
        How they were chosen.
    n_heads
        Of the model's stack.
    intact, gated, repaired : (window,) arrays
        Losses of the intact model, with the heads off, and with the output projections re-fitted too (None without
        repair).
    random : (draw, window) array
        Losses with as many heads off that were drawn at random.
    random_repaired
        Whether these are losses after a repair of the same strength.
    loss
        What the loss is, with its unit.
    repair
        The re-fitted projections.
    windows
        Numbers of windows that calibrated and evaluated.
    warnings
        What to know before relying on the numbers.
    kept_back
        Heads that were asked for but stay, because they share keys with heads that stay.
    goal
        What was asked for and how it was reached, in a sentence.
    savings
        What the smaller model saves.
    curve
        The trade-off between loss and size, if sizes were compared.
    recovered : (window,) array
        Losses after recovery, None without.
    recovery, recovery_steps
        The output projections after training, and how many steps that took.
    recovery_gain : (window,) array
        By how much recovery lowers the losses of calibration windows it was not trained on: what decides whether it is
        used. None if there is no such window.
    plan
        How many heads layers lose, if that was chosen: the name of a plan
        (:mod:`headscape.ablation.validated_choice`).
    """

    model: Model
    heads: Pairs
    method: str
    n_heads: int
    intact: FloatArray64
    gated: FloatArray64
    repaired: FloatArray64 | None
    random: FloatArray64
    loss: str
    repair: Repair | None
    windows: tuple[int, int]
    warnings: tuple[Notice, ...] = ()
    kept_back: Pairs = ()
    goal: str = ""
    savings: Savings | None = None
    curve: TradeOff | None = None
    recovered: FloatArray64 | None = None
    recovery: Repair | None = None
    recovery_steps: int = 0
    recovery_gain: FloatArray64 | None = None
    plan: str = ""
    random_repaired: bool = False

    @property
    def increases(self) -> dict[str, Interval]:
        """By how much the loss increases, with intervals paired over windows, in all variants that were measured."""
        found = {"without repair": bootstrap(self.gated - self.intact)}
        if self.repaired is not None:
            found["with repair"] = bootstrap(self.repaired - self.intact)
        if self.recovered is not None:
            found["with recovery"] = bootstrap(self.recovered - self.intact)
        if len(self.random):
            means = (self.random - self.intact).mean(axis=1)
            found[f"random heads, {self._as_random}"] = Interval(
                float(means.mean()), float(means.min()), float(means.max()), 1.0
            )
        return found

    @property
    def _as_random(self) -> str:
        """Which of :attr:`increases` random heads are compared with."""
        return "with repair" if self.random_repaired else "without repair"

    @property
    def repair_used(self) -> bool:
        """Whether projections were re-fitted: unless no re-fit lowers the loss of calibration windows left out."""
        chosen = None if self.repair is None else self.repair.strength
        return self.repaired is not None and chosen != NO_REPAIR

    @property
    def recovery_used(self) -> bool:
        """Whether there is a recovery that lowers the loss of calibration windows it was not trained on."""
        return self.recovery_gain is not None and float(self.recovery_gain.mean()) > 0

    @property
    def used(self) -> str:
        """Which of :attr:`increases` the smaller model has."""
        if self.recovery_used:
            return "with recovery"
        return "with repair" if self.repair_used else "without repair"

    @property
    def findings(self) -> tuple[str, ...]:
        """What the trial says, in sentences."""
        name = self.used
        cost = self.increases[name]
        base, n = float(self.intact.mean()), len(self.heads)
        how = f"{self.method}, plan {self.plan!r}" if self.plan else self.method
        sentences = [
            f"Without {n} of {counted(self.n_heads, 'head')} ({n / self.n_heads:.0%}, chosen by {how}) the "
            f"loss of {base:.3g} ({self.loss}) increases by {cost} {name}, on "
            f"{counted(self.windows[1], 'held-out window')}."
        ]
        if self.goal:
            sentences.append(self.goal)
        if self.repaired is not None:
            sentences.append(self._of_repair(self.repaired))
        if self.recovered is not None:
            sentences.append(self._of_recovery(self.recovered))
        if len(self.random):
            which = self._as_random
            random, these = (self.increases[name] for name in (f"random heads, {which}", which))
            better = "more" if these.estimate > random.high else "not clearly less"
            better = "less" if these.estimate < random.low else better
            sentences.append(
                f"{which.capitalize()}, as many heads drawn at random cost {random.estimate:.3g} ({random.low:.3g} to "
                f"{random.high:.3g} in {counted(len(self.random), 'draw')}) and these {these.estimate:.3g}: the choice "
                f"costs {better}."
            )
        if self.curve is not None and self.curve.choices:
            sentences.append(_of_curve(self.curve))
        return tuple(sentences)

    def _of_repair(self, repaired: FloatArray64) -> str:
        if not self.repair_used:
            return (
                "No re-fit of the output projections lowers the loss of calibration windows left out, so they stay as "
                "they are: calibrate on more windows."
            )
        return f"Repair {_change(self.gated - repaired)}"

    def _of_recovery(self, recovered: FloatArray64) -> str:
        before = self.repaired if self.repair_used and self.repaired is not None else self.gated
        trained = f"Recovery ({counted(self.recovery_steps, 'step')} of training on the calibration text)"
        if self.recovery_gain is None:
            return f"{trained} is left out: no calibration window is left to decide whether it helps."
        where = counted(len(self.recovery_gain), "calibration window") + " it was not trained on"
        if not self.recovery_used:
            return (
                f"{trained} makes it worse on {where}, by {bootstrap(-self.recovery_gain)}, and is left out."
            )
        return (
            f"{trained} lowers the loss of {where}. On the held-out windows it {_change(before - recovered)} The "
            "intact model had no such training: part of the gain may be due to the text alone."
        )

    def prune(self, timing: bool = True, progress: Progress = no_progress) -> Pruned:
        """Cut the heads out of a copy of the model, with the projections of the repair and recovery that are used.

        Parameters
        ----------
        timing
            Time both models in turns (``.speed``).
        progress
            Progress callback.

        Returns
        -------
        Pruned
            With a model card (``.card``) that :func:`headscape.save_pruned` writes.
        """
        progress("cutting heads out", 0, 1)
        repair = self.repair if self.repair_used else None
        repair = self.recovery if self.recovery_used else repair
        costs = "; ".join(f"{name}: {interval}" for name, interval in self.increases.items())
        pruned = prune(self.model, (*self.heads, *self.kept_back), repair=repair).described(
            method=self.method,
            calibration=counted(self.windows[0], "window"),
            evaluation=f"{counted(self.windows[1], 'held-out window')}; loss {self.intact.mean():.4g} ({self.loss}), "
            f"loss increase {costs}",
        )
        speed = measured_speed(self.model.model, pruned.model, progress=progress) if timing else None
        timed = replace(pruned, speed=speed, tokenizer=self.model.tokenizer)
        return replace(timed, card=model_card(timed, self))

    def timed(self, progress: Progress = no_progress) -> Self:
        """Return the trial with the measured speed of every size of its trade-off; without one, itself."""
        if self.curve is None:
            return self
        points: list[SizePoint] = []
        for place, point in enumerate(self.curve.points):
            progress("timing the trade-off", place, len(self.curve.points))
            smaller = prune(self.model, point.heads).model
            speed = measured_speed(self.model.model, smaller, repeats=CURVE_REPEATS)
            points.append(replace(point, speed=speed))
        return replace(self, curve=replace(self.curve, points=tuple(points)))

    def __repr__(self) -> str:
        return f"PruningTrial({' '.join(self.findings)})"

    def summary(self) -> dict[str, Any]:
        """Return the numbers as one dict that JSON can hold."""
        return {
            "format": "headscape/pruning-trial/1",
            "method": self.method,
            "plan": self.plan,
            "heads": [list(pair) for pair in self.heads],
            "of": self.n_heads,
            "loss": self.loss,
            "intact_loss": float(self.intact.mean()),
            "increase": {name: json_ready([i.estimate, i.low, i.high]) for name, i in self.increases.items()},
            "windows": {"calibration": self.windows[0], "evaluation": self.windows[1]},
            "savings": None if self.savings is None else self.savings.to_dict(),
            "curve": None if self.curve is None else self.curve.summary(),
            "findings": list(self.findings),
            "warnings": [notice.message for notice in self.warnings],
        }


def _change(saved: FloatArray64) -> str:
    """Return by how much a step after the removal lowers the losses of the held-out windows, in words."""
    lower = bootstrap(saved)
    if lower.low > 0:
        return f"lowers the loss increase, by {lower}."
    if lower.high < 0:
        return f"raises the loss increase, by {bootstrap(-saved)}: calibrate on more windows."
    return f"does not reliably lower the loss increase, by {lower}."


def _of_curve(curve: TradeOff) -> str:
    """Return the Pareto choices of a trade-off in a sentence."""
    named = ", ".join(
        f"{name} ({len(point.heads)} in {point.kind}, {point.increase.estimate:+.3g})"
        for name, point in curve.choices.items()
    )
    return (
        f"Of {counted(len(curve.points), 'size')} compared on {counted(curve.windows, 'other calibration window')}, "
        f"these are Pareto choices (heads removed, loss increase): {named}."
    )
