"""Whether our way to remove heads is the best choice on a model, said in a sentence."""

from typing import TYPE_CHECKING

from headscape.ablation.choices import VALIDATED
from headscape.ablation.curves import REPAIRED, is_random
from headscape.analysis.intervals import bootstrap
from headscape.output import counted

if TYPE_CHECKING:
    from headscape.ablation.ablation_result import AblationStudy

NAMES = {
    VALIDATED: f"{VALIDATED}, the default of prune,",
    f"reconstruction{REPAIRED}": f"reconstruction{REPAIRED}",
}
"""What is judged, and what it is called: the default of ``prune``, else the ranking that it starts from."""


def default_verdict(study: "AblationStudy") -> str:
    """Return whether ours costs more than the best other method at some count; empty without others.

    A difference counts if the interval of the loss's difference, paired over windows, does not hold 0.
    """
    ours = next((name for name in NAMES if name in study.methods), "")
    others = [name for name in study.methods if name != ours and not is_random(name)]
    if not ours or not others:
        return ""
    worse, better = [], []
    for place, count in enumerate(study.counts):
        costs = {name: study.increase(name)[:, place].mean(axis=0) for name in (ours, *others)}
        best = min(others, key=lambda name: float(costs[name].mean()))
        difference = bootstrap(costs[ours] - costs[best])
        if not difference.has_bounds:
            return ""
        told = (
            f"{counted(count, 'head')} ({costs[ours].mean():.3g}, {best} {costs[best].mean():.3g}, difference "
            f"{difference})"
        )
        if difference.low > 0:
            worse.append(told)
        elif difference.high < 0:
            better.append(told)
    name = NAMES[ours]
    if worse:
        return f"{name} is not the best choice here: it costs more with {'; '.join(worse)} off, paired over windows."
    if len(better) == len(study.counts):
        return f"{name} is the best choice here: it costs less than every other method at all counts."
    clear = f"; it costs less with {'; '.join(better)} off, paired over windows" if better else ""
    return (
        f"{name} is as good a choice as any other method here: none costs clearly less at any count{clear}."
    )
