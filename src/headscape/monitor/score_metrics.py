"""Measures of the attention of every head, from scores that are formed in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from headscape.models.lazy_torch import torch
from headscape.monitor.sampled_rows import SampledRows, added_terms
from headscape.monitor.workspace import at_once, head_slices, token_slices

SCORE_METRICS = ("attention_entropy", "entropy_share", "logit_max", "sink", "future", "visible")
_BYTES_OF_SCORE = 16  # logits, probabilities or a term that is added, booleans, and sums over them
_ENOUGH = 0.5
_FAR_BELOW = -1e30  # stands for minus infinity, and gives 0 and not NaN where it meets a probability of 0
_LARGEST_EXPONENT = 80.0


def score_metrics(sample: SampledRows) -> dict[str, torch.Tensor]:
    """Return what the attention probabilities of every head are like.

        attention_entropy  mean over queries of - sum_j p_ij log p_ij, in nats
        entropy_share      mean over queries that see two keys or more of the same over log(visible keys): 1 = uniform
        logit_max          largest s q.k among visible keys (before soft cap, bias and mask)
        sink               largest mean attention that a key gets from the queries that see it, among keys that half of
                           the queries see
        future             visible keys that come after their query, as a share of all pairs with later keys
        visible            visible pairs as a share of all pairs

    Parameters
    ----------
    sample
        Queries and keys. Padding is left out.

    Returns
    -------
    dict of (head,) tensors
        ``future`` is NaN for cross-attention.
    """
    n_heads, n_keys = sample.queries.shape[0], sample.keys.shape[1]
    zeros = sample.queries.new_zeros(n_heads)
    entropy, share, counted = zeros.clone(), zeros.clone(), zeros.clone()
    top = zeros - float("inf")
    columns = sample.queries.new_zeros((n_heads, n_keys))
    seen, later, pairs = columns.clone(), zeros.clone(), zeros.clone()
    later_pairs = zeros.new_zeros(())
    keys = torch.arange(n_keys, device=zeros.device)
    for heads, block in _blocks(sample):
        visible = sample.visible(block, heads)
        count = visible.sum(dim=-1)
        several = count >= 2
        largest, attention, h = _attention(sample, heads, block, visible)
        entropy[heads] += h.sum(dim=-1)
        share[heads] += torch.where(several, h / count.clamp(min=2).log(), 0.0).sum(dim=-1)
        counted[heads] += several.sum(dim=-1)
        top[heads] = torch.maximum(top[heads], largest)
        columns[heads] += attention
        seen[heads] += visible.sum(dim=-2)
        pairs[heads] += count.sum(dim=-1)
        after = keys > sample.places[block, None]
        later[heads] += visible.logical_and_(after).sum(dim=(-2, -1))
        if heads.start == 0:
            later_pairs += (
                after.logical_and_(sample.real_keys).sum(dim=-1).mul(sample.real_queries[block]).sum()
            )
    n_real = sample.real_queries.sum().clamp(min=1)
    means = (columns / seen.clamp(min=1)).masked_fill(seen < _ENOUGH * n_real, -1.0).amax(dim=-1)
    comparable = sample.call.group[1] == "self" and sample.call.queries.shape[2] == n_keys
    return {
        "attention_entropy": entropy / n_real,
        "entropy_share": share / counted,
        "logit_max": top,
        "sink": means.masked_fill(means < 0, float("nan")),
        "future": later / later_pairs.clamp(min=1) if comparable else zeros + float("nan"),
        "visible": pairs / (n_real * sample.real_keys.sum().clamp(min=1)),
    }


def _blocks(sample: SampledRows) -> Iterator[tuple[slice, slice]]:
    """Yield heads and queries, by slices whose scores are few enough."""
    n_heads, n_queries, n_keys = *sample.queries.shape[:2], sample.keys.shape[1]
    scores = at_once(_BYTES_OF_SCORE)
    for heads in head_slices(n_heads, sample.group_size, max(1, scores // (n_queries * n_keys))):
        size = heads.stop - heads.start
        for block in token_slices(n_queries, max(1, scores // (size * n_keys))):
            yield heads, block


def _attention(
    sample: SampledRows, heads: slice, block: slice, visible: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the largest s q.k (head,), attention per key (head, key) and entropies (head, query) of a block.

    With z = logits - max and p = softmax(z), whose largest entry is 1 / sum exp(z): the entropy is log(sum exp(z)) -
    sum p z. As few passes over the scores as that takes, most of them in place: they are most of the monitor's time.
    """
    call = sample.call
    z = _raw_logits(sample, heads, block)
    hidden = ~visible
    largest = None
    if any(term is not None for term in (call.softcap, call.bias, call.mask)):
        largest = z.masked_fill(hidden, float("-inf")).amax(dim=(-2, -1))
    if call.softcap is not None:
        z.div_(call.softcap).tanh_().mul_(call.softcap)
    for term in added_terms(sample, block, heads):
        z.add_(term)
        del term  # before the next one is made
    z.clamp_(min=_FAR_BELOW).masked_fill_(hidden, _FAR_BELOW)
    most = z.amax(dim=-1)
    seeing = visible.any(dim=-1)
    if largest is None:
        largest = most.masked_fill(~seeing, float("-inf")).amax(dim=-1)
    p = z.sub_(most[..., None]).softmax(dim=-1)
    total = visible_total = 1 / p.amax(dim=-1)
    if call.sinks is not None:
        sinks = call.sinks.detach().to(most)[heads, None]
        total = total + (sinks - most).clamp(max=_LARGEST_EXPONENT).exp()
    weight = torch.where(seeing, visible_total / total, 0.0)
    entropy = weight * (total.log() - z.mul_(p).sum(dim=-1))
    return largest, (weight[:, None] @ p)[:, 0], entropy.clamp(min=0)


def _raw_logits(sample: SampledRows, heads: slice, block: slice) -> torch.Tensor:
    """Return s q.k, (head, query, key), with the heads of one group multiplied by their keys together."""
    keys = sample.keys[sample.keys_of(heads)]
    q = sample.queries[heads, block]
    q = q.reshape(len(keys), -1, q.shape[-1])
    z = torch.baddbmm(q.new_empty(()), q, keys.mT, beta=0, alpha=sample.call.scale)
    return z.reshape(heads.stop - heads.start, -1, keys.shape[1])
