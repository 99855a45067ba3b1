"""How strong a repair is, and towards what: chosen by losses of calibration windows that each fit has left out.

A candidate is a ridge and a target (:mod:`headscape.ablation.ridge_fit`); doing nothing is the end of the row of
ridges, so that a repair has to earn its place. Candidates are compared by the mean loss of all calibration windows,
each in a model whose projections were fitted without the fold it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.layer_pass import Decide, LayerPasses, folds_of
from headscape.ablation.ridge_fit import NO_REPAIR, Strength

FOLDS = 4
"""Folds of the calibration windows; fewer windows are left out one by one."""
RIDGES = (0.001, 0.01, 0.1, 1.0)
"""Candidates for the ridge, and for the damping of published methods."""
TARGETS = (0.0, 0.5, 1.0)
"""Candidates for the target: 0 is the old weights on the pruned model's own activations, 1 the intact outputs."""
START = Strength(0.1)
"""Where the choice of the strength begins."""

Deciding = Callable[[Strength], Decide]


@dataclass(frozen=True, eq=False)
class StrengthChoice:
    """Losses of the calibration windows by candidate; :attr:`best` has the lowest mean.

    Examples
    --------
    >>> choice = StrengthChoice({NO_REPAIR: np.array([2.0, 4.0]), Strength(0.1): np.array([2.0, 3.0])})
    >>> print(choice.best)
    ridge 0.1, target 0
    """

    losses: Mapping[Strength, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def best(self) -> Strength:
        """The candidate with the lowest mean loss; nothing is re-fitted where nothing could be compared."""
        return min(self.losses, key=lambda strength: float(self.losses[strength].mean()), default=NO_REPAIR)

    @property
    def lowest(self) -> float:
        """The lowest mean loss; infinite where nothing could be compared."""
        return min((float(losses.mean()) for losses in self.losses.values()), default=np.inf)

    def summary(self) -> list[dict[str, float | None]]:
        """Return the candidates with their mean losses as JSON can hold them; a ridge of None is no repair."""
        return [
            {
                "ridge": None if strength == NO_REPAIR else strength.ridge,
                "target": strength.target,
                "loss": float(losses.mean()),
            }
            for strength, losses in self.losses.items()
        ]


def cross_validated(
    passes: LayerPasses,
    layers: Sequence[int],
    deciding: Deciding,
    candidates: Iterable[Strength],
    known: StrengthChoice | None = None,
) -> StrengthChoice:
    """Return the left-out losses of candidates, and of those that are known already.

    A single window cannot be left out: then nothing is compared.
    """
    n_windows = passes.evaluator.objective.n_windows
    losses = {} if known is None else dict(known.losses)
    if n_windows < 2:
        return StrengthChoice(losses)
    folds = folds_of(n_windows, FOLDS)
    for strength in candidates:
        if strength not in losses:
            losses[strength] = passes.losses(layers, deciding(strength), folds, drift=strength.target > 0)
    return StrengthChoice(losses)


def chosen_strength(
    passes: LayerPasses, layers: Sequence[int], deciding: Deciding, known: StrengthChoice | None = None
) -> StrengthChoice:
    """Choose ridge and target one after the other: ridges at the target 0, then targets at the best ridge.

    Ridges are walked from :data:`START` to the neighbor that is better, as long as there is one; "no repair" is the
    neighbor of the largest. Targets are walked from 0 in the same way.

    Notes
    -----
    One pass over the calibration windows per candidate that is not known: usually four or five.
    """
    walk = [*(Strength(ridge) for ridge in RIDGES), NO_REPAIR]

    def tried(candidates: Iterable[Strength], so_far: StrengthChoice | None) -> StrengthChoice:
        return cross_validated(passes, layers, deciding, candidates, so_far)

    choice, at = tried([START], known), walk.index(START)
    while choice.losses:
        choice = tried(walk[max(0, at - 1) : at + 2], choice)
        if walk.index(choice.best) == at:
            break
        at = walk.index(choice.best)
    if choice.best == NO_REPAIR:
        return choice
    for target in TARGETS[1:]:
        choice = tried([replace(choice.best, target=target)], choice)
        if choice.best.target < target:
            break
    return choice
