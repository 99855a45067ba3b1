"""The optimal brain surgeon on groups of columns: what a layer loses without some of its heads, and its best update.

For a layer with weights W (output, head x d) and H = X^T X / N + damping of its inputs, B = H^-1. Without the columns P

    W <- W - W_P (B_PP)^-1 B_P,:     B <- B - B_:,P (B_PP)^-1 B_P,:     increase = tr(W_P (B_PP)^-1 W_P^T)

which is exact for the squared change of the layer's output, damping included, also over several steps. The change d of
an output may be weighed: with a metric M it counts d^T M d, and the increase is tr(M W_P (B_PP)^-1 W_P^T). The update
is the same for every metric.

References
----------
Hassibi, Stork, "Second order derivatives for network pruning: optimal brain surgeon", 1992; for groups Meng et al.,
"OSSCAR: One-Shot Structured Pruning in Vision and Language Models with Combinatorial Optimization", arXiv 2403.12983.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from headscape.ablation.greedy import Moves
from headscape.ablation.layerwise import removed_within, swapped
from headscape.ablation.moments import Moments
from headscape.models.anatomy import AttentionModule
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection


class BrainSurgeon:
    """One layer without none, some or all of its heads.

    Parameters
    ----------
    projection, moments
        The layer, and the moments of its inputs.
    damping
        As a share of the mean of the diagonal of X^T X.
    metric
        M (output, output); by default all outputs count alike.
    """

    def __init__(
        self,
        projection: Projection,
        moments: Moments,
        damping: float,
        metric: torch.Tensor | None = None,
    ) -> None:
        self.projection = projection
        gram = moments.gram / moments.tokens
        # Of a layer that is given nothing but 0, every scale of the damping is as good.
        scale = float(gram.diagonal().mean()) or 1.0
        damped = gram + damping * scale * torch.eye(len(gram)).to(gram)
        self.weights = projection.matrix.detach().double()
        self.inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
        self._after = lru_cache(maxsize=2)(self._updated)
        self._increases: dict[tuple[int, ...], float] = {}
        self._weighed = self.weights.T @ (self.weights if metric is None else metric @ self.weights)

    def after(self, gone: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return W and B without some heads; the columns that are gone are 0."""
        return self._after(tuple(sorted(gone)))

    def increase(self, gone: Sequence[int]) -> float:
        """Return by how much the squared error of the layer's output increases without some heads (OSSCAR)."""
        key = tuple(sorted(gone))
        if key not in self._increases:
            removed = self.projection.columns(key)
            own = torch.linalg.inv(self.inverse[removed][:, removed])
            self._increases[key] = float((own * self._weighed[removed][:, removed]).sum())
        return self._increases[key]

    price = increase

    def removed(self, module: AttentionModule, quota: int, moves: Moves) -> tuple[int, ...]:
        """Return the heads that a layer loses: the cheapest moves one after another, then swaps while they pay."""

        def added(gone: Sequence[int], move: Sequence[int]) -> float:
            return self.increase([*gone, *move]) - self.increase(gone)

        return swapped(module, removed_within(module, quota, added, moves), self.increase, moves)

    def diagonal_score(self, gone: Sequence[int], move: Sequence[int]) -> float:
        """Return the score of SlimGPT for removing ``move`` after ``gone``.

            sum over columns j of the move of |W_:,j|^2 / L_jj^2,   L the Cholesky factor of B_PP

        Notes
        -----
        It keeps only the diagonal of L, so that it depends on the order of the columns and is below the true increase.

        References
        ----------
        Ling et al., "SlimGPT: Layer-wise Structured Pruning for Large Language Models", arXiv 2412.18110.
        """
        weights, inverse = self.after(gone)
        columns = self.projection.columns(move)
        factor = torch.linalg.cholesky(inverse[columns][:, columns])
        return float((weights[:, columns].square().sum(dim=0) / factor.diagonal().square()).sum())

    def _solved(self, removed: torch.Tensor) -> torch.Tensor:
        """Return W_P (B_PP)^-1."""
        found: torch.Tensor = torch.linalg.solve(
            self.inverse[removed][:, removed], self.weights[:, removed].T
        ).T
        return found

    def _updated(self, gone: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        if not gone:
            return self.weights, self.inverse
        removed = self.projection.columns(gone)
        weights = self.weights - self._solved(removed) @ self.inverse[removed]
        explained = torch.linalg.solve(self.inverse[removed][:, removed], self.inverse[removed])
        inverse = self.inverse - self.inverse[:, removed] @ explained
        weights[:, removed] = 0.0
        return weights, inverse
