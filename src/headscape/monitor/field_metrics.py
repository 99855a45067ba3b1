"""Measures of the energy field of every head, from small Gram matrices in torch, all heads at once.

The definitions are those of ``headscape.energy`` (full centering); there every head is factored in numpy, here the
heads of a layer are batched on the device that has them. Nothing of size L x L is formed.
"""

from __future__ import annotations

from headscape.models.lazy_torch import torch
from headscape.monitor.sampled_rows import SampledRows
from headscape.monitor.workspace import at_once, head_slices, token_slices

FIELD_METRICS = (
    "k90",
    "effective_rank",
    "rank1_residual",
    "participation",
    "peak",
    "logit_spread",
    "query_effect",
)
_SHARE = 0.9
_JITTER = 64
_BYTES_OF_GRAMS = 8 * 8  # an entry of all matrices of d x d that a head has at a time
_BYTES_OF_TOKENS = 3 * 8  # an entry of the blocks of tokens that they are made of


def key_incoherence(sample: SampledRows) -> torch.Tensor:
    """Return mu_K = L max_j |k_j|^2 / sum_j |k_j|^2 of every head, from keys that are not centered."""
    squares = torch.linalg.vector_norm(sample.keys, dim=-1).square_()
    mu: torch.Tensor = sample.real_keys.sum() * squares.amax(dim=-1) / squares.sum(dim=-1)
    return mu.repeat_interleave(sample.group_size)


def center_keys(sample: SampledRows) -> None:
    """Subtract the mean key of every head from its keys, in place and twice; padding stays zero.

    The second time takes away what rounding the mean left (see ``energy.query_key.centered_keys``). Keys that differ by
    nothing but rounding become zero.
    """
    keys, count = sample.keys, sample.real_keys.sum().clamp(min=1)
    largest = torch.maximum(keys.amax(dim=1), -keys.amin(dim=1))
    for _ in range(2):
        keys -= (keys.sum(dim=1) / count)[:, None]
        if sample.call.mask is not None:
            keys *= sample.real_keys[:, None]
    left = torch.maximum(keys.amax(dim=1), -keys.amin(dim=1))
    dust = (left <= 8 * torch.finfo(keys.dtype).eps * largest).all(dim=-1)
    keys.masked_fill_(dust[:, None, None], 0.0)


def field_metrics(sample: SampledRows) -> dict[str, torch.Tensor]:
    """Return the measures of the fully centered energy field E = s Q (K - mean K)^T per head.

        k90            components that carry 90 % of the variance of E
        effective_rank exp(entropy) of the singular values of E as shares of their sum
        rank1_residual root mean square of E without its strongest component
        participation  1 / (L sum_j v_j^2),   v_j = share of key j in the squares of E
        peak           L max_j v_j
        logit_spread   root mean square of E
        query_effect   the same after the mean over queries is taken out too: 0 if all queries attend alike

    Parameters
    ----------
    sample
        Queries, and keys that :func:`center_keys` has centered. Padding is left out.

    Returns
    -------
    dict of (head,) tensors
        NaN for heads whose field is zero, but 0 for ``k90`` and the root mean squares.

    Notes
    -----
    From the Gram matrices of queries and centered keys, O(L d^2) a head, in float64 where the device has it: Gram
    matrices square the condition number.
    """
    n_heads, n_tokens, d = (
        sample.queries.shape[0],
        max(sample.queries.shape[1], sample.keys.shape[1]),
        sample.queries.shape[2],
    )
    size = at_once(_BYTES_OF_GRAMS * d * d + _BYTES_OF_TOKENS * n_tokens * d)
    parts = [_of_heads(sample, heads) for heads in head_slices(n_heads, sample.group_size, size)]
    return {name: torch.cat([part[name] for part in parts]) for name in FIELD_METRICS}


def _of_heads(sample: SampledRows, heads: slice) -> dict[str, torch.Tensor]:
    queries, keys = sample.queries[heads], sample.keys[sample.keys_of(heads)]
    n_q, n_k = (real.sum().clamp(min=1) for real in (sample.real_queries, sample.real_keys))
    gram_q, gram_k = _gram(queries), _gram(keys)
    columns = _column_squares(keys, gram_q.to(keys.dtype))
    v = columns / columns.sum(dim=-1, keepdim=True)
    shares = _squared_singular_values(gram_q, gram_k)
    mean_q = queries.sum(dim=1, dtype=gram_q.dtype)
    gram_k = gram_k.repeat_interleave(len(queries) // len(keys), dim=0)
    total = (gram_q * gram_k).sum(dim=(-2, -1)).clamp(min=0)
    varying = gram_q.baddbmm_(mean_q[:, :, None], mean_q[:, None] / n_q, alpha=-1)
    effect = (varying * gram_k).sum(dim=(-2, -1)).clamp(min=0)
    scale = abs(sample.call.scale)
    return {
        "k90": _components(shares),
        "effective_rank": _effective_rank(shares),
        "rank1_residual": scale * (shares[:, 1:].sum(dim=-1) / (n_q * n_k)).sqrt(),
        "participation": 1 / (n_k * (v**2).sum(dim=-1)),
        "peak": n_k * v.amax(dim=-1),
        "logit_spread": scale * (total / (n_q * n_k)).sqrt(),
        "query_effect": scale * (effect / (n_q * n_k)).sqrt(),
    }


def _gram(x: torch.Tensor) -> torch.Tensor:
    """Return X^T X of every head of (head, token, d), in float64 where the device has it."""
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    gram = torch.zeros((len(x), x.shape[2], x.shape[2]), dtype=wide, device=x.device)
    for block in token_slices(x.shape[1], at_once(_BYTES_OF_TOKENS * len(x) * x.shape[2])):
        part = x[:, block].to(wide)
        gram.baddbmm_(part.mT, part)
    return gram


def _column_squares(keys: torch.Tensor, gram_q: torch.Tensor) -> torch.Tensor:
    """Return |E_j|^2 = k_j^T Q^T Q k_j of every key, (head, key)."""
    n_heads, n_keys, d = len(gram_q), *keys.shape[1:]
    grams = gram_q.reshape(len(keys), -1, d, d)
    columns = keys.new_empty((n_heads, n_keys))
    for block in token_slices(n_keys, at_once(_BYTES_OF_TOKENS * n_heads * d)):
        part = keys[:, None, block]
        columns[:, block] = (part @ grams).mul_(part).sum(dim=-1).flatten(0, 1)
    return columns.clamp_(min=0)


def _squared_singular_values(gram_q: torch.Tensor, gram_k: torch.Tensor) -> torch.Tensor:
    """Return the squared singular values of Q K^T, largest first.

    They are the eigenvalues of F^T G_Q F with the Cholesky factor F of G_K. What is added to the diagonal of G_K, so
    that it has one where keys are dependent, is as small as rounding allows.
    """
    jitter = _JITTER * torch.finfo(gram_k.dtype).eps * gram_k.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    raised = gram_k + torch.diag_embed(jitter[:, None].expand(gram_k.shape[:-1]))
    factor, failed = torch.linalg.cholesky_ex(raised)
    factor.masked_fill_((failed != 0)[:, None, None], 0.0)  # zero keys
    factor = factor.repeat_interleave(len(gram_q) // len(gram_k), dim=0)
    values: torch.Tensor = torch.linalg.eigvalsh(factor.mT @ gram_q @ factor)
    return values.clamp_(min=0).flip(-1)


def _components(squares: torch.Tensor) -> torch.Tensor:
    """Return how many components carry at least 90 % of the variance; 0 for a zero field."""
    total = squares.sum(dim=-1, keepdim=True)
    before = (squares.cumsum(dim=-1) < (_SHARE - 1e-12) * total).sum(dim=-1)
    return torch.where(total[..., 0] > 0, before + 1, 0).to(squares.dtype)


def _effective_rank(squares: torch.Tensor) -> torch.Tensor:
    values = squares.sqrt()
    p = values / values.sum(dim=-1, keepdim=True)
    return torch.exp(torch.special.entr(p).sum(dim=-1))
