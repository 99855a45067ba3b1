"""Adaptive embeddings and the adaptive softmax: tokens in clusters by frequency, rare ones narrower.

    embedding     e(w) = sqrt(d) P_c E_c[w]                                    w in cluster c
    output        log p(w) = log p(w | c) + log p(c),   p(w | c) = softmax(E'_c P'_c^T h)

where the tokens of the first cluster and one entry per other cluster share one softmax, so that p(c) of the first is
1 (Grave et al. 2017, arXiv 1609.04309; Baevski and Auli 2019, arXiv 1809.10853).
"""

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

IGNORED = -100


class AdaptiveEmbedding(nn.Module):
    """Embeds tokens, cluster by cluster."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.ends = _ends(config)
        self.scale = config.d_model**0.5
        sizes, widths = _sizes(config), _widths(config)
        self.emb_layers = nn.ModuleList(nn.Embedding(n, d) for n, d in zip(sizes, widths, strict=True))
        self.emb_projs = _projections(config, widths)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return (batch, token, d_model)."""
        if len(self.emb_layers) == 1:
            only: torch.Tensor = self._projected(self.emb_layers[0](ids), 0) * self.scale
            return only
        found = self.emb_projs[0].new_zeros(*ids.shape, self.emb_projs[0].shape[0])
        for cluster, (start, end) in enumerate(pairwise(self.ends)):
            inside = (ids >= start) & (ids < end)
            found[inside] = self._projected(self.emb_layers[cluster](ids[inside] - start), cluster)
        scaled: torch.Tensor = found * self.scale
        return scaled

    def _projected(self, x: torch.Tensor, cluster: int) -> torch.Tensor:
        return functional.linear(x, self.emb_projs[cluster]) if len(self.emb_projs) else x


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of tokens, or of given tokens alone, which is what training needs."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.ends = _ends(config)
        sizes, widths = _sizes(config), _widths(config)
        self.narrowing = config.div_val > 1
        if self.n_clusters:
            self.cluster_weight = nn.Parameter(torch.zeros(self.n_clusters, config.d_embed))
            self.cluster_bias = nn.Parameter(torch.zeros(self.n_clusters))
        self.out_layers = nn.ModuleList(nn.Linear(d, n) for n, d in zip(sizes, widths, strict=True))
        self.out_projs = _projections(
            config, widths if self.narrowing else [config.d_embed] * (len(self.ends) - 1)
        )

    @property
    def n_clusters(self) -> int:
        """Clusters beside the first."""
        return len(self.ends) - 2

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities (..., token) of all tokens."""
        head = self._first(hidden)
        others = [
            self._rest(hidden, cluster) + head[..., self.ends[1] + cluster - 1, None]
            for cluster in range(1, self.n_clusters + 1)
        ]
        return torch.cat([head[..., : self.ends[1]], *others], dim=-1)

    def loss(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-probability of the targets that are not -100.

        Only the clusters of the targets are computed, each for its own tokens.
        """
        hidden, targets = hidden[targets != IGNORED], targets[targets != IGNORED]
        head = self._first(hidden)
        entries = targets.clone()
        total = hidden.new_zeros(())
        for cluster in range(1, self.n_clusters + 1):
            inside = (targets >= self.ends[cluster]) & (targets < self.ends[cluster + 1])
            entries[inside] = self.ends[1] + cluster - 1
            places = targets[inside] - self.ends[cluster]
            total = total - self._rest(hidden[inside], cluster).gather(-1, places[:, None]).sum()
        return (total - head.gather(-1, entries[:, None]).sum()) / len(targets)

    def _first(self, hidden: torch.Tensor) -> torch.Tensor:
        weight, bias = self._rows(0)
        if self.n_clusters:
            weight = torch.cat([weight, self.cluster_weight])
            bias = torch.cat([bias, self.cluster_bias])
        return self._log_softmax(hidden, 0, weight, bias)

    def _rest(self, hidden: torch.Tensor, cluster: int) -> torch.Tensor:
        return self._log_softmax(hidden, cluster, *self._rows(cluster))

    def _rows(self, cluster: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weight and bias of a cluster; clusters of one width share one layer."""
        layer: Any = self.out_layers[cluster if self.narrowing else 0]
        rows = slice(None) if self.narrowing else slice(self.ends[cluster], self.ends[cluster + 1])
        return layer.weight[rows], layer.bias[rows]

    def _log_softmax(
        self, hidden: torch.Tensor, cluster: int, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        projected = hidden @ self.out_projs[cluster] if len(self.out_projs) else hidden
        return functional.log_softmax(functional.linear(projected, weight, bias), dim=-1)


def _ends(config: Any) -> list[int]:
    return [0, *config.cutoffs, config.vocab_size]


def _sizes(config: Any) -> list[int]:
    """Return how many tokens each embedding layer has: clusters of one width share one."""
    ends = _ends(config)
    return [end - start for start, end in pairwise(ends)] if config.div_val > 1 else [config.vocab_size]


def _widths(config: Any) -> list[int]:
    return [config.d_embed // config.div_val**i for i in range(len(_sizes(config)))]


def _projections(config: Any, widths: list[int]) -> nn.ParameterList:
    """Return matrices (d_model, width); none where embeddings are as wide as the layers."""
    if config.div_val == 1 and config.d_embed == config.d_model:
        return nn.ParameterList()
    return nn.ParameterList(nn.Parameter(torch.zeros(config.d_model, width)) for width in widths)
