"""Measures of the attention of every head of a layer, from scores that are formed in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from headscape.models.lazy_torch import torch
from headscape.monitor.sampled_rows import SampledRows, added_mask

SCORE_METRICS = ("attention_entropy", "entropy_share", "logit_max", "sink", "future", "visible")
LARGEST_BLOCK = 1 << 20
"""Scores that are held at a time: 4 MiB in float32, a few times that with what is made of them."""
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
        Queries and keys of a few rows. Padding is left out.

    Returns
    -------
    dict of (head,) tensors
        Means over the rows; ``logit_max`` is the maximum. NaN where queries or keys are not finite, and ``future`` for
        cross-attention.
    """
    rows = [_of_row(sample, row) for row in range(len(sample.queries))]
    broken = sample.nonfinite > 0
    found = {}
    for name in SCORE_METRICS:
        values = torch.stack([row[name] for row in rows])
        value = values.amax(dim=0) if name == "logit_max" else values.mean(dim=0)
        found[name] = value if name in ("future", "visible") else value.masked_fill(broken, float("nan"))
    return found


def _of_row(sample: SampledRows, row: int) -> dict[str, torch.Tensor]:
    n_heads, n_keys = sample.queries.shape[1], sample.keys.shape[2]
    zeros = sample.queries.new_zeros(n_heads)
    entropy, share, counted = zeros.clone(), zeros.clone(), zeros.clone()
    top = zeros - float("inf")
    columns = sample.queries.new_zeros((n_heads, n_keys))
    seen, later, pairs = columns.clone(), zeros.clone(), zeros.clone()
    keys_real, later_pairs = sample.real_keys[row], zeros.new_zeros(())
    for heads, block in _blocks(sample):
        real = sample.real_queries[row, block]
        visible = sample.visible(row, block) & keys_real & real[:, None]
        of_heads = visible if visible.shape[0] == 1 else visible[heads]
        count = of_heads.sum(dim=-1)
        several = count >= 2
        largest, attention, h = _attention(sample, row, heads, block, of_heads)
        entropy[heads] += h.sum(dim=-1)
        share[heads] += torch.where(several, h / count.clamp(min=2).log(), 0.0).sum(dim=-1)
        counted[heads] += several.sum(dim=-1)
        top[heads] = torch.maximum(top[heads], largest)
        columns[heads] += attention
        seen[heads] += of_heads.sum(dim=-2)
        after = torch.arange(n_keys, device=real.device) > sample.places[block, None]
        later[heads] += (of_heads & after).sum(dim=(-2, -1))
        pairs[heads] += count.sum(dim=-1)
        if heads.start == 0:
            later_pairs = later_pairs + (after & keys_real & real[:, None]).sum()
    n_real = sample.real_queries[row].sum().clamp(min=1)
    often = seen >= _ENOUGH * n_real
    means = (columns / seen.clamp(min=1)).masked_fill(~often, -1.0).amax(dim=-1)
    comparable = sample.call.group[1] == "self" and sample.call.queries.shape[2] == n_keys
    return {
        "attention_entropy": entropy / n_real,
        "entropy_share": share / counted,
        "logit_max": top,
        "sink": means.masked_fill(means < 0, float("nan")),
        "future": later / later_pairs.clamp(min=1) if comparable else zeros + float("nan"),
        "visible": pairs / (n_real * keys_real.sum().clamp(min=1)),
    }


def _blocks(sample: SampledRows) -> Iterator[tuple[slice, slice]]:
    """Yield heads and queries, by slices whose scores are few enough; heads of one group of keys stay together."""
    n_heads, n_queries, n_keys = sample.queries.shape[1], sample.queries.shape[2], sample.keys.shape[2]
    group = sample.group_size
    heads = max(1, min(n_heads, LARGEST_BLOCK // n_keys) // group) * group
    queries = max(1, LARGEST_BLOCK // (heads * n_keys))
    for first in range(0, n_heads, heads):
        for start in range(0, n_queries, queries):
            yield slice(first, min(first + heads, n_heads)), slice(start, min(start + queries, n_queries))


def _attention(
    sample: SampledRows, row: int, heads: slice, block: slice, visible: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the largest s q.k (head,), attention per key (head, key) and entropies (head, query) of a block.

    With z = logits - max and e = exp(z): p = e / sum e, and the entropy is log(sum e) - sum e z / sum e. As few passes
    over the scores as that takes, most of them in place: they are most of the monitor's time.
    """
    call, group = sample.call, sample.group_size
    keys = sample.keys[row, heads.start // group : -(-heads.stop // group)]
    q = sample.queries[row, heads, block]
    q = q.reshape(len(keys), -1, *q.shape[1:])
    z = ((q * call.scale) @ keys[:, None].mT).flatten(0, 1)
    hidden = ~visible
    places = sample.places[block]
    terms = [term for term in (added_mask(call, row, places), _bias(call, row, places)) if term is not None]
    largest = None
    if terms or call.softcap is not None:
        largest = z.masked_fill(hidden, float("-inf")).amax(dim=(-2, -1))
    if call.softcap is not None:
        z = call.softcap * torch.tanh(z / call.softcap)
    for term in terms:
        z = z + (term if term.shape[0] == 1 else term[heads])
    z = z.clamp_(min=_FAR_BELOW).masked_fill_(hidden, _FAR_BELOW)
    most = z.amax(dim=-1)
    seeing = visible.any(dim=-1)
    if largest is None:
        largest = most.masked_fill(~seeing, float("-inf")).amax(dim=-1)
    e = z.sub_(most[..., None]).exp()
    total = visible_total = e.sum(dim=-1)
    if call.sinks is not None:
        sinks = call.sinks.detach().to(most)[heads, None]
        total = total + (sinks - most).clamp(max=_LARGEST_EXPONENT).exp()
    weight = torch.where(seeing, 1 / total, 0.0)
    entropy = weight * (visible_total * total.log() - z.mul_(e).sum(dim=-1))
    return largest, (weight[:, None] @ e)[:, 0], entropy.clamp(min=0)


def _bias(call: object, row: int, places: torch.Tensor) -> torch.Tensor | None:
    bias: torch.Tensor | None = getattr(call, "bias", None)
    if bias is None:
        return None
    return bias.detach()[row if bias.shape[0] > 1 else 0][:, places]
