"""The rows of a batch, and the queries in them, that the monitor looks at in one attention call."""

from __future__ import annotations

from dataclasses import dataclass

from headscape.models.adapters.attention_interface import MASKED_BELOW
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.lazy_torch import torch

_QUERIES_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Queries and keys of a few rows of an attention call, in float32 or better, without gradients.

    Attributes
    ----------
    queries : (row, head, query, d)
    keys : (row, kv_head, key, d)
    places : (query,) integers
        Which queries of the call these are.
    real_keys, real_queries : (row, key) and (row, query) bool
        False for padding: keys that no query sees, and the queries of the same tokens.
    call
        Where they come from.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    places: torch.Tensor
    real_keys: torch.Tensor
    real_queries: torch.Tensor
    call: AttentionCall

    @property
    def group_size(self) -> int:
        """The number of query heads that share a key-value head."""
        return self.queries.shape[1] // self.keys.shape[1]

    def of_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Repeat what belongs to key-value heads, (row, kv_head, ...), for the heads that read them."""
        return x if self.group_size == 1 else x.repeat_interleave(self.group_size, dim=1)

    def visible(self, row: int, queries: slice) -> torch.Tensor:
        """Return which keys some of the queries see: (1 or head, query, key) bool."""
        return visible_keys(self.call, row, self.places[queries])


def sampled_rows(call: AttentionCall, rows: int, queries: int | None = None) -> SampledRows:
    """Return the first rows of a batch, with all queries or so many evenly spaced ones.

    Parameters
    ----------
    call
        One attention call.
    rows
        How many rows of the batch.
    queries
        How many queries of each row; all by default. The last query is always among them. No random numbers are
        drawn: the model's own must not change.
    """
    n_queries, n_keys = call.queries.shape[2], call.keys.shape[2]
    n_rows = min(rows, call.queries.shape[0])
    device = call.queries.device
    places = torch.arange(n_queries, device=device)
    if queries is not None and queries < n_queries:
        places = (torch.arange(1, queries + 1, device=device) * n_queries) // queries - 1
    q, k = call.queries.detach()[:n_rows], call.keys.detach()[:n_rows]
    wide = torch.promote_types(q.dtype, torch.float32)
    real_keys = torch.stack([_seen_by_any(call, row) for row in range(n_rows)])
    same_tokens = n_queries == n_keys and call.group[1] == "self"
    real_queries = real_keys if same_tokens else real_keys.new_ones((n_rows, n_queries))
    return SampledRows(
        queries=q[:, :, places].to(wide),
        keys=k.to(wide),
        places=places,
        real_keys=real_keys,
        real_queries=real_queries[:, places],
        call=call,
    )


def visible_keys(call: AttentionCall, row: int, places: torch.Tensor) -> torch.Tensor:
    """Return which keys the queries at some places of a row see: (1 or head, query, key) bool."""
    n_queries, n_keys = call.queries.shape[2], call.keys.shape[2]
    keys = torch.arange(n_keys, device=places.device)
    visible = keys.new_ones((1, len(places), n_keys), dtype=torch.bool)
    mask = call.mask
    if mask is not None and mask.dim() == 2:  # flash attention gets the padding only
        visible = visible & mask[_row(mask, row)].bool()
    elif mask is not None:
        rows = mask.detach()[_row(mask, row)][..., places if mask.shape[-2] > 1 else slice(None), :n_keys]
        visible = visible & (rows if rows.dtype == torch.bool else rows > MASKED_BELOW)
    if call.causal:
        # Kernels for decoding align the last query with the last key; without a cache both are the same.
        own = places[:, None] + max(0, n_keys - n_queries)
        visible = visible & (keys <= own)
        if call.window is not None:
            visible = visible & (keys > own - call.window)
    return visible


def added_mask(call: AttentionCall, row: int, places: torch.Tensor) -> torch.Tensor | None:
    """Return what a mask of numbers adds to the logits of a row, which may hold a position bias, if anything."""
    mask = call.mask
    if mask is None or not mask.is_floating_point() or mask.dim() != 4:
        return None
    rows = mask.detach()[_row(mask, row)]
    return rows[:, places if mask.shape[-2] > 1 else slice(None), : call.keys.shape[2]]


def _row(mask: torch.Tensor, row: int) -> int:
    """Return the row of a mask that belongs to a row of the batch: it may be one for all."""
    return row if mask.shape[0] > 1 else 0


def _seen_by_any(call: AttentionCall, row: int) -> torch.Tensor:
    """Return the keys of a row that some query sees, (key,) bool, a block of queries at a time."""
    n_queries, n_keys = call.queries.shape[2], call.keys.shape[2]
    seen = torch.zeros(n_keys, dtype=torch.bool, device=call.queries.device)
    if call.mask is None:
        return ~seen
    for start in range(0, n_queries, _QUERIES_AT_ONCE):
        places = torch.arange(start, min(start + _QUERIES_AT_ONCE, n_queries), device=seen.device)
        seen |= visible_keys(call, row, places).any(dim=0).any(dim=0)
    return seen
