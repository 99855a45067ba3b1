"""``torch.nn.MultiheadAttention``: its calls taken apart into heads, and put together again with a gate per head.

    Q = x_q W_Q^T + b_Q,   K = x_k W_K^T + b_K,   V = x_v W_V^T + b_V
    y = sum_h gate_h softmax(Q_h K_h^T / sqrt(d) + M) V_h W_O^h

with W_Q, W_K, W_V the three parts of ``in_proj_weight``, or matrices of their own where ``kdim`` or ``vdim`` differ. A
key of zeros (``add_zero_attn``) has the logit 0 and no value: it is a sink.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headscape.errors import ModelError
from headscape.models.adapters.seen_call import SeenCall, causal_mask, shared_mask
from headscape.models.lazy_torch import torch

Arguments = Mapping[str, Any]


def multihead_arguments(args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``torch.nn.functional.multi_head_attention_forward`` by name, defaults included."""
    bound = inspect.signature(torch.nn.functional.multi_head_attention_forward).bind(*args, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def seen_multihead(given: Arguments, rows: int | None = None) -> SeenCall:
    """Return the queries, keys, values and masks of a call; with ``rows``, those of its first rows without values."""
    for name in ("bias_k", "static_k", "static_v"):
        if given[name] is not None:
            option = "add_bias_kv=True" if name == "bias_k" else name
            raise ModelError(
                f"nn.MultiheadAttention with {option} cannot be observed: it attends to a key that is no token."
            )
    given = given if rows is None else _first_rows(given, rows)
    queries, keys = (_projected(given, name) for name in ("query", "key"))
    values = _projected(given, "value") if rows is None else keys[..., :0]
    padding = given["key_padding_mask"]
    if padding is not None:
        padding = padding if padding.dim() == 2 else padding[None]
        padding = padding if padding.dtype == torch.bool else padding < _LOWEST
    n_heads = queries.shape[1]
    return SeenCall(
        queries,
        keys,
        values,
        mask=_mask(given, queries, keys),
        scale=queries.shape[-1] ** -0.5,
        kind="self" if _same(given["query"], given["key"]) else "cross",
        padding=padding,
        sinks=torch.zeros(n_heads, device=queries.device) if given["add_zero_attn"] else None,
        dropout=given["dropout_p"] if given["training"] else 0.0,
    )


def attended(
    given: Arguments, call: SeenCall, gates: Sequence[torch.Tensor], out_proj: torch.nn.Module | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return what the call returns, with gates on its heads.

    ``out_proj`` is the module of the output projection, if there is one: it is called, so that its hooks are too.
    """
    queries, keys, values, mask = call.queries, call.keys, call.values, call.mask
    if call.sinks is not None:
        nothing = torch.zeros_like(keys[:, :, :1])
        keys, values = (
            torch.cat([keys, nothing], dim=2),
            torch.cat([values, torch.zeros_like(values[:, :, :1])], 2),
        )
        if mask is not None:
            mask = torch.nn.functional.pad(mask, (0, 1), value=True if mask.dtype == torch.bool else 0.0)
    output = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, dropout_p=call.dropout
    )
    output = gate_heads(output, gates).transpose(1, 2).flatten(2)  # rows first, as hooks expect it
    if out_proj is not None and getattr(out_proj, "weight", None) is given["out_proj_weight"]:
        output = out_proj(output)
    else:
        output = torch.nn.functional.linear(output, given["out_proj_weight"], given["out_proj_bias"])
    output = output.transpose(0, 1)
    weights = _weights(queries, keys, mask, call.scale) if given["need_weights"] else None
    if weights is not None and given["average_attn_weights"]:
        weights = weights.mean(dim=1)
    if given["query"].dim() == 2:
        return output[:, 0], None if weights is None else weights[0]
    return output, weights


def multihead_forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Do what ``multi_head_attention_forward`` does, also where the heads together are narrower than the model."""
    tensors = (query, key, value)
    if torch.overrides.has_torch_function(tensors):
        found: tuple[torch.Tensor, torch.Tensor | None] = torch.overrides.handle_torch_function(
            multihead_forward, tensors, query, key, value, *others, **named
        )
        return found
    given = multihead_arguments((query, key, value, *others), named)
    return attended(given, seen_multihead(given), ())


def gate_heads(output: torch.Tensor, gates: Sequence[torch.Tensor]) -> torch.Tensor:
    """Multiply an output (batch, head, query, d) by gates, (head,) or (batch, head) each."""
    for gate in gates:
        output = output * gate.to(output)[..., None, None]
    return output


_LOWEST = -9_999.0


def _first_rows(given: Arguments, n: int) -> Arguments:
    """Return the arguments of the first rows of the batch, which is the second axis of what is projected."""
    found = dict(given)
    for name in ("query", "key", "value"):
        found[name] = given[name][:, :n] if given[name].dim() == 3 else given[name]
    sizes = {"attn_mask": (3, n * given["num_heads"]), "key_padding_mask": (2, n)}
    for name, (axes, size) in sizes.items():
        mask = given[name]
        if (
            mask is not None and mask.dim() == axes
        ):  # once for all layers, so that they share what is made of it
            found[name] = shared_mask((mask,), ("first", size), partial(_first, mask, size))
    return found


def _first(x: torch.Tensor, size: int) -> torch.Tensor:
    return x[:size]


def _projected(given: Arguments, name: str) -> torch.Tensor:
    """Return queries, keys or values as (batch, head, token, d)."""
    place = ("query", "key", "value").index(name)
    if given["use_separate_proj_weight"]:
        matrix = given[f"{name[0]}_proj_weight"]
    else:
        matrix = given["in_proj_weight"].chunk(3)[place]
    bias = given["in_proj_bias"]
    x = given[name] if given[name].dim() == 3 else given[name][:, None]
    projected = torch.nn.functional.linear(x, matrix, None if bias is None else bias.chunk(3)[place])
    return torch.unflatten(projected, -1, (given["num_heads"], -1)).permute(1, 2, 0, 3)


def _mask(given: Arguments, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
    """Return both masks as one, (batch or 1, head or 1, query, key), to be added to the logits."""
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    rows, n_heads, n_queries, n_keys = *queries.shape[:3], keys.shape[2]
    # The hint takes the place of the mask exactly where torch lets it.
    hint = given["is_causal"] and padding is None and not given["need_weights"]

    def make() -> torch.Tensor | None:
        if hint:
            return causal_mask(n_queries, n_keys, queries.device)
        terms = []
        if mask is not None:
            whole = _additive(mask, queries)
            terms.append(
                whole[None, None] if mask.dim() == 2 else whole.reshape(rows, n_heads, n_queries, n_keys)
            )
        if padding is not None:
            terms.append(_additive(padding, queries).reshape(rows, 1, 1, n_keys))
        if not terms:
            return None
        total = sum(terms[1:], start=terms[0])
        return total.expand(*total.shape[:2], n_queries, n_keys)

    return shared_mask((mask, padding), (hint, rows, n_heads, n_queries, n_keys, queries.dtype), make)


def _additive(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a mask as numbers to add; torch's own booleans are True where a key is hidden."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(mask, -torch.inf)


def _weights(
    queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    logits = queries @ keys.transpose(-2, -1) * scale
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(dim=-1)


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Tell whether two tensors are one, or views of one that show the same."""
    return x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride())
