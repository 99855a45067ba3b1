"""Removal within layers: how many heads each loses, and which, one move after another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headscape.ablation.greedy import Move, Moves, ScorePrices, single_heads
from headscape.models.anatomy import AttentionModule

Score = Callable[[Sequence[int], Sequence[int]], float]
"""What a move costs after some heads are gone."""


def uniform_quotas(modules: Sequence[AttentionModule], count: int, moves: Moves) -> dict[int, int]:
    """Return how many heads every layer loses: the same number, and what remains from the deeper layers.

    A step is the least that a layer loses at once: a head, or where query heads share keys a whole group or one head of
    each group. Layers that can lose no more are passed over.
    """
    sizes = {module.layer: least_moves(module, moves) for module in modules}
    steps = {layer: found[0] for layer, found in sizes.items() if found}
    quotas = dict.fromkeys(sizes, 0)
    left, order = count, sorted(steps, reverse=True)
    while True:
        taken = 0
        for layer in order:
            if steps[layer] <= min(left, sum(sizes[layer]) - quotas[layer]):
                quotas[layer] += steps[layer]
                left, taken = left - steps[layer], taken + 1
        if not taken:
            return quotas


def removed_within(module: AttentionModule, quota: int, score: Score, moves: Moves) -> tuple[int, ...]:
    """Return the heads that a layer loses, the cheapest move per head first, until its quota is reached."""
    gone: tuple[int, ...] = ()
    while len(gone) < quota:
        options: list[Move] = [
            move
            for move in moves(module, frozenset(gone), _After(gone, score))
            if len(move) <= quota - len(gone)
        ]
        if not options:
            break
        prices = [score(gone, move) / len(move) for move in options]
        gone += options[prices.index(min(prices))]
    return gone


@dataclass(frozen=True)
class _After:
    """Prices of single heads, given what is gone."""

    gone: tuple[int, ...]
    score: Score

    def price(self, gone: Sequence[int]) -> float:
        return self.score(self.gone, [head for head in gone if head not in self.gone])


def swapped(
    module: AttentionModule, gone: Sequence[int], objective: Callable[[Sequence[int]], float], moves: Moves
) -> tuple[int, ...]:
    """Return removed heads after swaps, one in and one out, as long as the objective of the set falls.

    Where query heads share keys and the layer has to stay rectangular, heads are swapped within their group.
    """
    size = module.n_heads // module.n_kv_heads
    best, now = objective(gone), list(gone)
    while True:
        trials = [
            [*(head for head in now if head != out), other]
            for out in now
            for other in range(module.n_heads)
            if other not in now and (moves is single_heads or other // size == out // size)
        ]
        prices = [objective(trial) for trial in trials]
        # A relative margin, so that rounding cannot swap two equal heads for ever.
        if not prices or min(prices) >= best * (1 - 1e-9):
            return tuple(now)
        best, now = min(prices), trials[prices.index(min(prices))]


def least_moves(module: AttentionModule, moves: Moves) -> list[int]:
    """Return the sizes of the smallest moves of a layer, one after another, until it can lose no more."""
    alike, gone, found = ScorePrices(np.zeros(module.n_heads)), frozenset[int](), []
    while options := moves(module, gone, alike):
        least = min(options, key=len)
        gone |= set(least)
        found.append(len(least))
    return found
