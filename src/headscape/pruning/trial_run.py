"""What a pruning trial measures, each part once: orders of removal, choices, repairs, and losses with heads gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.greedy import Prices
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.output_metric import IntactPrices, intact_prices
from headscape.ablation.rankings import Method
from headscape.ablation.repair import Repair
from headscape.ablation.repair import repair as fitted
from headscape.ablation.ridge_fit import Strength
from headscape.engine import Progress
from headscape.pruning.expected_savings import expected_savings
from headscape.pruning.manifest import Pairs
from headscape.pruning.removal_order import Order, flat, prices_of, removal_order
from headscape.pruning.savings import Savings
from headscape.pruning.sized_choice import Found, SizedChoice, is_sized, sized_choice
from headscape.pruning.trial_parts import (
    TrialParts,
    heads_key,
    order_arrays,
    order_of,
    repair_arrays,
    repair_of,
)
from headscape.recorder.gates import switched_off
from headscape.tensor.store import content_hash

Losses = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrialRun:
    """Measures a trial, leaving out what is finished.

    Parameters
    ----------
    calibrated, comparing, judge
        The model on the windows that calibrate, that compare sizes (None if there are none), and that evaluate.
    method
        How heads are chosen.
    repairs
        Whether output projections are re-fitted.
    parts
        What is finished.
    progress
        Progress callback.
    """

    calibrated: HeadEvaluator
    comparing: HeadEvaluator | None
    judge: HeadEvaluator
    method: Method
    repairs: bool
    parts: TrialParts
    progress: Progress

    @cached_property
    def intact(self) -> IntactPrices:
        """Prices of the intact model; for methods that choose every size anew."""
        return intact_prices(self.calibrated)

    @cached_property
    def prices(self) -> Mapping[int, Prices]:
        """What layers pay for being without heads, by the method."""
        return prices_of(self.calibrated, self.method, lambda: self.intact)

    def order(self, kind: str, count: int | None = None) -> Order:
        """Return the order of removal of a kind, up to so many heads or as far as it goes."""

        def found() -> Order:
            return removal_order(self.calibrated.modules, self.prices, kind, count, self.progress)

        # A score of the user's own may be another one next time: its order is not kept.
        if not isinstance(self.method, str):
            return found()
        name = f"order-{self.method.replace(':', '.')}-{kind.replace(' ', '-')}-{count or 'all'}"
        return order_of(self.parts.get(name, lambda: order_arrays(found())))

    def heads(self, kind: str, steps: Order, count: int | None = None, like: Found | None = None) -> Pairs:
        """Return the heads of a size, given as the first steps of an order: these, or what the method takes instead.

        ``count`` is how many may go, by default as many as the steps take; ``like`` is how another size was found: then
        nothing is cross-validated again.
        """
        if not is_sized(self.method, kind):
            return flat(steps)
        count = len(flat(steps)) if count is None else count

        def chosen() -> dict[str, NDArray[Any]]:
            return sized_choice(self.calibrated, kind, count, self.intact, like).arrays()

        name = f"choice-{self.method}-{kind}-{count}{_suffix(like)}"
        arrays = self.parts.get(name, chosen)
        heads = SizedChoice.of(arrays).heads
        self.parts.get(_found_name(heads), lambda: arrays)
        return heads

    def found(self, heads: Pairs) -> Found | None:
        """Return how heads were found, if their size was chosen by itself."""
        name = _found_name(heads)
        return SizedChoice.of(self.parts.read(name)).found if self.parts.has(name) else None

    def repair(self, heads: Pairs, strength: Strength | None = None) -> Repair | None:
        """Return the re-fitted projections; their strength is chosen by cross-validation unless it is given."""
        if not self.repairs:
            return None

        name = _repair_name(heads, strength)
        arrays = self.parts.get(name, lambda: repair_arrays(self.refit(heads, strength)))
        return repair_of(arrays, next(iter(self.calibrated.projections.values())).matrix)

    def compared(self, heads: Pairs, strength: Strength | None = None) -> Losses:
        """Return the losses without some heads on the windows that compare sizes, repaired if that is asked for.

        The repair of a size that is only compared is not kept: it is large, and its losses are all that is needed.
        """
        evaluator = self.comparing
        assert evaluator is not None  # callers compare nothing without windows

        def found() -> dict[str, Losses]:
            evaluator.losses()  # of the intact model, before anything is changed
            repair = None
            if self.repairs and heads:
                known = self.parts.has(_repair_name(heads, strength))
                repair = self.repair(heads, strength) if known else self.refit(heads, strength)
            return {"losses": _losses(evaluator, heads, repair)}

        return self.parts.get(f"compared-{heads_key(heads)}{_suffix(strength)}{self._how}", found)["losses"]

    def evaluated(
        self, name: str, heads: Pairs, repair: Callable[[], Repair | None] = lambda: None
    ) -> Losses:
        """Return the losses without some heads on the windows that are judged by."""

        def found() -> dict[str, Losses]:
            self.judge.losses()  # of the intact model, before anything is changed
            return {"losses": _losses(self.judge, heads, repair())}

        return self.parts.get(f"{name}-{heads_key(heads)}", found)["losses"]

    def recovery_gain(self, name: str, heads: Pairs, recovery: Repair) -> Losses | None:
        """Return by how much a recovery lowers the losses of windows that it was not trained on; None without any."""
        evaluator = self.comparing
        if evaluator is None:
            return None

        def found() -> dict[str, Losses]:
            evaluator.losses()  # of the intact model, before anything is changed
            return {"losses": _losses(evaluator, heads, recovery)}

        after: Losses = self.parts.get(f"compared-{name}-{heads_key(heads)}", found)["losses"]
        return self.compared(heads) - after

    def savings(self, heads: Pairs) -> Savings:
        """Return what a model without some heads saves."""
        return expected_savings(self.judge.modules, heads)

    def refit(self, heads: Pairs, strength: Strength | None) -> Repair:
        """Return the re-fitted projections without keeping them."""
        found = self.found(heads)
        if strength is None and found is not None:
            strength = found.strength  # chosen together with the heads
        given = (None, None) if strength is None else (strength.ridge, strength.target)
        return fitted(self.calibrated, heads, *given)

    @property
    def _how(self) -> str:
        return "" if self.repairs else "-unrepaired"


def _losses(evaluator: HeadEvaluator, heads: Pairs, repair: Repair | None) -> Losses:
    if repair is None:
        return evaluator.losses(heads)
    with repair.applied(evaluator.projections):
        if min(repair.matrices, default=0) >= min(layer for layer, _ in heads):
            return evaluator.losses(heads)
        # The evaluator takes layers before the first removed head for intact; recovery has changed them.
        with switched_off(evaluator.modules, heads):
            return evaluator.objective.evaluate(evaluator.model).losses


def _repair_name(heads: Pairs, strength: Strength | None) -> str:
    return f"repair-{heads_key(heads)}{_suffix(strength)}"


def _found_name(heads: Pairs) -> str:
    return f"found-{heads_key(heads)}"


def _suffix(given: Strength | Found | None) -> str:
    if given is None:
        return ""
    return f"-{content_hash(np.frombuffer(repr(given).encode(), dtype=np.uint8))[:8]}"
