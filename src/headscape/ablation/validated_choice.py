"""Choice of heads and repair together, by the loss of calibration windows that each fit has left out.

Layers are visited one after another, each on what the pruned and repaired layers before it give. A plan says how many
heads a layer loses and what removing some of them costs:

| plan | heads of a layer | price |
|---|---|---|
| uniform | the same number each | squared change of the output (OSSCAR, arXiv 2403.12983) |
| global | as the cheapest moves of the whole intact network fall | squared change in the metric of the loss |
| between | halfway between the two | the same |

The metric is that of :mod:`headscape.ablation.output_metric`. In every layer the cheapest moves are taken one after
another, then heads are swapped while that lowers the price. Where heads go in units, plans may fall short of the number
asked for by different numbers; those that fall far short are left out. Plans are compared first, at one strength of the
repair, then strengths under the best plan, then targets (:mod:`headscape.ablation.ridge_fit`). The uniform plan with
the target 0 is OSSCAR, so that the choice departs from the best published method only where windows left out say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headscape.ablation.greedy import Moves, greedy_removal, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.layer_pass import Decide, LayerPasses
from headscape.ablation.layerwise import uniform_quotas
from headscape.ablation.moments import Moments, left_out, total
from headscape.ablation.obs import BrainSurgeon
from headscape.ablation.output_metric import OutputMetric, output_metrics
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

UNIFORM, GLOBAL = "uniform", "global"
FULL = 0.9
"""A plan that removes less than this share of what the fullest does is not compared: removing little costs little."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How many heads every layer loses, and the metric of the layers' outputs (none: all outputs count alike)."""

    quotas: Mapping[int, int]
    metrics: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def layers(self) -> list[int]:
        """Layers that lose heads."""
        return [layer for layer, quota in self.quotas.items() if quota]


def validated_choice(
    evaluator: HeadEvaluator,
    count: int,
    moves: Moves = single_heads,
    metrics: Mapping[int, OutputMetric] | None = None,
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
    metrics
        Those of the evaluator's layers (:func:`output_metrics`), if they are there already.

    Notes
    -----
    A forward and a backward pass over the windows, and one forward pass per plan, strength and target. From a single
    window nothing can be left out: then the first plan is taken, without repair.
    """
    plans = removal_plans(evaluator, count, moves, metrics)
    search = _Search(evaluator, moves, LayerPasses(evaluator))
    tried, removed = {}, {}
    for name, plan in plans.items():
        tried[name] = cross_validated(search.passes, plan.layers, search.deciding(plan), [START])
        removed[name] = sum(map(len, search.gone.values()))
    full = [name for name in tried if removed[name] >= FULL * max(removed.values())]
    name = min(full, key=lambda plan: tried[plan].lowest)
    plan, deciding = plans[name], search.deciding(plans[name])
    choice = chosen_strength(search.passes, plan.layers, deciding, tried[name])
    losses = {plan: found.lowest for plan, found in tried.items()}
    return search.fitted(plan, choice.best, choice, name, losses)


def planned_choice(
    evaluator: HeadEvaluator,
    count: int,
    moves: Moves,
    plan: str,
    strength: Strength,
    metrics: Mapping[int, OutputMetric] | None = None,
) -> Choice:
    """Return the heads that go under a plan and with a strength that are known, in one pass over the windows."""
    planned = removal_plans(evaluator, count, moves, metrics)[plan]
    return _Search(evaluator, moves, LayerPasses(evaluator)).fitted(planned, strength, name=plan)


def removal_plans(
    evaluator: HeadEvaluator,
    count: int,
    moves: Moves,
    metrics: Mapping[int, OutputMetric] | None = None,
) -> dict[str, Plan]:
    """Return the plans of the table at the top of this file."""
    metrics = output_metrics(evaluator) if metrics is None else metrics
    weighed = {layer: metric.fisher for layer, metric in metrics.items()}
    uniform = uniform_quotas(evaluator.modules, count, moves)
    cheapest = dict.fromkeys(uniform, 0)
    prices = intact_prices(evaluator, metrics)
    for step in greedy_removal(evaluator.modules, prices, moves, count, evaluator.progress):
        cheapest[step.layer] += len(step.heads)
    return {
        UNIFORM: Plan(uniform),
        GLOBAL: Plan(cheapest, weighed),
        "between": Plan(between(uniform, cheapest), weighed),
    }


def intact_prices(evaluator: HeadEvaluator, metrics: Mapping[int, OutputMetric]) -> dict[int, BrainSurgeon]:
    """Return what layers of the intact model pay for being without heads, in the metric of the loss."""
    return {
        layer: BrainSurgeon(evaluator.projections[layer], metric.moments, START.ridge, metric.fisher)
        for layer, metric in metrics.items()
    }


def between(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    """Return the means of two numbers a layer, rounded so that they add up to the same.

    Examples
    --------
    >>> between({0: 2, 1: 2, 2: 2}, {0: 1, 1: 2, 2: 3})
    {0: 1, 1: 2, 2: 3}
    """
    sums = np.cumsum([0, *((some[layer] + others[layer]) / 2 for layer in sorted(some))])
    return dict(zip(sorted(some), np.diff(np.floor(sums + 1e-9)).astype(int).tolist(), strict=True))


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
                surgeon = BrainSurgeon(projection, total(moments), damping, plan.metrics.get(layer))
                gone = surgeon.removed(modules[layer], quota, self.moves)
                self.gone[layer], short = gone, quota - len(gone)
                return [refitted(projection, part, gone, strength) for part in left_out(list(moments))]

            return decide

        return with_strength
