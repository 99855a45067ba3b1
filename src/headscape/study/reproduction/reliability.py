"""How far the results of the organization paper (arXiv 2506.15541) carry: parameters, texts, ablation, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.analysis.regularity import fitted_exponents
from headscape.analysis.sensitivity import sensitivity
from headscape.analysis.stability import rank_stability
from headscape.analysis.windows import staged
from headscape.errors import HeadscapeError
from headscape.notices import FLAT_GEOMETRY, UNSTABLE_RANKING
from headscape.output import counted
from headscape.recorder.inputs import InputReader
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    Verdict,
    judged,
)
from headscape.study.reproduction.head_experiments import head_table
from headscape.study.reproduction.median_interval import median_interval
from headscape.study.reproduction.networks import LANGUAGE, TRANSFORMER_XL, VISION, Networks, of_heads

ROLES = (LANGUAGE, TRANSFORMER_XL, VISION)
REMOVED = (1, 2, 3, 4, 5)
DRAWS, TEST_WINDOWS = 5, 4


def parameter_sensitivity(networks: Networks) -> Evidence:
    """Repeat the organization with other initial affinities and weights (section 4)."""
    found = sensitivity(
        networks.capture(LANGUAGE).tensor(0),
        engine=networks.engine,
        progress=staged(networks.progress, LANGUAGE),
    )
    table = found.to_frame().drop(columns="warning", errors="ignore")
    named = table[table["parameter"].isin(["init", "alpha, beta"])]
    moved = named[~named["robust"]]
    words = ", ".join(f"{row.parameter} = {row.value}" for row in moved.itertuples()) or "none"
    lowest = float(table["rank_correlation"].min())
    return Evidence.of(
        [
            Observation(
                networks.title(LANGUAGE),
                networks.data(LANGUAGE, 1),
                f"Of {len(named)} other choices of initial affinity and weights, {len(moved)} change the "
                "ranking of the heads or their distances "
                f"({words}); over all {len(table)} re-runs the rank correlation of the entropies is at least "
                f"{lowest:.2f}.",
                judged(len(moved) > 0),
            )
        ],
        {"re-runs": table.astype({"robust": str})},
    )


def ranking_stability(networks: Networks) -> Evidence:
    """Compare the ranks of the heads over up to 20 batches."""
    observations, tables = [], {}
    for role in ROLES:
        entropies = networks.entropies(role, networks.sizes.windows)
        rows = []
        for count in sorted({min(n, len(entropies)) for n in (6, 10, 20)}):
            found = rank_stability(entropies[:count], seed=networks.seed)
            rows.append(
                {
                    "batches": count,
                    "kendall_w": found.kendall_w.estimate,
                    "jaccard_bottom": found.jaccard_bottom.estimate,
                }
            )
        always = int((found.bottom_counts == len(entropies)).sum())
        w, overlap = found.kendall_w, found.jaccard_bottom
        tables[role] = pd.DataFrame(rows)
        observations.append(
            Observation(
                networks.title(role),
                networks.data(role, len(entropies)),
                f"Kendall's W of the entropy ranks is {w.estimate:.2f} [{w.low:.2f}, {w.high:.2f}], the "
                "lowest tenths of two batches overlap by "
                f"{overlap.estimate:.2f} [{overlap.low:.2f}, {overlap.high:.2f}] (Jaccard); {always} heads "
                "are in the lowest tenth of every batch.",
                judged(not found.warnings and always >= 3, bool(found.warnings)),
            )
        )
    return Evidence.of(observations, tables)


def low_entropy_exponents(networks: Networks) -> Evidence:
    """Compare the exponents of heads of low entropy with those of the others."""
    observations = []
    for role in ROLES:
        trees = networks.organization(role, 0).trees
        exponents = fitted_exponents(networks.capture(role).tensor(0).data, trees)["mixed"][:, 0]
        low = _lowest(networks, role)
        chosen = np.isin(np.arange(len(exponents)), low)
        difference = median_interval(exponents[chosen])
        rest = float(np.median(exponents[~chosen]))
        observations.append(
            Observation(
                networks.title(role),
                networks.data(role, 1),
                f"The {counted(len(low), 'head')} most often in the lowest tenth have a median mixed exponent of "
                f"{difference.estimate:.2f} [{difference.low:.2f}, "
                f"{difference.high:.2f}], the others {rest:.2f}.",
                judged(difference.low > rest, difference.high < rest),
            )
        )
    return Evidence.of(observations)


def low_entropy_ablation(networks: Networks) -> Evidence:
    """Switch 1 to 5 consistently low heads off, on several texts, and as many at random."""
    model = networks.model(LANGUAGE)
    heads = networks.capture(LANGUAGE).heads
    lowest = [heads[i] for i in _lowest(networks, LANGUAGE)][: REMOVED[-1]]
    rng = np.random.default_rng(networks.seed)
    random = [[heads[i] for i in rng.permutation(len(heads))[: REMOVED[-1]]] for _ in range(DRAWS)]
    rows: list[dict[str, Any]] = []
    observations: list[Observation] = []
    for name, text in networks.texts().items():
        networks.progress(f"switching low heads off: {name}", len(observations), len(networks.texts()))
        reader = InputReader(
            model.model,
            model.tokenizer,
            networks.sizes.length,
            TEST_WINDOWS,
            sample="random",
            seed=networks.seed + 1,
        )
        try:
            evaluator = HeadEvaluator(model, reader.read(text), seed=networks.seed)
            intact = evaluator.losses()
        except HeadscapeError as error:
            observations.append(Observation(model.title, name, f"Not tested: {error}", Verdict.untested))
            continue
        for count in [n for n in REMOVED if n <= len(lowest)]:
            low = float((evaluator.losses(lowest[:count]) - intact).mean())
            others = [float((evaluator.losses(order[:count]) - intact).mean()) for order in random]
            rows.append(
                {
                    "text": name,
                    "heads": count,
                    "low": low,
                    "random": np.mean(others),
                    "random_min": min(others),
                    "random_max": max(others),
                }
            )
        last = rows[-1]
        observations.append(
            Observation(
                model.title,
                f"{name}, {TEST_WINDOWS} windows of {networks.sizes.length} tokens",
                f"Switching off {of_heads(lowest)} costs {last['low']:+.3f} nats per token (intact "
                f"{intact.mean():.2f}), as many heads at random "
                f"{last['random_min']:+.3f} to {last['random_max']:+.3f} ({DRAWS} draws).",
                judged(last["low"] < last["random_min"], last["low"] > last["random_max"]),
            )
        )
    return Evidence.of(observations, {"loss increase": pd.DataFrame(rows)} if rows else {})


def failure_signatures(networks: Networks) -> Evidence:
    """Name the networks with flat maps, unstable ranks or large residuals."""
    observations = []
    for role in ROLES:
        warnings = {
            notice.name for notice in networks.organization(role, 0).warnings if notice.axis in ("", "head")
        }
        ranks = rank_stability(networks.entropies(role, networks.sizes.windows), seed=networks.seed)
        warnings |= {notice.name for notice in ranks.warnings}
        residual = head_table(networks, role)["residual"]
        seen = {
            "a flat map": FLAT_GEOMETRY in warnings,
            "unstable ranks": UNSTABLE_RANKING in warnings,
            "a large residual": bool(residual.median() >= 0.9),
        }
        shown = " and ".join(name for name, there in seen.items() if there) or "none of the three"
        observations.append(
            Observation(
                networks.title(role),
                networks.data(role, networks.sizes.windows),
                f"Shows {shown}: Kendall's W {ranks.kendall_w.estimate:.2f}, median residual of the "
                f"paraproduct {residual.median():.2f}.",
                Verdict.agrees if any(seen.values()) else Verdict.untested,
            )
        )
    return Evidence.of(observations)


def _lowest(networks: Networks, role: str) -> NDArray[Any]:
    """Return the places of the heads that are most often in the lowest tenth, the lowest mean rank first."""
    found = rank_stability(networks.entropies(role, networks.sizes.windows))
    often = found.bottom_counts > found.n_windows / 2
    order = np.lexsort((found.mean_ranks, ~often))
    return np.asarray(order[: max(1, int(often.sum()))])


EXPERIMENTS = (
    Experiment(
        "sensitivity",
        ORGANIZED,
        "section 4",
        "Sensitivity to initialization and weights",
        "The questionnaire can be sensitive to the initial affinity and to the weights of the EMD.",
        (LANGUAGE,),
        1.0,
        parameter_sensitivity,
    ),
    Experiment(
        "stability",
        ORGANIZED,
        "B.1, a digest's check 2",
        "Stability of the ranking over 20 batches",
        "The same heads have the lowest entropy whatever the batch.",
        ROLES,
        4.0,
        ranking_stability,
    ),
    Experiment(
        "low-entropy-exponents",
        ORGANIZED,
        "a digest's check 1",
        "Regularity of heads of low entropy",
        "Heads of low entropy are the smooth ones.",
        ROLES,
        0.2,
        low_entropy_exponents,
    ),
    Experiment(
        "low-entropy-ablation",
        ORGANIZED,
        "B.1, a digest's check 3",
        "Ablation of consistently low heads",
        "Heads of consistently low entropy do little and can be removed.",
        (LANGUAGE,),
        1.5,
        low_entropy_ablation,
    ),
    Experiment(
        "failure-signatures",
        ORGANIZED,
        "a digest, failure signatures",
        "Failure signatures",
        "Uniform heads show as flat maps, uninformative entropies as unstable ranks, irregular heads as large "
        "residuals.",
        ROLES,
        0.2,
        failure_signatures,
    ),
)
