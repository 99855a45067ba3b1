"""The experiments of the invariants paper (IS, arXiv 2605.02907) and its companion (arXiv 2604.04384)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headscape.energy.field import energy_field, zero_sum_error
from headscape.energy.mutual_coherence import mutual_coherence
from headscape.energy.signatures import spectral_signatures
from headscape.energy.table import energy_tables
from headscape.output import counted
from headscape.recorder.interaction import interaction_spectra
from headscape.report.energy_figures import (
    ModelIncoherence,
    energy_field_figure,
    incoherence_models_figure,
    power_spectrum_figure,
)
from headscape.study.reproduction.experiment import (
    COMPANION,
    INVARIANTS,
    Evidence,
    Experiment,
    Observation,
    judged,
)
from headscape.study.reproduction.measured_models import energy_measures, measured_models
from headscape.study.reproduction.median_interval import median_interval
from headscape.study.reproduction.networks import ENCODER, LANGUAGE, TRANSFORMER_XL, Networks
from headscape.tensor.capture import Capture

ROUNDING = 1e-5
"""Largest relative row sum of a float32 field that counts as zero."""
NEAR = 0.35
"""How far from 1.5 a median of mu_K still counts as near it."""
PARALLEL = 0.9
"""From this absolute cosine on, two keys count as almost parallel."""


def field_of_a_head(networks: Networks) -> Evidence:
    """Draw the energy field of one head, and sum its rows (figure 1)."""
    captured = networks.capture(LANGUAGE)
    layer, head = networks.some_heads(LANGUAGE)[0]
    field = captured.tensor(0, "energy", heads=[(layer, head)])
    record = captured.record(0, layer)
    matrix = np.asarray(field.data[:, :, 0], dtype=float)
    worst = float(np.abs(matrix.sum(axis=1)).max() / (matrix.shape[1] * np.abs(matrix).max()))
    visible = np.asarray(record.visible_to(head))
    figure = energy_field_figure(
        matrix, visible, captured.tokens(0), f"{networks.title(LANGUAGE)}, head {layer}.{head}"
    )
    return Evidence.of(
        [
            Observation(
                networks.title(LANGUAGE),
                networks.data(LANGUAGE, 1),
                f"Head {layer}.{head}: the largest row sum is {worst:.1e} of what a row could sum to; "
                f"energies reach from {matrix.min():.1f} to {matrix.max():.1f}.",
                judged(worst < ROUNDING),
                f"{worst:.0e}",
            )
        ],
        figures={"field": figure},
    )


def incoherence_of_models(networks: Networks) -> Evidence:
    """Compare the median of mu_K between models (figure 2)."""
    observations, models, rows = [], [], []
    for found in measured_models(networks):
        if isinstance(found, Observation):
            observations.append(found)
            continue
        keys = energy_measures(networks, found.capture).kv_heads
        length = int(keys["length"].max())
        keys = keys[keys["length"] == length]
        q25, median, q75 = keys["mu_K"].quantile([0.25, 0.5, 0.75])
        interval = median_interval(keys["mu_K"])
        models.append(ModelIncoherence(found.name, found.parameters, median, q25, q75, "at hand"))
        labels = {"model": found.name, "parameters": found.parameters, "key-value heads": len(keys)}
        rows.append(labels | {"q25": q25, "median": median, "q75": q75})
        observations.append(
            Observation(
                found.name,
                f"{counted(found.capture.n_windows, 'random window')} of {length} tokens; "
                f"{networks.source(LANGUAGE)}",
                f"mu_K has median {interval:.2f}, interquartile range "
                f"{q25:.2f} to {q75:.2f}, over {len(keys)} key-value heads.",
                judged(abs(median - 1.5) < NEAR, abs(median - 1.5) > 2 * NEAR),
                f"{median:.2f}",
                found.untrained,
            )
        )
    return Evidence.of(
        observations, {"mu_K": pd.DataFrame(rows)}, {"mu_K": incoherence_models_figure(models)}
    )


def signatures_of_heads(networks: Networks) -> Evidence:
    """Measure the power below 1/(8 L), and that at multiples of 1/L (figure 3)."""
    observations, figures = [], {}
    for role in networks.present((LANGUAGE, TRANSFORMER_XL)):
        captured, lows, combs, shuffled = networks.capture(role), [], [], []
        for layer, head in networks.some_heads(role):
            pair = [(layer, head)]
            energy, logits = (
                captured.tensor(0, field, heads=pair).data[:, :, 0] for field in ("energy", "logits")
            )
            seen = np.asarray(captured.record(0, layer).visible_to(head))
            found = spectral_signatures(energy, np.where(seen, logits, 0.0), seed=networks.seed)
            lows.append(found.low_band)
            combs.append(found.comb_share)
            shuffled.append(found.comb_share_shuffled)
        figures[f"{role}-power"] = power_spectrum_figure(
            found, f"{networks.title(role)}, head {layer}.{head}"
        )
        low, comb = median_interval(lows), median_interval(combs)
        observations.append(
            networks.observed(
                role,
                1,
                f"Below 1/(8 L) the flattened field has {low:.3f} times the "
                f"power of white noise in the median of {len(lows)} heads (at most {max(lows):.2f}); a share of "
                f"{comb:.2f} lies on multiples of 1/L, against "
                f"{np.median(shuffled):.3f} if each row is shuffled.",
                judged(max(lows) < 1 and min(combs) > 2 * max(shuffled), bool(np.median(lows) > 1)),
                f"{low.estimate:.3f}",
            )
        )
    return Evidence.of(observations, figures=figures)


def verified_lengths(networks: Networks) -> Evidence:
    """Test zero sums, rank bound and spread at several lengths and texts."""
    observations: list[Observation] = []
    tables: dict[str, pd.DataFrame] = {}
    longest = networks.sizes.longest
    lengths = [n for n in (64, 128, 256, 512, 1024) if n <= longest] or [longest]
    for name, text in networks.texts().items():
        captured = networks.captured(LANGUAGE, text, f"long-{len(observations)}", 1, length=longest)
        heads = energy_tables(captured, lengths, engine=networks.engine, progress=networks.progress).heads
        dimension = int(captured.record(0, captured.layers[0]).queries.shape[-1])
        by_length = heads.groupby("length")[["rank", "k90", "participation"]]
        table = by_length.agg({"rank": "max", "k90": "median", "participation": "median"}).reset_index()
        table["zero_sum"] = [_largest_row_sum(captured, n) for n in table["length"]]
        tables[name] = table
        worst, rank = float(table["zero_sum"].max()), int(table["rank"].max())
        spread = float(table["participation"].min())
        whole = heads.loc[heads["length"] == longest, "participation"].quantile([0.25, 0.75])
        observations.append(
            Observation(
                networks.title(LANGUAGE),
                f"1 random window of {longest} tokens and its prefixes; {name}",
                f"At L = {', '.join(map(str, lengths))} the largest relative row sum is {worst:.1e} and the largest "
                f"rank {rank} (head dimension {dimension}). The median head spreads its variance over at least "
                f"{spread:.2f} of the keys (participation ratio; interquartile range {whole.iloc[0]:.2f} to "
                f"{whole.iloc[1]:.2f} at L = {longest}).",
                judged(
                    worst < ROUNDING and rank <= dimension and spread > 0.1,
                    worst > ROUNDING or rank > dimension,
                ),
                f"{spread:.2f}",
            )
        )
    return Evidence.of(observations, tables)


def _largest_row_sum(captured: Capture, length: int) -> float:
    """Return the largest relative row sum over all heads of the first window, cut to a length."""
    return max(
        zero_sum_error(
            energy_field(
                record.queries[head, :length], record.keys[record.kv_head(head), :length], record.scale
            )
        )
        for record in captured.records(0)
        for head in range(record.n_heads)
    )


def coherent_keys(networks: Networks) -> Evidence:
    """Measure the mutual coherence of the keys, as the rebuttal of the review defines it."""
    observations = []
    for role in networks.present((LANGUAGE, TRANSFORMER_XL, ENCODER)):
        captured = networks.capture(role)
        values = [
            mutual_coherence(keys)
            for record in captured.records(0)
            for keys in np.asarray(record.keys, dtype=float)
        ]
        median = median_interval(values)
        parallel = sum(value > PARALLEL for value in values)
        observations.append(
            networks.observed(
                role,
                1,
                f"The largest absolute cosine of two distinct keys is {median:.3f} "
                f"in the median of {len(values)} key-value heads (smallest {min(values):.3f}); "
                f"{parallel} of them have two keys with a cosine above {PARALLEL}.",
                judged(median.estimate < 0.5),
                f"{median.estimate:.3f}",
            )
        )
    return Evidence.of(observations)


def components(networks: Networks) -> Evidence:
    """Count the components of the field and of the learned interaction that carry 90 % of the variance."""
    observations, tables = [], {}
    for role in networks.present((LANGUAGE, ENCODER)):
        captured = networks.capture(role)
        tables_of = energy_measures(networks, captured.window(0))
        k90 = tables_of.heads.groupby(["layer", "head"])["k90"].median()
        spectra = interaction_spectra(networks.model(role).modules())
        learned = pd.Series({pair: spectrum.k90 for pair, spectrum in spectra.items()})
        dimension = int(captured.record(0, captured.layers[0]).queries.shape[-1])
        tables[role] = pd.DataFrame(
            {"components": ["energy field", "W_Q^T W_K"]}
            | {f"q{q}": [float(x.quantile(q / 100)) for x in (k90, learned)] for q in (0, 25, 50, 75, 100)}
        )
        inside = float(k90.between(2, 11).mean())
        observations.append(
            networks.observed(
                role,
                1,
                f"90 % of the variance needs {k90.median():.0f} components of the energy field in the median "
                f"head ({k90.min():.0f} to {k90.max():.0f}; "
                f"{inside:.0%} of heads within 2 to 11) and {learned.median():.0f} of the learned interaction "
                f"({learned.min():.0f} to {learned.max():.0f}), of a head dimension of {dimension}.",
                judged(
                    k90.median() <= 11 and learned.median() > 2 * k90.median(),
                    learned.median() <= k90.median(),
                ),
                f"{k90.median():.0f} and {learned.median():.0f}",
            )
        )
    return Evidence.of(observations, tables)


EXPERIMENTS = (
    Experiment(
        "energy-field",
        INVARIANTS,
        "figure 1",
        "The energy field of a head",
        "Every row of the energy field sums to zero over the visible keys.",
        (LANGUAGE,),
        "largest relative row sum",
        0.1,
        field_of_a_head,
        "Shown for head 5.0 of LLaMA-3.2-1B in the paper; here for a head drawn at random.",
    ),
    Experiment(
        "key-incoherence",
        INVARIANTS,
        "figure 2",
        "Key incoherence over models",
        "The median of mu_K is near 1.5 in 16 models from 124M to 7B parameters, without a trend in size.",
        (LANGUAGE, ENCODER, TRANSFORMER_XL),
        "median of mu_K",
        0.4,
        incoherence_of_models,
        "The paper's formula of mu_K was not available to us; L max |k|^2 / sum |k|^2 gives figures in line with it. "
        "Medians within 0.35 of 1.5 agree. --models paper measures the paper's models by their hub names.",
    ),
    Experiment(
        "spectral-signatures",
        INVARIANTS,
        "figure 3",
        "Spectral signatures",
        "Read row after row, the energy field has little power at low frequencies and a comb at multiples of "
        "1/L.",
        (LANGUAGE, TRANSFORMER_XL),
        "power below 1/(8 L), as a multiple of white noise",
        0.1,
        signatures_of_heads,
        "Only the band below 1/(8 L) is suppressed, not all below 1/L; the comb does not follow from zero "
        "sums.",
    ),
    Experiment(
        "lengths-and-texts",
        INVARIANTS,
        "verification",
        "Invariants at several lengths and texts",
        "Zero sums, the rank bound and the spread of variance hold at every length and text.",
        (LANGUAGE,),
        "share of the keys over which the median head spreads its variance",
        0.2,
        verified_lengths,
        "Rank and spread are those of the field centered over all keys: the bound by the head dimension holds only "
        "there. The paper tries several models; its bound on the spread was not available to us, so above 0.1 "
        "agrees.",
    ),
    Experiment(
        "mutual-coherence",
        INVARIANTS,
        "rebuttal of the review",
        "Mutual coherence of the keys",
        "Keys are incoherent: the normalized inner products of distinct keys are small.",
        (LANGUAGE, TRANSFORMER_XL, ENCODER),
        "largest absolute cosine of two keys, median head",
        0.1,
        coherent_keys,
        "The rebuttal defines incoherence by the largest normalized inner product of two distinct keys; the paper's "
        "figure 2 calls even key norms (mu_K = 1) perfectly incoherent. Both are measured, under their own names; a "
        "median below 0.5 agrees.",
    ),
    Experiment(
        "components",
        COMPANION,
        "main claim",
        "Components of the field and of the learned interaction",
        "90 % of the variance of the energy field lies in 2 to 11 components; the learned interaction W_Q^T "
        "W_K needs 38 to 75.",
        (LANGUAGE, ENCODER),
        "components of the field and of the interaction, median head",
        0.1,
        components,
        "The paper's models have head dimensions of 64 and 128; here the field has to need at most 11 components in "
        "the median head, and the interaction more than twice as many.",
    ),
)
