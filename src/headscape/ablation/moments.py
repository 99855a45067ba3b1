"""Sums over tokens of what enters an output projection: all that choosing and re-fitting within a layer needs.

G = sum_t a_t a_t^T,   s = sum_t a_t,   and where it is known what the output u_t of the same token should have on top

E = sum_t a_t u_t^T,   e = sum_t u_t
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
    def of(cls, activations: torch.Tensor, missing: torch.Tensor | None = None) -> Moments:
        """Return the moments of activations (token, head x d), and of what outputs lack (token, output), in float64."""
        own = token_products(activations, activations), activations.sum(dim=0, dtype=torch.float64)
        if missing is None:
            return cls(*own, len(activations))
        drift = token_products(activations, missing), missing.sum(dim=0, dtype=torch.float64)
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
