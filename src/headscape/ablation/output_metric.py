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

from dataclasses import dataclass

from headscape.ablation.activations import signals_by_batch, token_products
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.moments import Moments
from headscape.models.lazy_torch import torch


@dataclass(frozen=True, eq=False)
class OutputMetric:
    """Of one layer of the intact model: ``moments`` of what enters its projection, ``fisher`` F (output, output)."""

    moments: Moments
    fisher: torch.Tensor


def output_metrics(evaluator: HeadEvaluator) -> dict[int, OutputMetric]:
    """Return the metric of every layer.

    Notes
    -----
    One forward and one backward pass over the windows. Memory: two matrices a layer.
    """
    found: dict[int, OutputMetric] = {}
    for layer, activations, gradients in signals_by_batch(evaluator):
        moments, fisher = Moments.of(activations), token_products(gradients, gradients)
        if layer in found:
            moments, fisher = found[layer].moments + moments, found[layer].fisher + fisher
        found[layer] = OutputMetric(moments, fisher)
    return found
