"""Whether heads of low Haar entropy do little (arXiv 2506.15541, B.1): their regularity, and their ablation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
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
    judged,
)
from headscape.study.reproduction.head_losses import head_evaluator, loss_inputs
from headscape.study.reproduction.networks import (
    LANGUAGE,
    TRANSFORMER_XL,
    UNTRAINED_VISION,
    VISION,
    Networks,
    of_heads,
)

ROLES = (LANGUAGE, TRANSFORMER_XL, VISION, UNTRAINED_VISION)
JUDGED_ROLES = (LANGUAGE, TRANSFORMER_XL, VISION)
MOST_REMOVED, DRAWS, BATCHES = 5, 5, 6

Heads = list[tuple[int, int]]


def low_entropy_exponents(networks: Networks) -> Evidence:
    """Compare the exponents of heads of low entropy with those of the others, over batches."""
    observations = []
    for role in networks.present(ROLES):
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
                f"{difference.estimate:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}].",
                judged(difference.low > 0, difference.high < 0),
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
            networks.progress(f"{role}: switching low heads off", len(observations), len(ROLES))
            evaluator = head_evaluator(networks, role, inputs)
            title = networks.title(role)
            if isinstance(evaluator, HeadscapeError):
                observations.append(Observation(title, name, f"Not tested: {evaluator}", Verdict.untested))
                continue
            table = _costs(evaluator, lowest, random)
            data = f"{len(evaluator.windows)} random windows; {name}"
            observations.append(_removal(title, data, evaluator, lowest, random, table))
            rows += [{"network": title, "data": name, **row} for row in table]
    return Evidence.of(observations, {"loss increase": pd.DataFrame(rows)} if rows else {})


def _costs(evaluator: HeadEvaluator, lowest: Heads, random: list[Heads]) -> list[dict[str, float]]:
    """Return what switching 1 head, 2 heads, ... off costs: the lowest, and as many at random."""
    intact, rows = evaluator.losses(), []
    for count in range(1, len(lowest) + 1):
        others = [float((evaluator.losses(order[:count]) - intact).mean()) for order in random]
        low = float((evaluator.losses(lowest[:count]) - intact).mean())
        spread = {"random": float(np.mean(others)), "random_min": min(others), "random_max": max(others)}
        rows.append({"heads": count, "low": low, **spread})
    return rows


def _removal(
    title: str,
    data: str,
    evaluator: HeadEvaluator,
    lowest: Heads,
    random: list[Heads],
    table: list[dict[str, float]],
) -> Observation:
    """Say what switching the lowest heads off costs, against as many at random on the same windows."""
    last = table[-1]
    low = evaluator.losses(lowest)
    increase = bootstrap(low - evaluator.losses(), seed=0)
    against = bootstrap(low - np.mean([evaluator.losses(order) for order in random], axis=0), seed=0)
    costs = ", ".join(f"{row['low']:+.3f}" for row in table)
    return Observation(
        title,
        data,
        f"Switching off the {counted(len(lowest), 'head')} {of_heads(lowest)} one after the other raises the loss of "
        f"{evaluator.losses().mean():.2f} nats by {costs}, at the end [{increase.low:+.3f}, {increase.high:+.3f}]; as "
        f"many heads at random by {last['random_min']:+.3f} to {last['random_max']:+.3f} ({DRAWS} draws). The lowest "
        f"heads cost {against.estimate:+.3f} [{against.low:+.3f}, {against.high:+.3f}] nats more than the mean draw.",
        judged(against.high < 0, against.low > 0),
        f"{last['low']:+.3f} against {last['random']:+.3f}",
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
        "a digest's check 1",
        "Regularity of heads of low entropy",
        "Heads of low entropy are the smooth ones.",
        ROLES,
        "mixed exponent of low heads minus that of the others",
        0.5,
        low_entropy_exponents,
        "Heads in the lowest tenth of more than half of the batches count as low.",
        organized=20,
    ),
    Experiment(
        "low-entropy-ablation",
        ORGANIZED,
        "B.1, a digest's check 3",
        "Ablation of consistently low heads",
        "Heads of consistently low entropy do little and can be removed.",
        JUDGED_ROLES,
        "loss increase in nats, low heads against random ones",
        2.0,
        low_entropy_ablation,
        "Agrees if the lowest heads cost less than as many at random, with a 95 % interval over windows. Language "
        "models predict the next token, image models the label.",
        organized=20,
    ),
)
