"""The stage "entropy": l1 entropies of the heads in every window, and whether their ranks repeat (OA 21)."""

from collections.abc import Sequence

import numpy as np

from headscape.analysis.entropy_study import (
    EntropyStudy,
    WindowEntropies,
    study_of_windows,
    window_entropies,
)
from headscape.energy.statements import name_heads
from headscape.study.stage import Material, Result, Stage, Summary


def measure_entropies(material: Material, window: int) -> Result:
    """Return the entropies of all heads in one window, on the trees of its organization."""
    parameters = material.parameters
    x = material.tensor(window, parameters["field"])
    trees = material.organizations[window].trees
    row = window_entropies(x, trees, parameters["k"], parameters["p"])
    return Result(
        {
            "entropies": row.entropies,
            "network": np.array([row.network]),
            "used": np.array([row.used]),
            "k_values": np.asarray(row.k_values, dtype=np.float64),
            "by_k": row.by_k,
        }
    )


def summarize_entropies(material: Material, results: Sequence[Result]) -> Summary:
    """Return entropies, ranks and counts of every head, and what they are worth."""
    study = entropy_study_of(material, results)
    frame = study.to_frame().set_index(["layer", "head"])
    return Summary(frame, _findings(study), study.warnings, study, headlines=2)


def entropy_study_of(material: Material, results: Sequence[Result]) -> EntropyStudy:
    """Put the windows of the stage together into the study that :func:`headscape.entropy_study` gives."""
    rows = [
        WindowEntropies(
            entropies=result.arrays["entropies"],
            network=float(result.arrays["network"][0]),
            used=int(result.arrays["used"][0]),
            k_values=tuple(result.arrays["k_values"]),
            by_k=result.arrays["by_k"],
            by_field=np.empty((0, len(material.heads))),
        )
        for result in results
    ]
    parameters = material.parameters
    return study_of_windows(
        rows,
        heads=material.heads,
        trees=tuple(dict(organization.trees) for organization in material.organizations),
        field=parameters["field"],
        parameters={
            "k": parameters["k"],
            "p": parameters["p"],
            "trees": "per_window",
            "seed": parameters["seed"],
            "organize": dict(parameters["organize"]),
        },
    )


def _findings(study: EntropyStudy) -> tuple[str, ...]:
    n, windows = len(study.heads), len(study.entropies)
    stability = study.stability
    always_low = np.flatnonzero(stability.bottom_counts == windows)
    always_high = np.flatnonzero(stability.top_counts == windows)
    named = [study.heads[i] for i in always_low[np.argsort(stability.mean_ranks[always_low])]]
    high = [study.heads[i] for i in always_high[np.argsort(-stability.mean_ranks[always_high])]]
    share = f"{stability.share:.0%}"
    sentences = [stability.verdict]
    if windows > 1:
        sentences.append(
            f"{len(named)} of {n} heads are among the lowest {share} by l{study.parameters['p']:g} entropy in all "
            f"{windows} windows"
            + (f" ({name_heads(named, 8)})" if named else "")
            + f", {len(high)} among the "
            f"highest"
            + (f" ({name_heads(high, 8)})" if high else "")
            + ". That a low entropy means little use "
            "is a hypothesis: test it with headscape ablate before relying on it."
        )
    layers = _layers_of_lowest(study)
    if layers:
        sentences.append(layers)
    moved = study.sensitivity()
    if len(moved):
        low = moved["rank_correlation"].min()
        sentences.append(
            f"The choice of k moves the ranks {'little' if low > 0.9 else 'noticeably'}: with k from "
            f"{moved['value'].iloc[0]} to {moved['value'].iloc[-1]} instead of {study.parameters['k']:g} the rank "
            f"correlation is at least {low:.2f}."
        )
    return tuple(sentences)


def _layers_of_lowest(study: EntropyStudy) -> str:
    """Say which layers the lowest tenth of the heads come from, if a few hold most of them."""
    count = max(1, round(0.1 * len(study.heads)))
    lowest = np.argsort(study.stability.mean_ranks, kind="stable")[:count]
    layers, counts = np.unique([study.heads[i][0] for i in lowest], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:3]
    held = int(counts[order].sum())
    if len(np.unique([layer for layer, _ in study.heads])) < 6 or held < 0.6 * count:
        return ""
    named = ", ".join(f"{counts[i]} in layer {layers[i]}" for i in order)
    return f"Most of the {count} lowest-entropy heads sit in few layers: {named}."


ENTROPY = Stage("entropy", "measuring entropies", measure_entropies, summarize_entropies, cost=2.0)
