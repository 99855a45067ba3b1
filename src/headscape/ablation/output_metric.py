"""How much the changes of a layer's output matter: the second moment of the loss's gradients there.

A change d_t of a layer's output at token t changes the loss by g_t . d_t to first order, with the mean square
d_t^T F d_t / N over tokens if the change does not depend on the gradient, where

    F = sum_t g_t g_t^T

is the empirical Fisher information of the output. Changes of different layers can be compared by it. In place of
sum_t (g_t . d_t)^2, which needs every token, the price of removing heads is a trace of small matrices
(:mod:`headscape.ablation.obs`), and can be computed again on the pruned model's activations without new gradients.

References
----------
Martens, Grosse, "Optimizing neural networks with Kronecker-factored approximate curvature", arXiv 1503.05671: the same
separation of what enters a layer from the gradients behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headscape.ablation.activations import LayerSignals, layer_signals, token_products
from headscape.ablation.greedy import Prices, RememberedPrices
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.moments import Moments, total
from headscape.ablation.scores.reconstruction import ReconstructionPrices
from headscape.models.lazy_torch import torch


@dataclass(frozen=True, eq=False)
class OutputMetric:
    """Of one layer of the intact model: ``moments`` of what enters its projection, ``fisher`` F (output, output)."""

    moments: Moments
    fisher: torch.Tensor

    @classmethod
    def of(cls, signals: LayerSignals) -> OutputMetric:
        """Return the metric of a layer with these activations and gradients."""
        fisher = [token_products(gradients, gradients) for gradients in signals.gradients]
        return cls(total(Moments.of(some) for some in signals.activations), torch.stack(fisher).sum(dim=0))


@dataclass(frozen=True, eq=False)
class IntactPrices:
    """What the layers of the intact model pay for being without heads: token by token, and in a metric.

    ``activations`` (token, head x d) are what enters the projections of the layers.
    """

    reconstruction: Mapping[int, Prices]
    metrics: Mapping[int, OutputMetric]
    activations: Mapping[int, torch.Tensor]


def intact_prices(evaluator: HeadEvaluator) -> IntactPrices:
    """Return the prices of all layers.

    Notes
    -----
    One forward and one backward pass over the windows. Memory: that of the activations and gradients of all tokens.
    """
    signals, prices, metrics, activations = layer_signals(evaluator), {}, {}, {}
    for layer, projection in evaluator.projections.items():
        found = signals.pop(layer)
        metrics[layer] = OutputMetric.of(found)
        reconstruction = ReconstructionPrices(found, projection, gram=metrics[layer].moments.gram)
        prices[layer], activations[layer] = RememberedPrices(reconstruction), reconstruction.activations
    return IntactPrices(prices, metrics, activations)
