"""Whether the default way to remove heads is the best choice on a model, said in a sentence."""

from typing import TYPE_CHECKING

from headscape.ablation.curves import REPAIRED, is_random
from headscape.analysis.intervals import bootstrap
from headscape.output import counted

if TYPE_CHECKING:
    from headscape.ablation.ablation_result import AblationStudy

DEFAULT = "reconstruction" + REPAIRED
"""How ``prune`` removes heads unless something else is asked for."""


def default_verdict(study: "AblationStudy") -> str:
    """Return whether the default costs more than the best other method at some count; empty without others.

    A difference counts if the interval of the loss's difference, paired over windows, does not hold 0.
    """
    others = [name for name in study.methods if name != DEFAULT and not is_random(name)]
    if DEFAULT not in study.methods or not others:
        return ""
    worse, better = [], []
    for place, count in enumerate(study.counts):
        costs = {name: study.increase(name)[:, place].mean(axis=0) for name in (DEFAULT, *others)}
        best = min(others, key=lambda name: float(costs[name].mean()))
        difference = bootstrap(costs[DEFAULT] - costs[best])
        if not difference.has_bounds:
            return ""
        told = f"{counted(count, 'head')} ({study.interval(DEFAULT, count)}, {best} {study.interval(best, count)})"
        if difference.low > 0:
            worse.append(told)
        elif difference.high < 0:
            better.append(told)
    if worse:
        return (
            f"{DEFAULT}, the default, is not the best choice here: it costs more with {'; '.join(worse)} off."
        )
    if len(better) == len(study.counts):
        return f"{DEFAULT}, the default, is the best choice here: it costs less than every other method at all counts."
    clear = f"; it costs less with {'; '.join(better)} off" if better else ""
    return (
        f"{DEFAULT}, the default, is as good a choice as any other method here: none costs clearly less at any "
        f"count{clear}."
    )
