"""Measures of the energy field of every head of a layer, from small Gram matrices in torch, all heads at once.

The definitions are those of ``headscape.energy`` (full centering); there every head is factored in numpy, here all
heads of a layer are batched on the device that has them. Nothing of size L x L is formed.
"""

from __future__ import annotations

from headscape.models.lazy_torch import torch
from headscape.monitor.sampled_rows import SampledRows

FIELD_METRICS = ("mu_K", "k90", "effective_rank", "participation", "peak", "logit_spread", "query_effect")
_LARGEST_BLOCK = 1 << 20
_SHARE = 0.9


def field_metrics(sample: SampledRows) -> dict[str, torch.Tensor]:
    """Return the measures of the fully centered energy field E = s Q (K - mean K)^T per head.

        mu_K           L max_j |k_j|^2 / sum_j |k_j|^2
        k90            components that carry 90 % of the variance of E
        effective_rank exp(entropy) of the singular values of E as shares of their sum
        participation  1 / (L sum_j v_j^2),   v_j = share of key j in the squares of E
        peak           L max_j v_j
        logit_spread   root mean square of E
        query_effect   the same after the mean over queries is taken out too: 0 if all queries attend alike

    Parameters
    ----------
    sample
        Queries and keys of a few rows. Padding is left out.

    Returns
    -------
    dict of (head,) tensors
        Means over the rows. NaN for heads whose field is zero (but for mu_K) or whose queries or keys are not
        finite.

    Notes
    -----
    With G_Q = Q^T Q and the factor F of the centered keys' Gram matrix, F F^T, the squared singular values of E are
    the eigenvalues of s^2 F^T G_Q F: O(L d^2) a head. In float64 where the device has it, because Gram matrices
    square the condition number.
    """
    kind = torch.float32 if sample.queries.device.type == "mps" else torch.float64
    w_q, w_k = (real[:, None, :, None].to(kind) for real in (sample.real_queries, sample.real_keys))
    queries = torch.nan_to_num(sample.queries.to(kind), 0.0, 0.0, 0.0) * w_q
    keys = torch.nan_to_num(sample.keys.to(kind), 0.0, 0.0, 0.0) * w_k
    n_q, n_k = w_q.sum(dim=2), w_k.sum(dim=2).clamp(min=1)  # (row, 1, 1)
    centered = _centered(keys, w_k, n_k)

    squares = (keys**2).sum(dim=-1)
    mu = sample.of_heads(n_k[..., 0] * squares.amax(dim=-1) / squares.sum(dim=-1))
    gram_q = queries.mT @ queries
    gram_k = centered.mT @ centered
    shares = _squared_singular_values(gram_q, sample.of_heads(_factor(gram_k)))
    columns = ((sample.of_heads(centered) @ gram_q) * sample.of_heads(centered)).sum(dim=-1).clamp(min=0)
    total = columns.sum(dim=-1)
    v = columns / total[..., None]
    mean_q = queries.sum(dim=2)
    varying = gram_q - mean_q[..., :, None] * mean_q[..., None, :] / n_q.clamp(min=1)[..., None]
    effect = (varying * sample.of_heads(gram_k)).sum(dim=(-2, -1)).clamp(min=0)
    size = (n_q.clamp(min=1) * n_k)[..., 0]
    found = {
        "mu_K": mu,
        "k90": _components(shares),
        "effective_rank": _effective_rank(shares),
        "participation": 1 / (n_k[..., 0] * (v**2).sum(dim=-1)),
        "peak": n_k[..., 0] * v.amax(dim=-1),
        "logit_spread": abs(sample.call.scale) * (total / size).sqrt(),
        "query_effect": abs(sample.call.scale) * (effect / size).sqrt(),
    }
    broken = nonfinite(sample) > 0
    return {name: x.mean(dim=0).masked_fill(broken, float("nan")) for name, x in found.items()}


def nearest_heads(sample: SampledRows) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how far the most similar other head of the layer is, and which one it is.

        d(g, h)^2 = |E_g - E_h|^2 / (|E_g|^2 + |E_h|^2)

    over all sampled rows: 0 for heads that compute the same field, about 1 for unrelated ones.

    Returns
    -------
    distance, head : two (head,) tensors
        NaN and -1 where there is no other head, or the field is zero or not finite.

    Notes
    -----
    <E_g, E_h> = s^2 sum_ab (Q_g^T Q_h)_ab (K_g^T K_h)_ab with centered keys: O(L d^2) for each pair of heads, in
    blocks of bounded size.
    """
    kind = torch.float32 if sample.queries.device.type == "mps" else torch.float64
    w_q, w_k = (real[:, None, :, None].to(kind) for real in (sample.real_queries, sample.real_keys))
    queries = torch.nan_to_num(sample.queries.to(kind), 0.0, 0.0, 0.0) * w_q
    keys = torch.nan_to_num(sample.keys.to(kind), 0.0, 0.0, 0.0) * w_k
    keys = sample.of_heads(_centered(keys, w_k, w_k.sum(dim=2).clamp(min=1)))
    rows, n_heads, _, d = queries.shape
    inner = queries.new_zeros((n_heads, n_heads))
    at_once = max(1, _LARGEST_BLOCK // (n_heads * d * d))
    for row in range(rows):
        flat_q, flat_k = (x[row].transpose(0, 1).flatten(1) for x in (queries, keys))  # (token, head x d)
        for start in range(0, n_heads, at_once):
            part = slice(start * d, (start + at_once) * d)
            products = (flat_q[:, part].mT @ flat_q) * (flat_k[:, part].mT @ flat_k)
            inner[start : start + at_once] += products.reshape(-1, d, n_heads, d).sum(dim=(1, 3))
    norms = inner.diagonal()
    both = norms[:, None] + norms
    distance = ((both - 2 * inner) / both).clamp(min=0).sqrt()
    unknown = (norms <= 0) | (nonfinite(sample) > 0)
    distance = distance.masked_fill(unknown | unknown[:, None], float("inf")).fill_diagonal_(float("inf"))
    value, head = distance.min(dim=1)
    alone = value.isinf()
    return value.masked_fill(alone, float("nan")), head.masked_fill(alone, -1)


def nonfinite(sample: SampledRows) -> torch.Tensor:
    """Return how many entries of the queries and keys of every head are NaN or infinite: (head,)."""
    bad_q, bad_k = (x.isfinite().logical_not().sum(dim=(0, 2, 3)) for x in (sample.queries, sample.keys))
    return bad_q + sample.of_heads(bad_k[None])[0]


def _centered(keys: torch.Tensor, weights: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Subtract the mean key of every row, twice (see ``energy.query_key.centered_keys``); padding stays zero."""
    largest = keys.abs().amax(dim=2, keepdim=True)
    centered = keys
    for _ in range(2):
        centered = (centered - (centered.sum(dim=2) / count)[:, :, None]) * weights
    dust = (centered.abs() <= 8 * torch.finfo(keys.dtype).eps * largest).all(dim=3).all(dim=2)
    return centered.masked_fill(dust[..., None, None], 0.0)


def _factor(gram: torch.Tensor) -> torch.Tensor:
    """Return F with F F^T = gram, also where it is singular."""
    values, vectors = torch.linalg.eigh(gram)
    factor: torch.Tensor = vectors * values.clamp(min=0).sqrt()[..., None, :]
    return factor


def _squared_singular_values(gram_q: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return the squared singular values of Q F^T, largest first."""
    values: torch.Tensor = torch.linalg.eigvalsh(factor.mT @ gram_q @ factor)
    return values.clamp(min=0).flip(-1)


def _components(squares: torch.Tensor) -> torch.Tensor:
    """Return how many components carry at least 90 % of the variance; 0 for a zero field."""
    total = squares.sum(dim=-1, keepdim=True)
    before = (squares.cumsum(dim=-1) < (_SHARE - 1e-12) * total).sum(dim=-1)
    return torch.where(total[..., 0] > 0, before + 1, 0).to(squares.dtype)


def _effective_rank(squares: torch.Tensor) -> torch.Tensor:
    values = squares.sqrt()
    p = values / values.sum(dim=-1, keepdim=True)
    return torch.exp(torch.special.entr(p).sum(dim=-1))
