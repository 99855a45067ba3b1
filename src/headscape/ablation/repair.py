"""Repair: re-fit the output projections, so that the heads that stay carry what the removed ones did.

Layers are fitted one after another, each on what the repaired layers before it give, by the ridge regression of
:mod:`headscape.ablation.ridge_fit`. Its strength and its target are chosen by cross-validation over the calibration
windows (:mod:`headscape.ablation.repair_choice`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.layer_pass import Decide, LayerPasses
from headscape.ablation.moments import Moments, left_out
from headscape.ablation.repair_choice import StrengthChoice, chosen_strength
from headscape.ablation.ridge_fit import Strength, Weights, refitted
from headscape.models.anatomy import Heads, require_known_heads
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection, put_back


@dataclass(frozen=True, eq=False)
class Repair:
    """Output projections for the heads that stay, by layer.

    ``matrices`` (output, head x d) are 0 in the columns of removed heads; ``biases`` (output,) are those of the
    projections that have one, and constants to add where a method has them and the projection has none.
    ``strength`` is how they were fitted, ``choice`` what it was chosen from.
    """

    matrices: Mapping[int, torch.Tensor]
    biases: Mapping[int, torch.Tensor]
    strength: Strength | None = None
    choice: StrengthChoice = field(default_factory=StrengthChoice)

    @classmethod
    def of(
        cls, weights: Mapping[int, Weights], strength: Strength, choice: StrengthChoice | None = None
    ) -> Repair:
        """Return the repair that consists of the weights of some layers."""
        biases = {layer: bias for layer, (_, bias) in weights.items() if bias is not None}
        matrices = {layer: matrix for layer, (matrix, _) in weights.items()}
        return cls(matrices, biases, strength, choice or StrengthChoice())

    @contextmanager
    def applied(self, projections: Mapping[int, Projection]) -> Iterator[None]:
        """Use the repaired projections for the length of a block."""
        touched = [projections[layer] for layer in self.matrices]
        with put_back(touched), ExitStack() as stack:
            for layer, matrix in self.matrices.items():
                projection, bias = projections[layer], self.biases.get(layer)
                projection.write(matrix, bias)
                if bias is not None and projection.bias is None:
                    stack.enter_context(projection.module.register_forward_hook(_adding(bias)))
            yield


def repair(
    evaluator: HeadEvaluator, heads: Heads, ridge: float | None = None, target: float | None = None
) -> Repair:
    """Re-fit the output projection of every layer that loses heads, on the evaluator's windows.

    The model itself is left as it was.

    Parameters
    ----------
    evaluator
        The model and its calibration windows.
    heads
        (layer, head) pairs that go.
    ridge, target
        See :mod:`headscape.ablation.ridge_fit`; by default both are chosen by cross-validation. A ridge alone comes
        with the target 0.

    Notes
    -----
    A pass over the windows, and one more per candidate of the cross-validation. Windows of several shapes take a pass
    per touched layer each time. A fit solves one system of the size of the activations.
    """
    off = require_known_heads(heads, evaluator.modules)
    touched = sorted({layer for layer, _ in off})
    passes = LayerPasses(evaluator)
    gone = {layer: [head for at, head in off if at == layer] for layer in touched}

    def deciding(strength: Strength) -> Decide:
        def decide(layer: int, moments: Sequence[Moments]) -> Sequence[Weights]:
            projection = evaluator.projections[layer]
            return [refitted(projection, part, gone[layer], strength) for part in left_out(list(moments))]

        return decide

    choice = StrengthChoice() if ridge is not None else chosen_strength(passes, touched, deciding)
    strength = choice.best if ridge is None else Strength(ridge, target or 0.0)
    weights = passes.fit(touched, deciding(strength), drift=strength.target > 0)
    return Repair.of(weights, strength, choice)


def _adding(constant: torch.Tensor) -> Any:
    """Return a hook that adds a constant to what a projection gives."""
    return lambda _, __, output: output + constant.to(output)
