"""Over how many keys the variance of the energy field is spread, and whether even key norms explain it."""

from __future__ import annotations

from headscape.energy.statements import CONCENTRATED, energy_statements, name_heads
from headscape.study.reproduction.experiment import (
    INVARIANTS,
    Evidence,
    Experiment,
    Observation,
    judged,
)
from headscape.study.reproduction.measured_models import WINDOWS, energy_measures
from headscape.study.reproduction.median_interval import median_interval
from headscape.study.reproduction.networks import ENCODER, LANGUAGE, TRANSFORMER_XL, Networks
from headscape.study.reproduction.rank_correlation import rank_correlation


def spread_of_variance(networks: Networks) -> Evidence:
    """Measure over how many keys the variance of a head is spread, and what goes with it."""
    roles = networks.present((LANGUAGE, TRANSFORMER_XL, ENCODER))
    tables = {}
    observations: list[Observation] = []
    for role in roles:
        captured = networks.capture(role)
        windows = min(WINDOWS, captured.n_windows)
        found = energy_measures(networks, captured.select(windows=range(windows)))
        named = {one.name: one for one in energy_statements(found)}["counter-examples"].exceptions
        heads = found.heads
        few = int((heads["participation"] < CONCENTRATED).sum())
        # Heads that share their keys have one mu_K: each key-value head counts once.
        keys = heads.groupby(["layer", "kv_head"])[["mu_K", "participation"]].median()
        r = rank_correlation(keys["mu_K"], keys["participation"])
        middle = median_interval(heads["participation"])
        exceptions = f" ({name_heads(named)})" if named else ""
        observations.append(
            networks.observed(
                role,
                windows,
                f"The variance of the median head is spread over {middle:.2f} of the keys (participation ratio; "
                f"smallest {heads['participation'].min():.2f}); {few} of {len(heads)} heads have it on fewer than "
                f"{CONCENTRATED:.0%} of them. Over {len(keys)} key-value heads, mu_K and the participation ratio have "
                f"a rank correlation of {r}. Heads with an ordinary mu_K and still a concentrated variance: "
                f"{len(named)}{exceptions}.",
                judged(
                    few <= len(heads) / 20 and not named and r.interval.high < 0,
                    2 * few > len(heads) or r.interval.low > 0,
                ),
                f"{middle.estimate:.2f} ({r.interval.estimate:.2f})",
            )
        )
        tables[role] = heads[["layer", "head", "kv_head", "mu_K", "participation", "peak"]]
    return Evidence.of(observations, tables)


EXPERIMENTS = (
    Experiment(
        "delocalization",
        INVARIANTS,
        "model-level claim",
        "Spread of the variance over the keys",
        "In every model the variance of the energy field is spread over the keys, not concentrated on a few, because "
        "the keys are incoherent.",
        (LANGUAGE, TRANSFORMER_XL, ENCODER),
        "median participation ratio (in brackets: rank correlation with mu_K)",
        0.1,
        spread_of_variance,
        f"Agrees if at most 5 % of the heads have their variance on fewer than {CONCENTRATED:.0%} of the keys, none of "
        "them in spite of an ordinary mu_K (within 3 interquartile ranges), and heads with more even key norms spread "
        "it more; disagrees if most heads are concentrated or the correlation is positive. Fields are centered over "
        "all keys. The paper's own measure of the spread was not available to us.",
    ),
)
