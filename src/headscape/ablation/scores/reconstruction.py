"""Greedy removal by what the heads that stay cannot make up for, weighed by the gradient of the loss.

For a layer with activations a_t (all heads side by side) entering its output projection W and gradients g_t of the
loss at its output: without the heads R, and with W re-fitted by least squares for the heads S that stay, the
output changes by

    d_t = W_R e_t,   e_t = a_{t,R} - K^T a_{t,S},   K = (A_S^T A_S + lambda I)^-1 A_S^T A_R

since the re-fitted projection W_S + W_R K^T adds to what S wrote what S can predict of R. With one inverse for all sets
R of a layer, B = (A^T A + lambda I)^-1, this is e_t = (B_RR)^-1 B_R,: a_t. The price of R is the squared change of the
loss to first order, summed over tokens,

    price(R) = sum_t (g_t . d_t)^2 = sum_t (u_{t,R} . e_t)^2,   u_t = W^T g_t
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.activations import LayerSignals, layer_signals, token_products
from headscape.ablation.greedy import greedy_removal, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.models.lazy_torch import torch
from headscape.models.linear_layers import linear
from headscape.models.projection import Projection

RIDGE = 1e-3
"""lambda, as a share of the mean square of the activations."""


def reconstruction(evaluator: HeadEvaluator) -> NDArray[np.float64]:
    """Return the place of every head in the greedy order; past ``evaluator.count``, remaining heads are unranked."""
    heads, count = evaluator.heads, evaluator.count or len(evaluator.heads)
    steps = greedy_removal(
        evaluator.modules, reconstruction_prices(evaluator), single_heads, count, evaluator.progress
    )
    order = [(step.layer, head) for step in steps for head in step.heads]
    places = np.full(len(heads), float(len(heads)))
    for place, pair in enumerate(order):
        places[heads.index(pair)] = place
    return places


def reconstruction_prices(evaluator: HeadEvaluator) -> "Mapping[int, ReconstructionPrices]":
    """Return the prices of all layers."""
    signals = layer_signals(evaluator)
    return {
        layer: ReconstructionPrices(signals.pop(layer), projection)
        for layer, projection in evaluator.projections.items()
    }


class ReconstructionPrices:
    """Prices of one layer: see the formula at the top of this file.

    Parameters
    ----------
    signals, projection
        The layer.
    ridge
        lambda, as a share of the mean square of the activations.
    gram
        A^T A, if it is known.

    Notes
    -----
    A price is one solve of the size of R and one product (token, S + R) x (S + R, R).
    """

    def __init__(
        self,
        signals: LayerSignals,
        projection: Projection,
        ridge: float = RIDGE,
        gram: "torch.Tensor | None" = None,
    ) -> None:
        self.activations = torch.cat(signals.activations).float()
        self.weighed = linear(torch.cat(signals.gradients).float(), projection.matrix.detach().float().T)
        self.projection = projection
        if gram is None:
            gram = token_products(self.activations, self.activations)
        # Of a layer that is given nothing but 0, every scale of the ridge is as good.
        scale = float(gram.diagonal().mean()) or 1.0
        damped = gram + ridge * scale * torch.eye(len(gram)).to(gram)
        self.inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))

    def price(self, gone: Sequence[int]) -> float:
        """Return the price of being without these heads."""
        removed = self.projection.columns(list(gone))
        rows = self.inverse[removed]
        unexplained = linear(self.activations, torch.linalg.solve(rows[:, removed], rows).float())
        return float((unexplained * self.weighed[:, removed]).sum(dim=1).double().square().sum())
