"""Sums over tokens of what enters an output projection: all that choosing and re-fitting within a layer needs.

G = sum_t a_t a_t^T,   s = sum_t a_t,   and where the intact model's activations a0_t of the same tokens are known

E = sum_t a_t (a0_t - a_t)^T,   e = sum_t (a0_t - a_t)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from headscape.ablation.activations import token_products
from headscape.models.lazy_torch import torch


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over tokens: ``gram`` G, ``sums`` s, and ``drift`` E, ``drift_sums`` e if they were asked for."""

    gram: torch.Tensor
    sums: torch.Tensor
    tokens: int
    drift: torch.Tensor | None = None
    drift_sums: torch.Tensor | None = None

    @classmethod
    def of(cls, activations: torch.Tensor, intact: torch.Tensor | None = None) -> Moments:
        """Return the moments of activations (token, head x d), in float64."""
        own = token_products(activations, activations), activations.sum(dim=0, dtype=torch.float64)
        if intact is None:
            return cls(*own, len(activations))
        moved = intact - activations
        drift = token_products(activations, moved), moved.sum(dim=0, dtype=torch.float64)
        return cls(*own, len(activations), *drift)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.gram + other.gram,
            self.sums + other.sums,
            self.tokens + other.tokens,
            None if self.drift is None or other.drift is None else self.drift + other.drift,
            None
            if self.drift_sums is None or other.drift_sums is None
            else self.drift_sums + other.drift_sums,
        )


def total(parts: Iterable[Moments]) -> Moments:
    """Return the moments of all tokens of several parts.

    Examples
    --------
    >>> import torch
    >>> x = torch.arange(6.0).reshape(3, 2)
    >>> torch.equal(total([Moments.of(x[:1]), Moments.of(x[1:])]).gram, Moments.of(x).gram)
    True
    """
    return reduce(lambda a, b: a + b, parts)


def left_out(parts: list[Moments]) -> list[Moments]:
    """Return for every part the moments of all others; of a single part, its own."""
    if len(parts) == 1:
        return parts
    return [total(part for j, part in enumerate(parts) if j != i) for i in range(len(parts))]
