"""How far the organization paper's results carry (arXiv 2506.15541): other parameters, other batches."""

from __future__ import annotations

import pandas as pd

from headscape.analysis.sensitivity import sensitivity
from headscape.analysis.stability import rank_stability
from headscape.analysis.windows import staged
from headscape.study.reproduction.experiment import ORGANIZED, Evidence, Experiment, judged, span
from headscape.study.reproduction.networks import JUDGED_ROLES, TENSOR_ROLES, Networks

GRID = {"init": ["gaussian"], "alpha, beta": [(0.5, 1.0), (0.0, 0.5), (1.0, 1.0), (1.0, 0.0)]}
"""Other initial affinities and weights than the cosine and (0, 1); (1, 0) are the weights of single heads in OA."""


def parameter_sensitivity(networks: Networks) -> Evidence:
    """Repeat the organization with other initial affinities and weights (section 4)."""
    observations, tables = [], {}
    for role in networks.present(JUDGED_ROLES):
        found = sensitivity(
            networks.capture(role).tensor(0),
            grid=GRID,
            engine=networks.engine,
            progress=staged(networks.progress, role),
        )
        table = found.to_frame().drop(columns="warning", errors="ignore")
        moved = table[~table["robust"]]
        words = ", ".join(f"{row.parameter} = {row.value}" for row in moved.itertuples())
        ranks, distances = table["rank_correlation"], table["emd_correlation"]
        observations.append(
            networks.observed(
                role,
                1,
                f"Of {len(table)} other choices of initial affinity and weights, {len(moved)} "
                f"{'changes' if len(moved) == 1 else 'change'} what is said about the heads"
                f"{f' ({words})' if words else ''}: their entropies keep a rank correlation of "
                f"{span(ranks, '.2f')} and their distances one of {span(distances, '.2f')}.",
                judged(len(moved) > 0),
                f"{len(moved)} of {len(table)}",
            )
        )
        tables[role] = table.astype({"robust": str})
    return Evidence.of(observations, tables)


def ranking_stability(networks: Networks) -> Evidence:
    """Compare the ranks of the heads over up to 20 batches."""
    observations, tables = [], {}
    for role in networks.present(TENSOR_ROLES):
        entropies = networks.entropies(role, networks.sizes.windows)
        rows = []
        for count in sorted({min(n, len(entropies)) for n in (6, 10, 20)}):
            found = rank_stability(entropies[:count], seed=networks.seed)
            w, overlap = found.kendall_w, found.jaccard_bottom
            rows.append({"batches": count, "kendall_w": w.estimate, "jaccard_bottom": overlap.estimate})
        always = int((found.bottom_counts == len(entropies)).sum())
        tables[role] = pd.DataFrame(rows)
        observations.append(
            networks.observed(
                role,
                len(entropies),
                f"Kendall's W of the entropy ranks is {w:.2f}, and the lowest "
                f"tenths of two batches overlap by {overlap:.2f} "
                f"(Jaccard); {always} of {entropies.shape[1]} heads are in the lowest tenth of every batch.",
                judged(not found.warnings and always > 0, bool(found.warnings)),
                f"{w.estimate:.2f}",
            )
        )
    return Evidence.of(observations, tables)


EXPERIMENTS = (
    Experiment(
        "sensitivity",
        ORGANIZED,
        "section 4",
        "Sensitivity to initialization and weights",
        "The questionnaire can be sensitive to the initial affinity and to the weights of the EMD.",
        JUDGED_ROLES,
        "choices that change what is said about the heads",
        0.4,
        parameter_sensitivity,
        "A choice counts if the rank correlation of entropies or distances falls below 0.8, or the lowest tenths "
        "overlap by less than 0.5 (Jaccard).",
    ),
    Experiment(
        "stability",
        ORGANIZED,
        "B.1, more batches",
        "Stability of the ranking over 20 batches",
        "The same heads have the lowest entropy whatever the batch.",
        TENSOR_ROLES,
        "Kendall's W",
        0.1,
        ranking_stability,
        "Stable means W of at least 0.7 and an overlap of at least 0.5.",
        organized=20,
    ),
)
