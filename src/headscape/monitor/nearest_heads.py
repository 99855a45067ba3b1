"""How far every head of a layer is from the most similar other one."""

from __future__ import annotations

from math import isqrt

from headscape.models.lazy_torch import torch
from headscape.monitor.sampled_rows import SampledRows
from headscape.monitor.workspace import at_once, head_slices

_BYTES_OF_PRODUCT = 3 * 4  # an entry of the Gram matrices of queries and of keys, and room for a sum


def inner_products(sample: SampledRows) -> torch.Tensor:
    """Return <E_g, E_h> / s^2 of the energy fields of all pairs of heads, summed over rows whose keys are centered.

        <E_g, E_h> = s^2 sum_ab (Q_g^T Q_h)_ab (K_g^T K_h)_ab

    Returns
    -------
    (head, head) tensor
        Of the heads of the layer.

    Notes
    -----
    O(L d^2) for each pair of heads, in square blocks of pairs of bounded size. In float32, in which distances below
    about 0.001 are rounding.
    """
    n_heads, d = len(sample.queries) // sample.n_rows, sample.queries.shape[2]
    inner = sample.queries.new_zeros((n_heads, n_heads))
    parts = list(head_slices(n_heads, sample.group_size, isqrt(at_once(_BYTES_OF_PRODUCT * d * d))))
    for row in range(sample.n_rows):
        for number, first in enumerate(parts):
            for second in parts[number:]:
                block = _of_pairs(sample, row * n_heads, first, second)
                inner[first, second] += block
                if second is not first:
                    inner[second, first] += block.mT
    return inner


def _of_pairs(sample: SampledRows, before: int, first: slice, second: slice) -> torch.Tensor:
    """Return the inner products of two slices of the heads after ``before``, (g, h).

    Heads that share keys share their Gram matrices.
    """
    g, h = (slice(before + part.start, before + part.stop) for part in (first, second))
    kv_g, kv_h = sample.keys_of(g), sample.keys_of(h)
    n_g, n_h = (part.stop - part.start for part in (kv_g, kv_h))
    d = sample.queries.shape[2]
    products = _gram(sample.queries[g], sample.queries[h]).view(n_g, (g.stop - g.start) // n_g, d, n_h, -1, d)
    products *= _gram(sample.keys[kv_g], sample.keys[kv_h]).view(n_g, 1, d, n_h, 1, d)
    return products.sum(dim=(2, 5)).flatten(2).flatten(0, 1)


def _gram(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return X_g^T Y_h of all pairs of two sets of heads, (head, token, d) each, as (g x d, h x d)."""
    x, y = (each.transpose(0, 1).flatten(1) for each in (x, y))  # the heads of a token lie side by side
    return x.mT @ y


def nearest_heads(inner: torch.Tensor, unusable: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how far the most similar other head of the layer is, and which one it is.

        d(g, h)^2 = |E_g - E_h|^2 / (|E_g|^2 + |E_h|^2)

    0 for heads that compute the same field, about 1 for unrelated ones.

    Parameters
    ----------
    inner : (head, head)
        Inner products of the fields over all sampled rows.
    unusable : (head,) bool
        Heads that are not compared.

    Returns
    -------
    distance, head : two (head,) tensors
        NaN and -1 where there is no other head, or the field is zero or not usable.
    """
    norms = inner.diagonal()
    both = norms[:, None] + norms
    distance = ((both - 2 * inner) / both).clamp(min=0).sqrt()
    unknown = (norms <= 0) | unusable
    distance = distance.masked_fill(unknown | unknown[:, None], float("inf")).fill_diagonal_(float("inf"))
    value, head = distance.min(dim=1)
    alone = value.isinf()
    return value.masked_fill(alone, float("nan")), head.masked_fill(alone, -1)
