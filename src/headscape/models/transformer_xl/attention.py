"""Relative attention over a memory and a segment (Dai et al. 2019, arXiv 1901.02860, section 3.3).

With the states x of memory and segment, queries Q = W_q x of the segment, keys K = W_k x and values V = W_v x of
both, the sinusoid R_n of the distance n, and biases u and v per head, the logits are the sum of two terms:

    content     s (q_i + u) . k_j
    position    s (q_i + v) . W_r R_{i-j}

The content term is the product of queries q_i + u and keys; the position term is added to it. Both go to the attention
function of transformers that the model is set to, so that headscape sees them as queries, keys and a bias.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface


class RelativeAttention(nn.Module):
    """The attention of one layer, with its residual connection and normalization."""

    is_causal = True

    def __init__(
        self, config: Any, content_bias: nn.Parameter | None = None, position_bias: nn.Parameter | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.n_head, self.d_head, self.pre_lnorm = config.n_head, config.d_head, config.pre_lnorm
        width = config.n_head * config.d_head
        self.qkv_net = nn.Linear(config.d_model, 3 * width, bias=False)
        self.r_net = nn.Linear(config.d_model, width, bias=False)
        self.o_net = nn.Linear(width, config.d_model, bias=False)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.drop = nn.Dropout(config.dropout)
        # Given where all layers share them.
        shape = (config.n_head, config.d_head)
        self.r_w_bias = nn.Parameter(torch.zeros(shape)) if content_bias is None else content_bias
        self.r_r_bias = nn.Parameter(torch.zeros(shape)) if position_bias is None else position_bias

    def forward(
        self,
        hidden: torch.Tensor,
        memory: torch.Tensor,
        distances: torch.Tensor,
        visible: torch.Tensor,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the new states (batch, query, d_model), and the probabilities if they are asked for.

        ``hidden`` is (batch, query, d_model), ``memory`` (batch, memory, d_model), ``distances`` (key, d_model) from
        the largest to 0, and ``visible`` (batch or 1, 1, query, key).
        """
        both = torch.cat([memory, hidden], dim=1)
        if self.pre_lnorm:
            both = self.layer_norm(both)
        queries, keys, values = (self._heads(x) for x in self.qkv_net(both).chunk(3, dim=-1))
        queries = queries[:, :, memory.shape[1] :]
        scale = self.d_head**-0.5
        position = self.position_logits(queries, distances, scale)
        attend = self._function(output_attentions)
        lowest = torch.finfo(hidden.dtype).min
        output, weights = attend(
            self,
            queries + self.r_w_bias[:, None],
            keys,
            values,
            torch.zeros(visible.shape, dtype=hidden.dtype, device=hidden.device).masked_fill(
                ~visible, lowest
            ),
            scaling=scale,
            dropout=self.config.dropatt if self.training else 0.0,
            position_bias=position.masked_fill(~visible, 0.0),
        )
        output = hidden + self.drop(self.o_net(output.flatten(2)))
        return (output if self.pre_lnorm else self.layer_norm(output)), weights

    def position_logits(self, queries: torch.Tensor, distances: torch.Tensor, scale: float) -> torch.Tensor:
        """Return s (q_i + v) . W_r R_{i-j} as (batch, head, query, key); the future holds no meaningful value."""
        positions = self._heads(self.r_net(distances)[None])
        by_distance = (queries + self.r_r_bias[:, None]) @ positions.transpose(-2, -1) * scale
        return aligned(by_distance)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """Cut (batch, token, head x d) into (batch, head, token, d)."""
        return torch.unflatten(x, -1, (self.n_head, self.d_head)).transpose(1, 2)

    def _function(self, output_attentions: bool) -> Any:
        if output_attentions:
            return eager_attention_forward
        name = self.config._attn_implementation
        return AttentionInterface().get_interface(name, eager_attention_forward)


def aligned(by_distance: torch.Tensor) -> torch.Tensor:
    """Return (..., query, key) from (..., query, distance), distances from the largest to 0.

    Query i of q, at place i + k - q among k keys, has the distance n to key j at column k - 1 - n = q - 1 - i + j. In
    memory, row by row, that is i (k - 1) + (q - 1) + j: windows of k values that start every k - 1 values, from q - 1
    on. Keys in the future get values of other rows.

    Examples
    --------
    >>> aligned(torch.tensor([[2, 1, 0], [12, 11, 10], [22, 21, 20]]))
    tensor([[ 0, 12, 11],
            [11, 10, 22],
            [22, 21, 20]])
    """
    n_queries, n_keys = by_distance.shape[-2:]
    if n_keys == 1:
        return by_distance
    return by_distance.flatten(-2)[..., n_queries - 1 :].unfold(-1, n_keys, n_keys - 1)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output (batch, query, head, d) and the probabilities (batch, head, query, key)."""
    logits = query @ key.transpose(-2, -1) * scaling + attention_mask
    if position_bias is not None:
        logits = logits + position_bias
    weights = functional.softmax(logits, dim=-1)
    output = functional.dropout(weights, dropout, module.training) @ value
    return output.transpose(1, 2), weights
