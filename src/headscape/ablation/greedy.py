"""Greedy removal: the cheapest move of the whole network, again and again, where prices change with what is gone.

    price(layer, gone) >= 0,   the cheapest move m minimizes (price(layer, gone + m) - price(layer, gone)) / |m|

A move is a head, or as many heads as have to go together for a layer to stay a rectangular array: where several
query heads share a key-value head, a layer may lose whole groups, and the same number of heads from each group
that stays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Progress, no_progress
from headscape.models.anatomy import AttentionModule

Move = tuple[int, ...]
Moves = Callable[[AttentionModule, frozenset[int], "Prices"], list[Move]]


class Prices(Protocol):
    """What it costs a layer to be without some of its heads."""

    def price(self, gone: Sequence[int]) -> float:
        """Return the price of being without these heads."""


@dataclass(frozen=True, eq=False)
class ScorePrices:
    """Prices that add up: the sum of the scores of the heads that are gone."""

    scores: NDArray[np.float64]

    def price(self, gone: Sequence[int]) -> float:
        """Return the sum of the scores."""
        return float(self.scores[list(gone)].sum())


@dataclass(frozen=True, eq=False)
class RememberedPrices:
    """Prices that are asked for in several orders, each computed once."""

    prices: Prices
    _known: dict[frozenset[int], float] = field(default_factory=dict)

    def price(self, gone: Sequence[int]) -> float:
        """Return the price of being without these heads."""
        key = frozenset(gone)
        if key not in self._known:
            self._known[key] = self.prices.price(sorted(key))
        return self._known[key]


@dataclass(frozen=True)
class Removal:
    """One step of a greedy removal: the heads that go together, and by how much the price increases."""

    layer: int
    heads: Move
    price: float


def greedy_removal(
    modules: Sequence[AttentionModule],
    prices: Mapping[int, Prices],
    moves: Moves,
    count: int,
    progress: Progress = no_progress,
) -> list[Removal]:
    """Return moves that take away at most ``count`` heads, the cheapest first.

    ``moves`` says which heads may go together: :func:`single_heads` or :func:`removable_units`. After every step only
    the layer that lost heads is priced again.
    """
    by_layer = {module.layer: module for module in modules}
    gone: dict[int, frozenset[int]] = {layer: frozenset() for layer in by_layer}
    paid = dict.fromkeys(by_layer, 0.0)
    best: dict[int, list[Removal]] = {}
    steps: list[Removal] = []
    left, stale = count, list(by_layer)
    while left > 0:
        for layer in stale:
            before, price = sorted(gone[layer]), prices[layer].price
            best[layer] = [
                Removal(layer, move, price([*before, *move]) - paid[layer])
                for move in moves(by_layer[layer], gone[layer], prices[layer])
            ]
        fitting = [option for options in best.values() for option in options if len(option.heads) <= left]
        if not fitting:
            break
        chosen = min(fitting, key=lambda step: step.price / len(step.heads))
        steps.append(chosen)
        gone[chosen.layer] |= set(chosen.heads)
        paid[chosen.layer] += chosen.price
        left, stale = left - len(chosen.heads), [chosen.layer]
        progress("choosing heads", count - left, count)
    return steps


def single_heads(module: AttentionModule, gone: frozenset[int], prices: Prices) -> list[Move]:
    """Return every head that is left, each a move of its own: for gates, which can switch off any."""
    return [(head,) for head in range(module.n_heads) if head not in gone]


def removable_units(module: AttentionModule, gone: frozenset[int], prices: Prices) -> list[Move]:
    """Return what can be cut out next: a whole group, or the cheapest head of each group that is left.

    No move takes the last head of a layer.
    """
    size = module.n_heads // module.n_kv_heads
    groups = [
        [head for head in range(group * size, (group + 1) * size) if head not in gone]
        for group in range(module.n_kv_heads)
    ]
    left = [group for group in groups if group]
    moves: list[Move] = [tuple(group) for group in left] if len(left) > 1 else []
    if len(left[0]) > 1:
        before = sorted(gone)
        moves.append(tuple(min(group, key=lambda head: prices.price([*before, head])) for group in left))
    return moves
