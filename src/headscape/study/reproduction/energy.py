"""The experiments of the invariants paper (IS, arXiv 2605.02907) and its companion (arXiv 2604.04384)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headscape.energy.mutual_coherence import mutual_coherence
from headscape.energy.signatures import spectral_signatures
from headscape.energy.table import EnergyTables, energy_tables
from headscape.recorder.capturing import capture
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
from headscape.study.reproduction.networks import ENCODER, LANGUAGE, TRANSFORMER_XL, Networks
from headscape.tensor.capture import Capture

ROUNDING = 1e-5
"""Largest relative row sum of a float32 field that counts as zero."""
NEAR = 0.35
"""How far from 1.5 a median of mu_K still counts as near it."""
ENERGY_WINDOWS = 4


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
            )
        ],
        figures={"field": figure},
    )


def incoherence_of_models(networks: Networks) -> Evidence:
    """Compare the median of mu_K between models (figure 2)."""
    observations, models, rows = [], [], []
    for name, size, captured in _energy_captures(networks):
        keys = _measured(networks, captured).kv_heads
        keys = keys[keys["length"] == keys["length"].max()]
        q25, median, q75 = keys["mu_K"].quantile([0.25, 0.5, 0.75])
        models.append(ModelIncoherence(name, size, median, q25, q75, "at hand"))
        rows.append(
            {
                "model": name,
                "parameters": size,
                "key-value heads": len(keys),
                "q25": q25,
                "median": median,
                "q75": q75,
            }
        )
        observations.append(
            Observation(
                name,
                f"{captured.n_windows} random windows of {int(keys['length'].max())} tokens",
                f"mu_K has median {median:.2f}, interquartile {q25:.2f} to {q75:.2f}, over {len(keys)} "
                "key-value heads.",
                judged(abs(median - 1.5) < NEAR, abs(median - 1.5) > 2 * NEAR),
            )
        )
    return Evidence.of(
        observations, {"mu_K": pd.DataFrame(rows)}, {"mu_K": incoherence_models_figure(models)}
    )


def signatures_of_heads(networks: Networks) -> Evidence:
    """Measure the power below 1/(8 L), and that at multiples of 1/L (figure 3)."""
    observations, figures = [], {}
    for role in (LANGUAGE, TRANSFORMER_XL):
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
        observations.append(
            Observation(
                networks.title(role),
                networks.data(role, 1),
                f"Below 1/(8 L) the flattened field has {np.median(lows):.2f} of the power of white noise "
                f"(median of {len(lows)} heads, at most "
                f"{max(lows):.2f}); a share of {np.median(combs):.2f} lies on multiples of 1/L, "
                f"{np.median(shuffled):.3f} if each row is shuffled.",
                judged(max(lows) < 1 and min(combs) > 2 * max(shuffled), bool(np.median(lows) > 1)),
            )
        )
    return Evidence.of(observations, figures=figures)


def verified_lengths(networks: Networks) -> Evidence:
    """Test zero sums, rank bound and spread at several lengths and texts."""
    observations: list[Observation] = []
    tables: dict[str, pd.DataFrame] = {}
    lengths = [n for n in (64, 128, 256, 512, 1024) if n <= networks.sizes.longest] or [
        networks.sizes.longest
    ]
    for name, text in networks.texts().items():
        kept = f"long-{len(observations)}"
        captured = networks.captured(LANGUAGE, text, kept, 1, length=networks.sizes.longest)
        heads = energy_tables(
            captured, lengths, signatures=True, engine=networks.engine, progress=networks.progress
        ).heads
        dimension = int(captured.record(0, captured.layers[0]).queries.shape[-1])
        by_length = heads.groupby("length")[["zero_sum", "rank", "k90", "participation"]]
        table = by_length.agg(
            {"zero_sum": "max", "rank": "max", "k90": "median", "participation": "median"}
        ).reset_index()
        tables[name] = table
        worst, rank = float(table["zero_sum"].max()), int(table["rank"].max())
        spread = float(table["participation"].min())
        observations.append(
            Observation(
                networks.title(LANGUAGE),
                f"{name}, 1 window of {networks.sizes.longest} tokens and its prefixes",
                f"At L = {', '.join(map(str, lengths))} the largest relative row sum is {worst:.1e}, the "
                f"largest rank {rank} (head dimension {dimension}), "
                f"and the median head spreads its variance over at least {spread:.2f} of the keys "
                "(participation ratio).",
                judged(
                    worst < ROUNDING and rank <= dimension and spread > 0.1,
                    worst > ROUNDING or rank > dimension,
                ),
            )
        )
    return Evidence.of(observations, tables)


def coherent_keys(networks: Networks) -> Evidence:
    """Measure the mutual coherence of the keys, as the rebuttal of the review defines it."""
    observations = []
    for role in (LANGUAGE, TRANSFORMER_XL, ENCODER):
        captured = networks.capture(role)
        values = [
            mutual_coherence(keys)
            for record in captured.records(0)
            for keys in np.asarray(record.keys, dtype=float)
        ]
        low, median, high = np.quantile(values, [0.025, 0.5, 0.975])
        observations.append(
            Observation(
                networks.title(role),
                networks.data(role, 1),
                f"The largest absolute cosine of two distinct keys is {median:.3f} in the median of "
                f"{len(values)} key-value heads ({low:.3f} to {high:.3f} for 95 %): "
                "in every head some two keys are almost parallel, so that incoherence must mean even norms.",
                judged(median < 0.5),
            )
        )
    return Evidence.of(observations)


def components(networks: Networks) -> Evidence:
    """Count the components of the field and of the learned interaction that carry 90 % of the variance."""
    observations, tables = [], {}
    for role in (LANGUAGE, ENCODER):
        captured = networks.capture(role)
        tables_of = _measured(networks, captured.window(0))
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
            Observation(
                networks.title(role),
                networks.data(role, 1),
                f"90 % of the variance needs {k90.median():.0f} components of the energy field in the median "
                f"head ({k90.min():.0f} to {k90.max():.0f}; "
                f"{inside:.0%} of heads within 2 to 11) and {learned.median():.0f} of the learned interaction "
                f"({learned.min():.0f} to {learned.max():.0f}), of a head dimension of {dimension}.",
                judged(
                    k90.median() <= 11 and learned.median() > 2 * k90.median(),
                    learned.median() <= k90.median(),
                ),
            )
        )
    return Evidence.of(observations, tables)


def _energy_captures(networks: Networks) -> list[tuple[str, float, Capture]]:
    """Return the networks whose keys are measured: models, and checkpoints of a training run."""
    found = [_of_role(networks, role) for role in (LANGUAGE, ENCODER)]
    if networks.choice.transformer_xl is not None:
        return [*found, _of_role(networks, TRANSFORMER_XL)]
    for step in networks.training.checkpoints:
        model = networks.training.model(step)
        captured = capture(
            model,
            networks.inputs(TRANSFORMER_XL),
            windows=networks.windows(ENERGY_WINDOWS),
            length=networks.sizes.length,
            sample="random",
            seed=networks.seed,
        )
        found.append((f"Transformer-XL, step {step}", _parameters(model), captured))
    return found


def _of_role(networks: Networks, role: str) -> tuple[str, float, Capture]:
    return networks.title(role), _parameters(networks.model(role)), _first(networks.capture(role))


def _parameters(model: Any) -> float:
    return float(sum(weight.numel() for weight in model.model.parameters()))


def _measured(networks: Networks, captured: Capture) -> EnergyTables:
    """Return the energy measures of the first windows at their full length."""
    length = int(captured.record(0, captured.layers[0]).keys.shape[-2])
    return energy_tables(captured, [length], engine=networks.engine, progress=networks.progress)


def _first(captured: Capture) -> Capture:
    return captured.select(windows=range(min(ENERGY_WINDOWS, captured.n_windows)))


EXPERIMENTS = (
    Experiment(
        "energy-field",
        INVARIANTS,
        "figure 1",
        "The energy field of a head",
        "Every row of the energy field sums to zero over the visible keys.",
        (LANGUAGE,),
        0.1,
        field_of_a_head,
    ),
    Experiment(
        "key-incoherence",
        INVARIANTS,
        "figure 2",
        "Key incoherence over models",
        "The median of mu_K is near 1.5 in 16 models from 124M to 7B parameters, without a trend in size.",
        (LANGUAGE, ENCODER, TRANSFORMER_XL),
        1.0,
        incoherence_of_models,
        "The formula of mu_K is not in our sources; L max |k|^2 / sum |k|^2 gives figures in line with the "
        "paper.",
    ),
    Experiment(
        "spectral-signatures",
        INVARIANTS,
        "figure 3",
        "Spectral signatures",
        "Read row after row, the energy field has little power at low frequencies and a comb at multiples of "
        "1/L.",
        (LANGUAGE, TRANSFORMER_XL),
        0.2,
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
        2.0,
        verified_lengths,
    ),
    Experiment(
        "mutual-coherence",
        INVARIANTS,
        "rebuttal of the review",
        "Mutual coherence of the keys",
        "Keys are incoherent: the normalized inner products of distinct keys are small.",
        (LANGUAGE, TRANSFORMER_XL, ENCODER),
        0.1,
        coherent_keys,
    ),
    Experiment(
        "components",
        COMPANION,
        "main claim",
        "Components of the field and of the learned interaction",
        "90 % of the variance of the energy field lies in 2 to 11 components; the learned interaction W_Q^T "
        "W_K needs 38 to 75.",
        (LANGUAGE, ENCODER),
        0.5,
        components,
    ),
)
