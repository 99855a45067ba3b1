"""What is measured of every head in one attention call: the metrics a user asks for, and those that alerts need."""

from __future__ import annotations

from collections.abc import Sequence

from headscape.errors import InputError
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.lazy_torch import torch
from headscape.monitor.field_metrics import center_keys, field_metrics, key_incoherence
from headscape.monitor.nearest_heads import inner_products, nearest_heads
from headscape.monitor.sampled_rows import sampled_rows
from headscape.monitor.score_metrics import score_metrics

MEANINGS = {
    "mu_K": "key incoherence: largest squared norm of a key over the mean (1 = equal norms)",
    "k90": "components that carry 90 % of the variance of the energy field",
    "effective_rank": "effective rank of the energy field (1 = collapsed)",
    "participation": "share of the keys that carry the energy field (1 = all alike)",
    "attention_entropy": "mean entropy of attention, in nats (0 = one key)",
    "logit_max": "largest attention logit among visible keys",
    "sink": "mean attention to the most attended key",
    "peak": "largest share of a key in the energy field, times the number of keys",
    "logit_spread": "root mean square of the centered logits (0 = uniform attention)",
    "rank1_residual": "root mean square of the logits outside the strongest component of the energy field (0 = rank 1)",
    "query_effect": "how much logits differ between queries, root mean square (0 = all queries attend alike)",
    "entropy_share": "entropy of attention over its maximum (1 = uniform)",
    "nearest": "distance to the most similar head of the layer (0 = the same field)",
    "nearest_head": "the most similar head of the layer",
    "future": "share of the later keys that are visible (0 = causal)",
    "visible": "share of all keys that are visible",
    "nonfinite": "entries of queries and keys that are NaN or infinite",
}
"""Every metric with its meaning."""

METRICS = ("mu_K", "k90", "effective_rank", "participation", "attention_entropy", "logit_max", "sink")
"""What is recorded by default."""

ALERT_METRICS = (
    "effective_rank",
    "rank1_residual",
    "mu_K",
    "peak",
    "logit_max",
    "logit_spread",
    "query_effect",
    "entropy_share",
    "nearest",
    "nearest_head",
    "future",
    "visible",
    "nonfinite",
)
"""What the alerts are judged by; always recorded."""


def recorded_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of a run: those asked for, and those that alerts need, or raise naming an unknown one."""
    unknown = [name for name in metrics if name not in MEANINGS]
    if isinstance(metrics, str) or unknown or not metrics:
        raise InputError(
            f"metrics must be some of {', '.join(MEANINGS)}, but are {metrics!r}. Give a list, such as {METRICS[:2]}."
        )
    return tuple(dict.fromkeys((*metrics, *ALERT_METRICS)))


def head_metrics(
    call: AttentionCall, *, rows: int = 2, queries: int | None = None
) -> dict[str, torch.Tensor]:
    """Return every metric of every head in one attention call.

    Parameters
    ----------
    call
        One attention call, as an adapter shows it.
    rows
        How many rows of the batch are measured.
    queries
        How many evenly spaced queries of each row; all by default.

    Returns
    -------
    dict of (head,) float32 tensors
        On the device of the call, by the names of :data:`MEANINGS`.

    Notes
    -----
    No gradients, no random numbers, no autocast. Means over the rows, but for ``logit_max`` (the largest) and
    ``nonfinite`` (the sum); NaN where queries or keys are not finite.
    Memory: the queries and keys of the sampled rows in float32, and :data:`~headscape.monitor.workspace.WORKSPACE`
    for all that is made of them.
    """
    with torch.no_grad(), torch.autocast(call.queries.device.type, enabled=False):
        found: dict[str, list[torch.Tensor]] = {}
        bad, inner = [], []
        for sample in sampled_rows(call, rows, queries):
            of_heads = {**score_metrics(sample), "mu_K": key_incoherence(sample)}
            center_keys(sample)
            of_heads |= field_metrics(sample)
            for name, values in of_heads.items():
                found.setdefault(name, []).append(values)
            bad.append(sample.nonfinite)
            inner.append(inner_products(sample))
            del sample  # before the next one is copied
        n_heads = len(inner[0])
        nonfinite = torch.cat(bad).view(-1, n_heads).sum(dim=0)
        distance, head = nearest_heads(torch.stack(inner).sum(dim=0), nonfinite > 0)
        table = torch.stack([torch.cat(found[name]).to(torch.float32) for name in found])
        table = table.view(len(found), -1, n_heads)
        means = dict(zip(found, table.mean(dim=1), strict=True))
        means["logit_max"] = table[list(found).index("logit_max")].amax(dim=0)
        for name in means.keys() - {"future", "visible"}:
            means[name].masked_fill_(nonfinite > 0, float("nan"))
        last = {"nearest": distance, "nearest_head": head, "nonfinite": nonfinite}
        return means | {name: value.to(torch.float32) for name, value in last.items()}
