"""The rows of a batch, and the queries in them, that the monitor looks at in one attention call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headscape.models.adapters.attention_interface import MASKED_BELOW
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.lazy_torch import torch
from headscape.monitor.workspace import at_once, token_slices

_BYTES_OF_CHECK = 8  # of an entry: itself where it is copied, and a few booleans


@dataclass(frozen=True, eq=False)
class SampledRows:
    """A copy of the queries and keys of rows that see the same keys, in float32 or better, without gradients.

    The heads of a second row come after those of the first, as if a layer had more heads: (head,) below counts them
    all.

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
    call, first, n_rows
        Where they come from: the call, its first row that is among these, and how many there are.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    nonfinite: torch.Tensor
    places: torch.Tensor
    real_keys: torch.Tensor
    real_queries: torch.Tensor
    call: AttentionCall
    first: int
    n_rows: int

    @property
    def group_size(self) -> int:
        """The number of query heads that share a key-value head."""
        return self.queries.shape[0] // self.keys.shape[0]

    def keys_of(self, heads: slice) -> slice:
        """Return the key-value heads that some consecutive heads read."""
        return slice(heads.start // self.group_size, -(-heads.stop // self.group_size))

    def visible(self, queries: slice, heads: slice) -> torch.Tensor:
        """Return which keys some of the queries of some heads see: (1 or head, query, key) bool, without padding."""
        seen = visible_keys(self.call, self.first, self.places[queries], heads)
        if self.call.mask is None:
            return seen
        return seen.logical_and_(self.real_keys).logical_and_(self.real_queries[queries, None])


def sampled_rows(call: AttentionCall, rows: int, queries: int | None = None) -> Iterator[SampledRows]:
    """Yield the first rows of a batch, with all queries or so many evenly spaced ones.

    All at once where nothing is added to the logits or hidden that differs between rows or heads; else one by one.

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
    count = min(rows, call.queries.shape[0])
    alike = call.mask is call.bias is call.sinks is None
    for first in range(0, count, count if alike else 1):
        yield _copied(call, first, count if alike else 1, queries)


def _copied(call: AttentionCall, first: int, n_rows: int, n_sampled: int | None) -> SampledRows:
    q, k = (x.detach()[first : first + n_rows] for x in (call.queries, call.keys))
    n_queries, n_keys = q.shape[2], k.shape[2]
    places = torch.arange(n_queries, device=q.device)
    same_tokens = n_queries == n_keys and call.group[1] == "self"
    real_keys = _seen_by_any(call, first)
    real_queries = real_keys if same_tokens else real_keys.new_ones(n_queries)
    if n_sampled is not None and n_sampled < n_queries:
        places = (torch.arange(1, n_sampled + 1, device=q.device) * n_queries) // n_sampled - 1
        q, real_queries = q[:, :, places], real_queries[places]
    bad_q, bad_k = _nonfinite(q), _nonfinite(k)
    padded = call.mask is not None
    return SampledRows(
        queries=_clean_copy(q, real_queries if padded else None),
        keys=_clean_copy(k, real_keys if padded else None),
        nonfinite=bad_q + bad_k.repeat_interleave(len(bad_q) // len(bad_k)),
        places=places,
        real_keys=real_keys,
        real_queries=real_queries,
        call=call,
        first=first,
        n_rows=n_rows,
    )


def _nonfinite(x: torch.Tensor) -> torch.Tensor:
    """Return how many entries of (row, head, token, d) are NaN or infinite, for the heads of all rows."""
    blocks = token_slices(x.shape[2], at_once(_BYTES_OF_CHECK * x[:, :, 0].numel()))
    bad = [(~x[:, :, block].isfinite()).sum(dim=(2, 3)).flatten() for block in blocks]
    return bad[0] if len(bad) == 1 else torch.stack(bad).sum(dim=0)


def _clean_copy(x: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """Return a wide copy of (row, head, token, d) as (head, token, d), with 0 for padding and what is not finite.

    Token by token in memory.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    by_token = x.permute(2, 0, 1, 3).to(wide, copy=True, memory_format=torch.contiguous_format).flatten(1, 2)
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


def added_terms(sample: SampledRows, queries: slice, heads: slice) -> Iterator[torch.Tensor]:
    """Yield what a mask of numbers and a bias add to logits, (1 or head, query, key) each.

    A mask of numbers may hold a position bias.
    """
    places, n_keys = sample.places[queries], sample.keys.shape[1]
    for term in (sample.call.mask, sample.call.bias):
        if term is not None and term.dim() == 4 and term.is_floating_point():
            yield _mask_rows(term, sample.first, places, heads)[..., :n_keys]


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
