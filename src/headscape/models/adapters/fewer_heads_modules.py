"""Attention modules whose heads together may be narrower than the model: what cut plain modules become."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from headscape.errors import ModelError
from headscape.models.adapters.multihead import multihead_forward


class FewerHeadsAttention(nn.MultiheadAttention):
    """torch's module without some of its heads: ``num_heads`` of ``head_dim`` each, whatever ``embed_dim`` is."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the output and, if they are asked for, the probabilities, as ``nn.MultiheadAttention`` does."""
        swap = self.batch_first and query.dim() == 3
        q, k, v = (x.transpose(0, 1) if swap else x for x in (query, key, value))
        output, weights = multihead_forward(
            q,
            k,
            v,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=self.in_proj_weight is None,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(0, 1) if swap else output), weights


class FusedAttention(nn.Module):
    """Self-attention with one linear layer that makes all queries, then all keys, then all values.

    It holds the layers of the module it replaces under their names: ``inputs``, ``output``, and what comes ``after``.
    """

    def __init__(
        self, parts: Mapping[str, nn.Module], inputs: str, output: str, after: str | None, **how: Any
    ) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.inputs, self.output, self.after = inputs, output, after
        self.n_heads: int = how["n_heads"]
        self.n_kv_heads: int = how["n_kv_heads"]
        self.is_causal: bool = how["causal"]
        self.scale: float = how["scale"]
        self.dropout_rate: float = how["dropout"]

    def forward(self, x: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
        """Return the output (batch, token, model) of the hidden states."""
        if any(value is not None and value is not False for value in (*others, *named.values())):
            raise ModelError(
                "this attention module lost heads and takes the hidden states alone, but was given masks or options "
                "too. Switch its heads off instead of removing them: hs.ablation_study."
            )
        n, n_kv = self.n_heads, self.n_kv_heads
        whole = self.get_submodule(self.inputs)(x)
        d = whole.shape[-1] // (n + 2 * n_kv)
        queries, keys, values = (
            torch.unflatten(part, -1, (-1, d)).transpose(1, 2)
            for part in whole.split((n * d, n_kv * d, n_kv * d), dim=-1)
        )
        output = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            dropout_p=self.dropout_rate if self.training else 0.0,
            is_causal=self.is_causal,
            scale=self.scale,
            enable_gqa=n != n_kv,
        )
        found: torch.Tensor = self.get_submodule(self.output)(output.transpose(1, 2).flatten(2))
        if self.after is not None:
            found = self.get_submodule(self.after)(found)
        return found
