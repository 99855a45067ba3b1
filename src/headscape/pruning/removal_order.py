"""The order in which heads go, step by step, each step something that can be cut out: the sizes of one trade-off.

| kind | a step |
|---|---|
| units | in one layer a whole key-value group, or one head of each group that is left |
| groups | in one layer a whole key-value group: only these make the key-value cache smaller |
| uniform | the same in every layer, so that all layers keep the same number of heads |
| uniform groups | a whole group in every layer |

Every step is the cheapest per head of the whole network, given what is gone (:mod:`headscape.ablation.greedy`), so that
the first n steps are the choice for their number of heads, unless a method chooses each size anew
(:mod:`headscape.pruning.sized_choice`).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from headscape.ablation.choices import VALIDATED
from headscape.ablation.greedy import (
    Move,
    Prices,
    RememberedPrices,
    ScorePrices,
    greedy_removal,
    removable_units,
)
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.output_metric import IntactPrices
from headscape.ablation.rankings import Method, ranking_of
from headscape.ablation.rivals import RIVALS
from headscape.ablation.scores.reconstruction import reconstruction_prices
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.models.anatomy import AttentionModule
from headscape.output import counted
from headscape.pruning.manifest import Pairs

Order = tuple[Pairs, ...]
"""Steps, each the (layer, head) pairs that go together."""
UNITS, GROUPS, UNIFORM, UNIFORM_GROUPS = "units", "groups", "uniform", "uniform groups"


def flat(order: Order) -> Pairs:
    """Return the heads of all steps."""
    return tuple(pair for step in order for pair in step)


def kind_of(groups: bool, uniform: bool) -> str:
    """Return the kind of steps that two wishes make."""
    if uniform:
        return UNIFORM_GROUPS if groups else UNIFORM
    return GROUPS if groups else UNITS


def require_priced(method: Method) -> None:
    """Raise for a published method that chooses heads and a compensation of its own, for one number of heads."""
    if isinstance(method, str) and method in RIVALS:
        raise InputError(
            f"prune takes 'validated' (the default), 'reconstruction' or a score, but the method is {method!r}, which "
            "chooses heads and a compensation of its own for one number of heads: compare it with headscape ablate."
        )


def prices_of(
    evaluator: HeadEvaluator, method: Method, intact: Callable[[], IntactPrices]
) -> Mapping[int, Prices]:
    """Return the prices of all layers by a method; those of scores add up.

    "validated" has the prices of "reconstruction": sizes are found along their order, and the heads of a size are then
    chosen anew (:mod:`headscape.pruning.sized_choice`).
    """
    if isinstance(method, str) and method == VALIDATED:
        return intact().reconstruction
    if isinstance(method, str) and method == "reconstruction":
        return {layer: RememberedPrices(found) for layer, found in reconstruction_prices(evaluator).items()}
    frame = ranking_of(evaluator, method).to_frame()["score"]
    return {m.layer: ScorePrices(frame.loc[m.layer].to_numpy()) for m in evaluator.modules}


def removal_order(
    modules: Sequence[AttentionModule],
    prices: Mapping[int, Prices],
    kind: str,
    count: int | None = None,
    progress: Progress = no_progress,
) -> Order:
    """Return the steps that remove at most ``count`` heads; None goes on until no layer can lose more."""
    most = sum(module.n_heads for module in modules) if count is None else count
    if kind in (UNITS, GROUPS):
        moves = removable_units if kind == UNITS else whole_groups
        steps = greedy_removal(modules, prices, moves, most, progress)
        return tuple(tuple((step.layer, head) for head in step.heads) for step in steps)
    return _uniform_order(modules, prices, removable_units if kind == UNIFORM else whole_groups, most)


def whole_groups(module: AttentionModule, gone: frozenset[int], prices: Prices) -> list[Move]:
    """Return the groups of a layer that can go: all that are left, unless it is the last.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> whole_groups(SimpleNamespace(n_heads=6, n_kv_heads=3), frozenset({2, 3}), None)
    [(0, 1), (4, 5)]
    """
    size = module.n_heads // module.n_kv_heads
    groups = [tuple(range(group * size, (group + 1) * size)) for group in range(module.n_kv_heads)]
    left = [group for group in groups if not gone & set(group)]
    return list(left) if len(left) > 1 else []


def smallest_step(modules: Sequence[AttentionModule], kind: str) -> int:
    """Return the fewest heads that can go at once, or raise if none can."""
    able = [m for m in modules if (m.n_kv_heads if kind in (GROUPS, UNIFORM_GROUPS) else m.n_heads) > 1]
    uniform = kind in (UNIFORM, UNIFORM_GROUPS)
    if uniform:
        _require_alike(modules)
    if not able or (uniform and len(able) < len(modules)):
        what = "key-value group" if kind in (GROUPS, UNIFORM_GROUPS) else "head"
        raise InputError(f"no head can be removed: every layer has a single {what}.")
    least = min(_least(module, kind) for module in able)
    return least * len(modules) if uniform else least


def require_count(modules: Sequence[AttentionModule], kind: str, fraction: float) -> int:
    """Return how many heads a share of them is, or raise if that is less than one step."""
    n_heads = sum(module.n_heads for module in modules)
    count, least = int(fraction * n_heads + 1e-9), smallest_step(modules, kind)
    if count < least:
        where = "every layer loses the same," if kind in (UNIFORM, UNIFORM_GROUPS) else "a layer loses"
        raise InputError(
            f"{fraction:g} of {counted(n_heads, 'head')} is {count}, but {where} at least {least} at once: the "
            f"smallest fraction (--fraction) that removes something is {share_for(least, n_heads):g}."
        )
    return count


def share_for(count: int, n_heads: int) -> float:
    """Return the smallest share, to four digits, that stands for so many heads.

    Examples
    --------
    >>> share_for(48, 270)
    0.1778
    """
    return float(np.ceil(1e4 * count / n_heads) / 1e4)


def _least(module: AttentionModule, kind: str) -> int:
    size = module.n_heads // module.n_kv_heads
    return size if kind in (GROUPS, UNIFORM_GROUPS) else min(module.n_kv_heads, size)


def _require_alike(modules: Sequence[AttentionModule]) -> None:
    shapes = {(module.n_heads, module.n_kv_heads) for module in modules}
    if len(shapes) > 1:
        raise InputError(
            "uniform removal (--uniform) needs layers with the same number of heads, but they have "
            f"{', '.join(str(heads) for heads, _ in sorted(shapes))}. Leave it out, or start from the original model."
        )


def _uniform_order(
    modules: Sequence[AttentionModule],
    prices: Mapping[int, Prices],
    moves: Callable[[AttentionModule, frozenset[int], Prices], list[Move]],
    most: int,
) -> Order:
    """Return rounds in which all layers lose the same, each layer its cheapest move of the round's shape."""
    _require_alike(modules)
    gone: dict[int, frozenset[int]] = {module.layer: frozenset() for module in modules}
    rounds: list[Pairs] = []
    while True:
        by_shape: dict[tuple[int, ...], dict[int, tuple[float, Move]]] = {}
        for module in modules:
            before, found = gone[module.layer], prices[module.layer]
            paid = found.price(sorted(before)) if before else 0.0
            for move in moves(module, before, found):
                shape = _kept(module, before | set(move))
                option = (found.price(sorted({*before, *move})) - paid, move)
                known = by_shape.setdefault(shape, {})
                known[module.layer] = min(option, known.get(module.layer, option))
        left = most - sum(map(len, rounds))
        options = [
            [(layer, price, move) for layer, (price, move) in found.items()]
            for found in by_shape.values()
            if len(found) == len(modules) and sum(len(move) for _, move in found.values()) <= left
        ]
        if not options:
            return tuple(rounds)
        best = min(options, key=lambda o: sum(p for _, p, _ in o) / sum(len(m) for _, _, m in o))
        rounds.append(tuple((layer, head) for layer, _, move in best for head in move))
        for layer, _, move in best:
            gone[layer] |= set(move)


def _kept(module: AttentionModule, gone: frozenset[int]) -> tuple[int, ...]:
    """Return how many heads the groups of a layer keep, the largest first, without those that are gone."""
    size = module.n_heads // module.n_kv_heads
    kept = [sum(h not in gone for h in range(g * size, (g + 1) * size)) for g in range(module.n_kv_heads)]
    return tuple(sorted((n for n in kept if n), reverse=True))
