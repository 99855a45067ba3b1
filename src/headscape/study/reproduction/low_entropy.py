"""Whether heads of low Haar entropy do little (arXiv 2506.15541, B.1): their regularity, and their ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.intervals import bootstrap
from headscape.analysis.regularity import fitted_exponents
from headscape.analysis.stability import rank_stability
from headscape.errors import HeadscapeError
from headscape.output import counted
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    Verdict,
    judged_sign,
)
from headscape.study.reproduction.head_losses import head_evaluator, judged_data, loss_inputs
from headscape.study.reproduction.networks import JUDGED_ROLES, TENSOR_ROLES, Networks, of_heads

MOST_REMOVED, DRAWS, BATCHES = 5, 10, 6

Heads = list[tuple[int, int]]


def low_entropy_exponents(networks: Networks) -> Evidence:
    """Compare the exponents of heads of low entropy with those of the others, over batches."""
    observations = []
    for role in networks.present(TENSOR_ROLES):
        captured = networks.capture(role)
        low = lowest_heads(networks, role)
        chosen = np.isin(np.arange(len(captured.heads)), low)
        rows = []
        for window in range(min(BATCHES, captured.n_windows)):
            trees = networks.organization(role, window).trees
            exponents = fitted_exponents(captured.tensor(window).data, trees)["mixed"][:, 0]
            rows.append((np.nanmedian(exponents[chosen]), np.nanmedian(exponents[~chosen])))
        ours, others = np.array(rows).T
        difference = bootstrap(ours - others, seed=networks.seed)
        observations.append(
            networks.observed(
                role,
                len(rows),
                f"The {counted(len(low), 'head')} most often in the lowest tenth have a median mixed exponent of "
                f"{ours.mean():.2f}, the others {others.mean():.2f} (means over batches); the difference is "
                f"{difference:+.2f}.",
                judged_sign(difference, 1),
                f"{difference.estimate:+.2f}",
            )
        )
    return Evidence.of(observations)


def low_entropy_ablation(networks: Networks) -> Evidence:
    """Switch 1 to 5 consistently low heads off, on several texts and tasks, and as many at random."""
    observations: list[Observation] = []
    rows: list[dict[str, Any]] = []
    for role in networks.present(JUDGED_ROLES):
        heads = networks.capture(role).heads
        lowest = [heads[i] for i in lowest_heads(networks, role)][:MOST_REMOVED]
        rng = np.random.default_rng(networks.seed)
        random = [[heads[i] for i in rng.permutation(len(heads))[: len(lowest)]] for _ in range(DRAWS)]
        for name, inputs in loss_inputs(networks, role).items():
            networks.progress(f"{role}: switching low heads off", len(observations), len(TENSOR_ROLES))
            evaluator = head_evaluator(networks, role, inputs)
            title = networks.title(role)
            if isinstance(evaluator, HeadscapeError):
                observations.append(Observation(title, name, f"Not tested: {evaluator}", Verdict.untested))
                continue
            intact = evaluator.losses()
            costs = [evaluator.losses(lowest[: n + 1]) - intact for n in range(len(lowest))]
            draws = np.array([evaluator.losses(order) - intact for order in random])
            data = judged_data(evaluator, role, name)
            observations.append(_removal(title, data, intact, lowest, costs, draws))
            rows += [
                {"network": title, "data": name, "heads": n, "low": cost.mean()}
                for n, cost in enumerate(costs, start=1)
            ]
            rows[-1] |= {"random_min": draws.mean(axis=1).min(), "random_max": draws.mean(axis=1).max()}
    return Evidence.of(observations, {"loss increase": pd.DataFrame(rows)} if rows else {})


def _removal(
    title: str,
    data: str,
    intact: NDArray[np.float64],
    lowest: Heads,
    costs: Sequence[NDArray[np.float64]],
    draws: NDArray[np.float64],
) -> Observation:
    """Say what switching the lowest heads off costs, against as many at random on the same windows."""
    increase = bootstrap(costs[-1], seed=0)
    against = bootstrap(costs[-1] - draws.mean(axis=0), seed=0)
    steps = ", ".join(f"{cost.mean():+.3f}" for cost in costs)
    means = draws.mean(axis=1)
    beaten = int((means > costs[-1].mean()).sum())
    return Observation(
        title,
        data,
        f"Without heads {of_heads(lowest)} the loss of {intact.mean():.2f} nats changes by {increase:+.3f} (one head "
        f"after the other: {steps}), without as many random heads by {means.min():+.3f} to {means.max():+.3f}, "
        f"more in {beaten} of {len(draws)} draws. Compared with the mean draw, the low heads make a difference of "
        f"{against:+.3f} nats.",
        judged_sign(against, -1),
        f"{increase.estimate:+.3f} against {means.mean():+.3f}",
    )


def lowest_heads(networks: Networks, role: str) -> NDArray[Any]:
    """Return the places of the heads that are most often in the lowest tenth, the lowest mean rank first."""
    found = rank_stability(networks.entropies(role, networks.sizes.windows))
    often = found.bottom_counts > found.n_windows / 2
    order = np.lexsort((found.mean_ranks, ~often))
    return np.asarray(order[: max(1, int(often.sum()))])


EXPERIMENTS = (
    Experiment(
        "low-entropy-exponents",
        ORGANIZED,
        "follow-up check",
        "Regularity of heads of low entropy",
        "Heads of low entropy are the smooth ones.",
        TENSOR_ROLES,
        "mixed exponent of low heads minus that of the others",
        0.2,
        low_entropy_exponents,
        "Heads in the lowest tenth of more than half of the batches count as low.",
        organized=20,
    ),
    Experiment(
        "low-entropy-ablation",
        ORGANIZED,
        "B.1",
        "Ablation of consistently low heads",
        "Heads of consistently low entropy do little and can be removed.",
        JUDGED_ROLES,
        "loss increase in nats, low heads against random ones",
        13.0,
        low_entropy_ablation,
        "Agrees if the lowest heads cost less than as many at random, with a 95 % interval over windows. Language "
        "models predict the next token, image models the label.",
        organized=20,
    ),
)
