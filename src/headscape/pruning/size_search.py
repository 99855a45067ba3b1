"""The heads that reach a goal: along the order of removal, by what is saved or by the loss on windows set aside.

Nothing here looks at the windows that the cost is reported on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headscape.ablation.greedy import ScorePrices
from headscape.ablation.repair_choice import START
from headscape.ablation.ridge_fit import Strength
from headscape.analysis.intervals import Interval, bootstrap
from headscape.engine import Progress
from headscape.errors import InputError
from headscape.output import counted
from headscape.pruning.goal import Goal
from headscape.pruning.manifest import Pairs
from headscape.pruning.removal_order import (
    GROUPS,
    UNITS,
    Order,
    flat,
    removal_order,
    require_count,
    smallest_step,
)
from headscape.pruning.savings import Change, Savings
from headscape.pruning.sized_choice import Found
from headscape.pruning.tradeoff import SizePoint, TradeOff
from headscape.pruning.trial_run import TrialRun

REACH = 2.0
"""The curve goes up to this many times the chosen number of heads."""
LARGEST_SHARE = 0.7
"""The curve does not go beyond this share of the heads."""
FINE = 0.01
"""A bound on the loss is searched until two sizes differ by this share of the heads."""


def chosen_heads(run: TrialRun, goal: Goal) -> tuple[str, Pairs]:
    """Return the kind of removal and the heads that reach a goal, the first choice first."""
    modules = run.judge.modules
    if goal.fraction is not None:
        count = require_count(modules, goal.kind, goal.fraction)
        return goal.kind, run.heads(goal.kind, run.order(goal.kind, count), count)
    smallest_step(modules, goal.kind)  # raises if nothing can go
    if goal.max_loss is not None:
        return goal.kind, _within_loss(run, goal.kind, goal.max_loss)
    found = {kind: _target_reached(run, kind, goal) for kind in _possible(run, goal)}
    if len(found) == 1:
        return next(iter(found.items()))
    costs = {kind: float(run.compared(heads).mean()) for kind, heads in found.items()}
    best = min(costs, key=lambda kind: costs[kind])
    return best, found[best]


def trade_off(run: TrialRun, kind: str, chosen: Pairs, sizes: int, strength: Strength | None) -> TradeOff:
    """Return sizes from small to ``REACH`` times the chosen one, of its kind and of others that can be cut out.

    The chosen size is repaired as it will be; the others with the same ridge and target, and chosen by the same plan,
    which saves the cross-validation of each.
    """
    assert run.comparing is not None
    n_heads = len(run.judge.heads)
    most = min(REACH * len(chosen), max(LARGEST_SHARE * n_heads, len(chosen)))
    wanted = [most * (place + 1) / sizes for place in range(sizes)]
    like = run.found(chosen) or Found(strength=START if strength is None else strength)
    found: dict[tuple[str, Pairs], bool] = {(kind, chosen): True}
    for other in _kinds(run, kind):
        order = run.order(other)
        for place, count in enumerate(wanted):
            run.progress(f"choosing sizes, {other}", place, sizes)
            heads = run.heads(other, order[: max(1, _steps_within(order, count))], like=like)
            if not any(set(heads) == set(known) for _, known in found):
                found[other, heads] = False
    points = []
    for place, ((of_kind, heads), mine) in enumerate(found.items()):
        run.progress("measuring the trade-off", place, len(found))
        increase = loss_increase(run, heads, None if mine else strength)
        points.append(SizePoint(of_kind, heads, n_heads, increase, run.savings(heads), chosen=mine))
    points.sort(key=lambda point: point.increase.estimate)
    return TradeOff(tuple(points), len(run.comparing.windows))


def loss_increase(run: TrialRun, heads: Pairs, strength: Strength | None = None) -> Interval:
    """Return what being without some heads adds to the loss, on the windows that compare sizes."""
    return bootstrap(run.compared(heads, strength) - run.compared(()))


def _kinds(run: TrialRun, kind: str) -> list[str]:
    """Return the kinds of removal of a curve: the chosen one, and those that differ in this model."""
    shared = any(1 < m.n_kv_heads < m.n_heads for m in run.judge.modules)
    known = [kind] if kind != "given" else []
    return list(dict.fromkeys([*known, UNITS, *([GROUPS] if shared else [])]))


def _possible(run: TrialRun, goal: Goal) -> list[str]:
    """Return the kinds that may reach a target; where no keys are shared, whole groups are nothing else than heads."""
    shared = any(1 < m.n_kv_heads < m.n_heads for m in run.judge.modules)
    return list(goal.kinds) if shared else [goal.kinds[0]]


def _steps_within(order: Order, count: float) -> int:
    """Return how many steps remove at most so many heads."""
    return int(np.searchsorted(np.cumsum([len(step) for step in order]), count + 1e-9, side="right"))


def _target_reached(run: TrialRun, kind: str, goal: Goal) -> Pairs:
    """Return the heads of the smallest size that brings the cache or the parameters down to the target."""
    share: Callable[[Savings], Change]
    if goal.target_kv is not None:
        target, what, share = goal.target_kv, "the key-value cache", lambda s: s.cache_bytes_per_token
    else:
        target, what, share = float(goal.target_params or 0), "the parameters", lambda s: s.parameters
    if not share(run.savings(())).before:
        raise InputError("this model has no key-value cache to make smaller: give fraction or target_params.")

    def left(heads: Pairs) -> float:
        return 1 - share(run.savings(heads)).share

    # Every order ends with the same numbers of heads, whatever their prices, which take a pass over the windows.
    free = {module.layer: ScorePrices(np.zeros(module.n_heads)) for module in run.judge.modules}
    least = left(flat(removal_order(run.judge.modules, free, kind)))
    if least > target:
        raise InputError(
            f"{what} cannot come down to {target:g}: with one head or group left in every layer it is "
            f"{np.ceil(1e4 * least) / 1e4:g} of what it was. Ask for that or more."
        )
    order = run.order(kind)
    low, high = 0, len(order)  # the steps up to high reach the target, those up to low do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if left(flat(order[:middle])) <= target else (middle, high)
    # A method that takes other heads than those of the order may save less with as many: then some more go.
    for steps in range(high, len(order) + 1):
        heads = run.heads(kind, order[:steps])
        if left(heads) <= target:
            return heads
    return flat(order[:high])


def _within_loss(run: TrialRun, kind: str, most: float) -> Pairs:
    """Return the heads of the largest size whose loss increase stays below a bound, with its interval.

    The upper end of the interval on the windows set aside has to stay below it. Sizes double from a step or 5 % of the
    heads on until one is too much; then the gap is halved.
    """
    order, n_heads = run.order(kind), len(run.judge.heads)
    tried: dict[int, tuple[Pairs, Interval]] = {}

    def fits(steps: int) -> bool:
        _searching(run.progress, len(tried), flat(order[:steps]))
        heads = run.heads(kind, order[:steps])
        found = loss_increase(run, heads)
        tried[steps] = heads, found
        return (found.high if found.has_bounds else found.estimate) <= most

    low, high = 0, max(1, _steps_within(order, 0.05 * n_heads))
    while high <= len(order) and fits(high):
        low, high = high, min(2 * high, len(order)) if high < len(order) else len(order) + 1
    while high - low > 1 and len(flat(order[low:high])) > max(1.0, FINE * n_heads):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low == 0:
        heads, cost = tried[min(tried)]
        raise InputError(
            f"no head can go for a loss increase of at most {most:g}: without {counted(len(heads), 'head')} it is "
            f"{cost} on the windows that compare sizes. Allow a larger increase, or calibrate on more windows."
        )
    return tried[low][0]


def _searching(progress: Progress, done: int, heads: Sequence[object]) -> None:
    progress(f"trying {counted(len(heads), 'head')}", done, done + 4)
