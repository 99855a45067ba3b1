"""Sensitivity of the loss to the gates of the heads."""

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.models.forward_pass import forward
from headscape.models.lazy_torch import torch
from headscape.recorder.gates import frozen, gated


def gradient(evaluator: HeadEvaluator) -> NDArray[np.float64]:
    """Return the mean absolute derivative of the loss by the gate of every head.

        I_h = mean over windows x of | dL(x) / d gate_h |    at gate = 1

    Notes
    -----
    One forward and one backward pass per batch; the windows of a batch have gates of their own, so that the
    absolute value is taken of each.

    References
    ----------
    Michel, Levy, Neubig, "Are Sixteen Heads Really Better than One?", 2019, equation 2; there the scores of a
    layer are divided by their norm, here they are not.
    """
    model, modules, objective = evaluator.model, evaluator.modules, evaluator.objective
    total = np.zeros(len(evaluator.heads))
    with frozen(model):
        for number, batch in enumerate(objective.batches):
            evaluator.progress("gradients of the gates", number, len(objective.batches))
            gates = {m.layer: torch.ones(batch.rows, m.n_heads, requires_grad=True) for m in modules}
            with gated(modules, gates):
                loss = objective.sensitivity(forward(model, batch.call(model), "windows"), batch).sum()
                found = torch.autograd.grad(loss, list(gates.values()))
            total += torch.cat([g.abs().sum(dim=0) for g in found]).double().numpy()
    return total / objective.n_windows
