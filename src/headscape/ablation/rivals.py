"""Published methods that choose heads and make up for them in a way of their own, each as its paper has it.

| method | chooses by | over layers | compensation |
|---|---|---|---|
| flap | fluctuation of the inputs, weighed by the weights | all at once, on the intact model | a constant output |
| wanda-sp | size of weights times size of inputs | the same number each, one after another | none |
| slimgpt | diagonal of the optimal brain surgeon's increase | the same number each, one after another | its update |
| osscar | the exact increase, then swaps | the same number each, one after another | its update |

"One after another" means on the activations that the pruned layers before give. The damping of the last two is chosen
by the same cross-validation as the strength of our own repair.

References
----------
An et al., "Fluctuation-based Adaptive Structured Pruning for Large Language Models", arXiv 2312.11983 (flap, wanda-sp).
Ling et al., "SlimGPT: Layer-wise Structured Pruning for Large Language Models", arXiv 2412.18110.
Meng et al., "OSSCAR: One-Shot Structured Pruning in Vision and Language Models with Combinatorial Optimization",
arXiv 2403.12983.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.greedy import Moves, ScorePrices, greedy_removal, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.layer_pass import Decide, LayerPasses
from headscape.ablation.layerwise import removed_within, uniform_quotas
from headscape.ablation.moments import Moments, left_out, total
from headscape.ablation.obs import BrainSurgeon
from headscape.ablation.repair import Repair
from headscape.ablation.repair_choice import RIDGES, cross_validated
from headscape.ablation.ridge_fit import NO_REPAIR, Strength, Weights, refitted
from headscape.models.anatomy import AttentionModule
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection

FloatArray64 = NDArray[np.float64]
Pick = Callable[[AttentionModule, Projection, Moments, int, Moves, float], Sequence[int]]
"""Chooses the heads that a layer loses, given the moments of its inputs, how many go, and the damping."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Heads that a method removes, the first choice first, with its own compensation.

    ``plan`` is the best of ``plans``, left-out losses by name, where a method compares several.
    """

    heads: tuple[tuple[int, int], ...]
    repair: Repair
    plan: str = ""
    plans: Mapping[str, float] = field(default_factory=dict)


def rival_choice(
    evaluator: HeadEvaluator,
    method: str,
    count: int,
    moves: Moves = single_heads,
    damping: float | None = None,
) -> Choice:
    """Return what a published method does to a model.

    Parameters
    ----------
    evaluator
        The model and its calibration windows.
    method
        "flap", "wanda-sp", "slimgpt" or "osscar".
    count
        How many heads go at most.
    moves
        Which heads may go together: :func:`single_heads` or :func:`removable_units`.
    damping
        Of "slimgpt" and "osscar"; by default chosen by cross-validation.
    """
    if method == "flap":
        return _flap(evaluator, count, moves)
    return _Layerwise(evaluator, count, moves, PICKS[method], method == "wanda-sp").choice(damping)


def _flap(evaluator: HeadEvaluator, count: int, moves: Moves) -> Choice:
    """Return the choice of FLAP: all heads against each other, by scores standardized within each layer."""
    passes, projections = LayerPasses(evaluator), evaluator.projections
    moments: dict[int, Moments] = {}

    def watch(layer: int, found: Sequence[Moments]) -> Sequence[Weights]:
        moments[layer] = total(found)
        return [refitted(projections[layer], moments[layer], (), NO_REPAIR)]

    passes.fit(list(projections), watch, what="fluctuations")
    prices = {
        layer: ScorePrices(flap_scores(projection, moments[layer]))
        for layer, projection in projections.items()
    }
    steps = greedy_removal(evaluator.modules, prices, moves, count, evaluator.progress)
    heads = tuple((step.layer, head) for step in steps for head in step.heads)
    matrices, biases = {}, {}
    for layer, gone in _by_layer(heads).items():
        projection, removed = projections[layer], projections[layer].columns(gone)
        matrices[layer], old = refitted(projection, moments[layer], gone, NO_REPAIR)
        mean = moments[layer].sums[removed] / moments[layer].tokens
        shift = (projection.matrix.detach()[:, removed].double() @ mean).to(matrices[layer])
        biases[layer] = shift if old is None else old + shift
    return Choice(heads, Repair(matrices, biases))


def flap_scores(projection: Projection, moments: Moments) -> FloatArray64:
    """Return the score of every head: the mean over its columns of the standardized fluctuation.

    s_i = (Var(a_i) sum_r W_ri^2)^2,   z_i = (s_i - mean of the layer) / standard deviation of the layer
    """
    mean = moments.sums / moments.tokens
    variance = moments.gram.diagonal() / moments.tokens - mean.square()
    scores = (variance * projection.matrix.detach().double().square().sum(dim=0)).square()
    standardized = (scores - scores.mean()) / scores.std(correction=0)
    return np.asarray(standardized.reshape(projection.n_heads, -1).mean(dim=1).cpu())


def wanda_scores(projection: Projection, moments: Moments) -> torch.Tensor:
    """Return the score of every head: the sum over its columns of mean_r |W_ri| |a_i| / sqrt(N)."""
    norms = (moments.gram.diagonal() / moments.tokens).sqrt()
    columns = projection.matrix.detach().double().abs().mean(dim=0) * norms
    return columns.reshape(projection.n_heads, -1).sum(dim=1)


def _wanda(
    module: AttentionModule, projection: Projection, moments: Moments, quota: int, moves: Moves, _: float
) -> Sequence[int]:
    scores = wanda_scores(projection, moments)
    return removed_within(module, quota, lambda gone, move: float(scores[list(move)].sum()), moves)


def _slimgpt(
    module: AttentionModule,
    projection: Projection,
    moments: Moments,
    quota: int,
    moves: Moves,
    damping: float,
) -> Sequence[int]:
    surgeon = BrainSurgeon(projection, moments, damping)
    return removed_within(module, quota, surgeon.diagonal_score, moves)


def _osscar(
    module: AttentionModule,
    projection: Projection,
    moments: Moments,
    quota: int,
    moves: Moves,
    damping: float,
) -> Sequence[int]:
    return BrainSurgeon(projection, moments, damping).removed(module, quota, moves)


PICKS: Mapping[str, Pick] = {"wanda-sp": _wanda, "slimgpt": _slimgpt, "osscar": _osscar}
RIVALS = ("flap", *PICKS)


@dataclass(eq=False)
class _Layerwise:
    """Layer after layer: choose heads on what the layers before give, make up for them, go on."""

    evaluator: HeadEvaluator
    count: int
    moves: Moves
    pick: Pick
    plain: bool
    gone: dict[int, Sequence[int]] = field(default_factory=dict)

    def choice(self, damping: float | None) -> Choice:
        """Choose the heads of all layers, with the damping that does best on windows left out if none is given."""
        modules = {module.layer: module for module in self.evaluator.modules}
        quotas = uniform_quotas(self.evaluator.modules, self.count, self.moves)
        layers = [layer for layer, quota in quotas.items() if quota]
        passes = LayerPasses(self.evaluator)

        def deciding(strength: Strength) -> Decide:
            short = 0  # heads that layers before could not lose because units have sizes

            def decide(layer: int, moments: Sequence[Moments]) -> Sequence[Weights]:
                nonlocal short
                projection, everything = self.evaluator.projections[layer], total(moments)
                quota = quotas[layer] + short
                gone = self.pick(modules[layer], projection, everything, quota, self.moves, strength.ridge)
                self.gone[layer], short = gone, quota - len(gone)
                how = NO_REPAIR if self.plain else strength
                # As published: the update is that of the weights alone, a bias stays as it is.
                return [
                    refitted(projection, part, gone, how, intercept=False) for part in left_out(list(moments))
                ]

            return decide

        if damping is None:
            candidates = [NO_REPAIR] if self.plain else [Strength(ridge) for ridge in RIDGES]
            strength = cross_validated(passes, layers, deciding, candidates).best
        else:
            strength = Strength(damping)
        weights = passes.fit(layers, deciding(strength), what="choosing heads")
        return Choice(interleaved(self.gone), Repair.of(weights, strength))


def interleaved(gone: Mapping[int, Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return the heads of all layers, the first choice of every layer first, deeper layers first."""
    rows = [[(layer, head) for head in gone[layer]] for layer in sorted(gone, reverse=True)]
    return tuple(pair for place in zip_longest(*rows) for pair in place if pair is not None)


def _by_layer(heads: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for layer, head in heads:
        found.setdefault(layer, []).append(head)
    return found
