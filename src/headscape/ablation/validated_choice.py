"""Choice of heads and repair together, by the loss of calibration windows that each fit has left out.

Layers are visited one after another, each on what the pruned and repaired layers before it give. A plan says which
heads a layer loses:

| plan | heads of a layer | which |
|---|---|---|
| uniform | the same number each | the cheapest in squared change of the output (OSSCAR, arXiv 2403.12983) |
| metric | as the cheapest of the whole intact network fall | the cheapest in the metric of the loss |
| half metric | halfway between these two numbers | the same |
| reconstruction | those that "reconstruction" takes | |
| counts | as many as "reconstruction" takes | the cheapest in squared change of the output |
| half counts | halfway between that number and the same number each | the same |

"reconstruction" (:mod:`headscape.ablation.scores.reconstruction`) and the metric
(:mod:`headscape.ablation.output_metric`) weigh changes by the gradients of the intact model. Which of them tells best
what a layer can lose depends on the model, the number of heads and the amount of text, so that windows left out decide.
Where a plan asks for a number, the cheapest moves of a layer are taken one after another, then heads are swapped while
that lowers the price. Where heads go in units, plans may fall short of the number asked for by different numbers; those
that fall far short are left out. Plans are compared first, at one strength of the repair, then strengths under the best
plan, then targets (:mod:`headscape.ablation.ridge_fit`). The uniform plan with the target 0 is OSSCAR, and another plan
is taken only if its loss on windows left out is lower by more than a standard error of the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headscape.ablation.greedy import Moves, Prices, greedy_removal, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.layer_pass import Decide, LayerPasses
from headscape.ablation.layerwise import least_moves, uniform_quotas
from headscape.ablation.moments import Moments, left_out, total
from headscape.ablation.obs import BrainSurgeon
from headscape.ablation.output_metric import IntactPrices, intact_prices
from headscape.ablation.repair import Repair
from headscape.ablation.repair_choice import (
    START,
    Deciding,
    StrengthChoice,
    chosen_strength,
    cross_validated,
)
from headscape.ablation.ridge_fit import NO_REPAIR, Strength, Weights, refitted
from headscape.ablation.rivals import Choice, interleaved
from headscape.models.lazy_torch import torch

UNIFORM, RECONSTRUCTION, METRIC, HALF = "uniform", "reconstruction", "metric", "half"
PLANS = (UNIFORM, METRIC, f"{HALF} {METRIC}", RECONSTRUCTION, "counts", f"{HALF} counts")
FULL = 0.9
"""A plan that removes less than this share of what the fullest does is not compared: removing little costs little."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How many heads every layer loses, and the metric of the layers' outputs (none: all outputs count alike).

    ``heads`` are which ones, where that is known beforehand.
    """

    quotas: Mapping[int, int]
    metrics: Mapping[int, torch.Tensor] = field(default_factory=dict)
    heads: Mapping[int, Sequence[int]] | None = None

    @property
    def layers(self) -> list[int]:
        """Layers that lose heads."""
        return [layer for layer, quota in self.quotas.items() if quota]


def validated_choice(
    evaluator: HeadEvaluator,
    count: int,
    moves: Moves = single_heads,
    intact: IntactPrices | None = None,
) -> Choice:
    """Return the heads that go and the repair, both chosen by the loss of windows left out.

    Parameters
    ----------
    evaluator
        The model and its calibration windows.
    count
        How many heads go at most.
    moves
        Which heads may go together: :func:`single_heads`, :func:`removable_units`, or whole groups.
    intact
        Prices of the intact model on the evaluator's windows, if they are there already.

    Notes
    -----
    A forward and a backward pass over the windows, and one forward pass per plan, strength and target. From a single
    window nothing can be left out: then the first plan is taken, without repair.
    """
    intact = intact or intact_prices(evaluator)
    plans = removal_plans(evaluator, count, moves, intact)
    search = _Search(evaluator, moves, LayerPasses(evaluator, intact.activations))
    tried, removed = {}, {}
    for name, plan in plans.items():
        tried[name] = cross_validated(search.passes, plan.layers, search.deciding(plan), [START])
        removed[name] = sum(map(len, search.gone.values()))
    full = {name: tried[name] for name in tried if removed[name] >= FULL * max(removed.values())}
    name = chosen_plan(full)
    plan, deciding = plans[name], search.deciding(plans[name])
    choice = chosen_strength(search.passes, plan.layers, deciding, tried[name])
    losses = {plan: found.lowest for plan, found in tried.items()}
    return search.fitted(plan, choice.best, choice, name, losses)


def chosen_plan(tried: Mapping[str, StrengthChoice]) -> str:
    """Return the plan with the lowest left-out loss, or the uniform one unless that is lower by a standard error.

    The standard error is that of the difference to the uniform plan, paired over windows: with few windows the lowest
    of several losses is often the luckiest (the one-standard-error rule of Breiman et al., "Classification and
    Regression Trees", 1984).

    Examples
    --------
    >>> found = {"uniform": [3.0, 3.2, 3.1, 3.3], "metric": [2.9, 3.4, 3.0, 3.2]}
    >>> chosen_plan({name: StrengthChoice({START: np.array(losses)}) for name, losses in found.items()})
    'uniform'
    """
    name = min(tried, key=lambda plan: tried[plan].lowest)
    if UNIFORM not in tried or not tried[name].losses:
        return name
    gains = tried[UNIFORM].losses[START] - tried[name].losses[START]
    clear = gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains))
    return name if clear else UNIFORM


def planned_choice(
    evaluator: HeadEvaluator,
    count: int,
    moves: Moves,
    plan: str,
    strength: Strength,
    intact: IntactPrices | None = None,
) -> Choice:
    """Return the heads that go under a plan and with a strength that are known, in one pass over the windows."""
    intact = intact or intact_prices(evaluator)
    planned = RemovalPlans(evaluator, count, moves, intact).plan(plan)
    passes = LayerPasses(evaluator, intact.activations)
    return _Search(evaluator, moves, passes).fitted(planned, strength, name=plan)


@dataclass(frozen=True, eq=False)
class RemovalPlans:
    """The plans of the table at the top of this file, each made when it is asked for."""

    evaluator: HeadEvaluator
    count: int
    moves: Moves
    intact: IntactPrices

    def plan(self, name: str) -> Plan:
        """Return a plan by its name."""
        if name == UNIFORM:
            return Plan(self._uniform)
        if name == RECONSTRUCTION:
            return Plan(_counts(self._reconstruction), heads=self._reconstruction)
        taken = self._by_metric if name.endswith(METRIC) else self._reconstruction
        quotas = _counts(taken)
        if name.startswith(HALF):
            # Where heads go in units, halfway means a number of units.
            unit = max(next(iter(least_moves(m, self.moves)), 1) for m in self.evaluator.modules)
            quotas = between(self._uniform, quotas, unit)
        return Plan(quotas, self._metrics if name.endswith(METRIC) else {})

    @cached_property
    def _uniform(self) -> dict[int, int]:
        return uniform_quotas(self.evaluator.modules, self.count, self.moves)

    @cached_property
    def _reconstruction(self) -> dict[int, list[int]]:
        return self._taken(self.intact.reconstruction)

    @cached_property
    def _by_metric(self) -> dict[int, list[int]]:
        return self._taken(
            {
                layer: BrainSurgeon(
                    self.evaluator.projections[layer], metric.moments, START.ridge, metric.fisher
                )
                for layer, metric in self.intact.metrics.items()
            }
        )

    @property
    def _metrics(self) -> dict[int, torch.Tensor]:
        return {layer: metric.fisher for layer, metric in self.intact.metrics.items()}

    def _taken(self, prices: Mapping[int, Prices]) -> dict[int, list[int]]:
        """Return the heads that go first, by layer."""
        heads: dict[int, list[int]] = {module.layer: [] for module in self.evaluator.modules}
        for step in greedy_removal(
            self.evaluator.modules, prices, self.moves, self.count, self.evaluator.progress
        ):
            heads[step.layer] += step.heads
        return heads


def removal_plans(
    evaluator: HeadEvaluator,
    count: int,
    moves: Moves,
    intact: IntactPrices | None = None,
) -> dict[str, Plan]:
    """Return all plans by name."""
    plans = RemovalPlans(evaluator, count, moves, intact or intact_prices(evaluator))
    return {name: plans.plan(name) for name in PLANS}


def _counts(heads: Mapping[int, Sequence[int]]) -> dict[int, int]:
    return {layer: len(gone) for layer, gone in heads.items()}


def between(some: Mapping[int, int], others: Mapping[int, int], unit: int = 1) -> dict[int, int]:
    """Return the means of two numbers a layer in whole units, rounded so that they add up to as much.

    Examples
    --------
    >>> between({0: 2, 1: 2, 2: 2}, {0: 1, 1: 2, 2: 3})
    {0: 1, 1: 2, 2: 3}
    >>> between({0: 3, 1: 3, 2: 3}, {0: 0, 1: 3, 2: 6}, unit=3)
    {0: 0, 1: 3, 2: 6}
    """
    sums = np.cumsum([0, *((some[layer] + others[layer]) / 2 for layer in sorted(some))])
    found = unit * np.diff(np.floor(sums / unit + 1e-9)).astype(int)
    return dict(zip(sorted(some), found.tolist(), strict=True))


@dataclass(eq=False)
class _Search:
    """Removes heads and repairs layer after layer; ``gone`` are those of the last pass."""

    evaluator: HeadEvaluator
    moves: Moves
    passes: LayerPasses
    gone: dict[int, Sequence[int]] = field(default_factory=dict)

    def fitted(
        self,
        plan: Plan,
        strength: Strength,
        choice: StrengthChoice | None = None,
        name: str = "",
        losses: Mapping[str, float] | None = None,
    ) -> Choice:
        """Return what goes under a plan, and the weights that make up for it."""
        weights = self.passes.fit(plan.layers, self.deciding(plan)(strength), drift=strength.target > 0)
        return Choice(interleaved(self.gone), Repair.of(weights, strength, choice), name, losses or {})

    def deciding(self, plan: Plan) -> Deciding:
        modules = {module.layer: module for module in self.evaluator.modules}

        def with_strength(strength: Strength) -> Decide:
            short = 0  # heads that layers before could not lose because units have sizes
            damping = START.ridge if strength == NO_REPAIR else strength.ridge
            self.gone = {}

            def decide(layer: int, moments: Sequence[Moments]) -> Sequence[Weights]:
                nonlocal short
                projection, quota = self.evaluator.projections[layer], plan.quotas[layer] + short
                if plan.heads is None:
                    surgeon = BrainSurgeon(projection, total(moments), damping, plan.metrics.get(layer))
                    gone: Sequence[int] = surgeon.removed(modules[layer], quota, self.moves)
                else:
                    gone = plan.heads[layer]
                self.gone[layer], short = gone, quota - len(gone)
                return [refitted(projection, part, gone, strength) for part in left_out(list(moments))]

            return decide

        return with_strength
