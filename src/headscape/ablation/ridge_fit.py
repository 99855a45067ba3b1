"""The output projection of a layer re-fitted without some of its heads: ridge regression towards the old weights.

    V = argmin over V, b of  sum_t | y_t - V a_{t,S} - b |^2 + lambda m |V - W_S|^2

where a_t are the layer's activations in the pruned model, S the columns that stay, m the mean of sum_t a_{t,i}^2 over
all columns, b the bias if the projection has one, and the target lies between what the old weights W give on the
pruned model's own activations and what they gave in the intact model,

    y_t = W ((1 - theta) a_t + theta a0_t)

With theta = 0 this is the update of the optimal brain surgeon with damping lambda (OSSCAR, arXiv 2403.12983;
SlimGPT, arXiv 2412.18110): for a given set of removed columns both have the same solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headscape.ablation.moments import Moments
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection

Weights = tuple["torch.Tensor", "torch.Tensor | None"]
"""A matrix (output, head x d), 0 in the columns that are gone, and the bias if there is one."""


@dataclass(frozen=True, order=True)
class Strength:
    """How a projection is re-fitted: ``ridge`` lambda, ``target`` theta; an infinite ridge leaves the weights alone.

    Examples
    --------
    >>> print(Strength(0.1, 0.5)); print(Strength(math.inf))
    ridge 0.1, target 0.5
    no repair
    """

    ridge: float
    target: float = 0.0

    def __str__(self) -> str:
        if math.isinf(self.ridge):
            return "no repair"
        return f"ridge {self.ridge:g}, target {self.target:g}"


NO_REPAIR = Strength(math.inf)


def refitted(
    projection: Projection,
    moments: Moments,
    gone: Sequence[int],
    strength: Strength,
    intercept: bool = True,
) -> Weights:
    """Return the weights of a layer without the heads ``gone``: see the formula at the top of this file.

    Without ``intercept`` a bias stays as it is.
    """
    old, bias = projection.matrix.detach(), projection.bias
    removed = projection.columns(gone)
    kept = projection.columns([head for head in range(projection.n_heads) if head not in gone])
    matrix = old.clone()
    matrix[:, removed] = 0.0
    if math.isinf(strength.ridge) or not len(kept):
        return matrix, None if bias is None else bias.detach().clone()
    weights = old.double()
    gram, n = moments.gram[kept][:, kept], moments.tokens
    cross = moments.gram[kept][:, removed] @ weights[:, removed].T
    mean, rest = moments.sums / n, weights[:, removed] @ (moments.sums[removed] / n)
    if strength.target:
        assert moments.drift is not None  # asked for together with the target
        assert moments.drift_sums is not None
        cross = cross + strength.target * (moments.drift[kept] @ weights.T)
        rest = rest + strength.target * (weights @ (moments.drift_sums / n))
    if bias is not None and intercept:
        gram = gram - n * torch.outer(mean[kept], mean[kept])
        cross = cross - n * torch.outer(mean[kept], rest)
    # Of a layer that is given nothing but 0, every scale of the damping is as good.
    damping = strength.ridge * (float(moments.gram.diagonal().mean()) or 1.0)
    change = torch.linalg.solve(gram + damping * torch.eye(len(gram)).to(gram), cross)
    matrix[:, kept] += change.T.to(matrix)
    if bias is None or not intercept:
        return matrix, None if bias is None else bias.detach().clone()
    return matrix, bias.detach() + (rest - mean[kept] @ change).to(bias)
