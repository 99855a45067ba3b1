"""A row of a batch, and the queries in it, that the monitor looks at in one attention call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headscape.models.adapters.attention_interface import MASKED_BELOW
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.lazy_torch import torch
from headscape.monitor.workspace import at_once, token_slices

_BYTES_OF_CHECK = 8  # of an entry: itself where it is copied, and a few booleans


@dataclass(frozen=True, eq=False)
class SampledRow:
    """A copy of the queries and keys of one row of an attention call, in float32 or better, without gradients.

    Attributes
    ----------
    queries : (head, query, d)
    keys : (kv_head, key, d)
        0 for padding and in place of entries that are not finite. In memory, the heads of a token lie side by side.
    nonfinite : (head,) integers
        How many entries of the queries and keys of a head are NaN or infinite.
    places : (query,) integers
        Which queries of the call these are.
    real_keys, real_queries : (key,) and (query,) bool
        False for padding: keys that no query sees, and the queries of the same tokens.
    call, row
        Where they come from.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    nonfinite: torch.Tensor
    places: torch.Tensor
    real_keys: torch.Tensor
    real_queries: torch.Tensor
    call: AttentionCall
    row: int

    @property
    def group_size(self) -> int:
        """The number of query heads that share a key-value head."""
        return self.queries.shape[0] // self.keys.shape[0]

    def keys_of(self, heads: slice) -> slice:
        """Return the key-value heads that some consecutive heads read."""
        return slice(heads.start // self.group_size, -(-heads.stop // self.group_size))

    def visible(self, queries: slice, heads: slice) -> torch.Tensor:
        """Return which keys some of the queries of some heads see: (1 or head, query, key) bool, without padding."""
        seen = visible_keys(self.call, self.row, self.places[queries], heads)
        return seen.logical_and_(self.real_keys).logical_and_(self.real_queries[queries, None])


def sampled_row(call: AttentionCall, row: int, queries: int | None = None) -> SampledRow:
    """Return a row of a batch, with all queries or so many evenly spaced ones.

    Parameters
    ----------
    call
        One attention call.
    row
        Which row of the batch.
    queries
        How many queries; all by default. The last query is always among them. No random numbers are drawn: the
        model's own must not change.
    """
    q, k = call.queries.detach()[row], call.keys.detach()[row]
    n_queries, n_keys = q.shape[1], k.shape[1]
    places = torch.arange(n_queries, device=q.device)
    same_tokens = n_queries == n_keys and call.group[1] == "self"
    real_keys = _seen_by_any(call, row)
    real_queries = real_keys if same_tokens else real_keys.new_ones(n_queries)
    if queries is not None and queries < n_queries:
        places = (torch.arange(1, queries + 1, device=q.device) * n_queries) // queries - 1
        q, real_queries = q[:, places], real_queries[places]
    bad_q, bad_k = _nonfinite(q), _nonfinite(k)
    padded = call.mask is not None
    return SampledRow(
        queries=_clean_copy(q, real_queries if padded else None),
        keys=_clean_copy(k, real_keys if padded else None),
        nonfinite=bad_q + bad_k.repeat_interleave(len(bad_q) // len(bad_k)),
        places=places,
        real_keys=real_keys,
        real_queries=real_queries,
        call=call,
        row=row,
    )


def _nonfinite(x: torch.Tensor) -> torch.Tensor:
    """Return how many entries of (head, token, d) are NaN or infinite, per head."""
    bad = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for block in token_slices(x.shape[1], at_once(_BYTES_OF_CHECK * x.shape[0] * x.shape[2])):
        bad += x[:, block].isfinite().logical_not_().sum(dim=(1, 2))
    return bad


def _clean_copy(x: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """Return a wide copy of (head, token, d) with 0 for padding and what is not finite, token by token in memory."""
    wide = torch.promote_types(x.dtype, torch.float32)
    by_token = x.transpose(0, 1).to(wide, copy=True, memory_format=torch.contiguous_format)
    by_token.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    if real is not None:
        by_token.mul_(real[:, None, None])
    return by_token.transpose(0, 1)


def visible_keys(
    call: AttentionCall, row: int, places: torch.Tensor, heads: slice = slice(None)
) -> torch.Tensor:
    """Return which keys the queries at some places of a row see: (1 or head, query, key) bool."""
    n_queries, n_keys = call.queries.shape[2], call.keys.shape[2]
    keys = torch.arange(n_keys, device=places.device)
    visible = keys.new_ones((1, len(places), n_keys), dtype=torch.bool)
    mask = call.mask
    if mask is not None and mask.dim() == 2:  # flash attention gets the padding only
        visible = visible.logical_and_(mask[_row(mask, row)].bool())
    elif mask is not None:
        rows = _mask_rows(mask, row, places, heads)[..., :n_keys]
        visible = visible & (rows if rows.dtype == torch.bool else rows > MASKED_BELOW)
    if call.causal:
        # Kernels for decoding align the last query with the last key; without a cache both are the same.
        own = places[:, None] + max(0, n_keys - n_queries)
        visible = visible.logical_and_(keys <= own)
        if call.window is not None:
            visible = visible.logical_and_(keys > own - call.window)
    return visible


def added_terms(row: SampledRow, queries: slice, heads: slice) -> Iterator[torch.Tensor]:
    """Yield what a mask of numbers and a bias add to logits of a row, (1 or head, query, key) each.

    A mask of numbers may hold a position bias.
    """
    places, n_keys = row.places[queries], row.keys.shape[1]
    for term in (row.call.mask, row.call.bias):
        if term is not None and term.dim() == 4 and term.is_floating_point():
            yield _mask_rows(term, row.row, places, heads)[..., :n_keys]


def _mask_rows(mask: torch.Tensor, row: int, places: torch.Tensor, heads: slice) -> torch.Tensor:
    """Return the part of a mask or bias (row, head, query, key) that belongs to queries of some heads of a row."""
    of_row = mask.detach()[_row(mask, row)]
    of_heads = of_row[heads] if of_row.shape[0] > 1 else of_row
    return of_heads if of_heads.shape[-2] == 1 else of_heads[:, places]


def _row(mask: torch.Tensor, row: int) -> int:
    """Return the row of a mask that belongs to a row of the batch: it may be one for all."""
    return row if mask.shape[0] > 1 else 0


def _seen_by_any(call: AttentionCall, row: int) -> torch.Tensor:
    """Return the keys of a row that some query sees, (key,) bool, a block of queries at a time."""
    n_queries, n_keys = call.queries.shape[2], call.keys.shape[2]
    device = call.queries.device
    seen = torch.zeros(n_keys, dtype=torch.bool, device=device)
    if call.mask is None:
        return ~seen
    n_heads = call.mask.shape[1] if call.mask.dim() == 4 else 1
    for block in token_slices(n_queries, at_once(_BYTES_OF_CHECK * n_heads * n_keys)):
        places = torch.arange(block.start, block.stop, device=device)
        seen |= visible_keys(call, row, places).any(dim=0).any(dim=0)
    return seen
