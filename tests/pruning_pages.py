"""Made-up pruning trials, for tests of their page without a model's time."""

import numpy as np

from headscape.ablation.repair import Repair
from headscape.ablation.ridge_fit import Strength
from headscape.analysis.intervals import Interval
from headscape.models.anatomy import attention_modules, of_stack
from headscape.models.loading import as_model
from headscape.notices import Notice
from headscape.pruning.expected_savings import expected_savings
from headscape.pruning.speed import Speed, Timing
from headscape.pruning.tradeoff import SizePoint, TradeOff
from headscape.pruning.trial_result import PruningTrial
from pruning_cases import grouped_llama

SIZES = {
    "units": [((0, 0), (0, 2), (0, 4)), ((0, 0), (0, 2), (0, 4), (1, 1), (1, 3), (1, 5))],
    "groups": [((1, 0), (1, 1)), ((1, 0), (1, 1), (0, 4), (0, 5))],
}
LOSSES = {"units": [0.01, 0.05], "groups": [0.02, 0.3]}


def made_up_trial(curve: bool = True) -> PruningTrial:
    """Return a trial of a tiny model with shared keys: four sizes, two kinds."""
    model = grouped_llama(6, 3)
    modules = of_stack(attention_modules(model))
    points = []
    for kind, sizes in SIZES.items():
        for heads, loss in zip(sizes, LOSSES[kind], strict=True):
            speed = Speed(Timing((1.0,), (1 - 0.02 * len(heads),)), Timing((1.0,), (0.9,)), 256, 16, 1)
            found = Interval(loss, 0.8 * loss, 1.3 * loss)
            savings = expected_savings(modules, heads)
            points.append(
                SizePoint(kind, heads, 12, found, savings, speed, chosen=heads == SIZES["units"][0])
            )
    points.sort(key=lambda point: point.increase.estimate)
    intact = np.linspace(2.0, 2.4, 8)
    heads = SIZES["units"][0]
    return PruningTrial(
        model=as_model(model),
        heads=heads,
        method="reconstruction",
        n_heads=12,
        intact=intact,
        gated=intact + np.linspace(0.1, 0.2, 8),
        repaired=intact + np.linspace(0.01, 0.03, 8),
        random=np.stack([intact + 0.5, intact + 0.7]),
        random_repaired=True,
        loss="nats per token",
        repair=Repair({}, {}, Strength(0.1)),
        windows=(8, 8),
        warnings=(Notice("over-max-loss", "more <b>than</b> asked for"),),
        savings=expected_savings(modules, heads),
        curve=TradeOff(tuple(points), 8) if curve else None,
    )
