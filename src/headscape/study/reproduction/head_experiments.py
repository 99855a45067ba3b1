"""Some heads of a network taken apart: their softmax, paraproduct, and smoothness in three orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.head_logits import HeadLogits, LogitSource
from headscape.analysis.log_softmax import filled_logits
from headscape.analysis.regularity import fitted_exponents
from headscape.analysis.softmax_experiment import SoftmaxExperiment, softmax_experiment
from headscape.study.reproduction.networks import Networks
from headscape.study.stages.result import Result


def head_table(networks: Networks, role: str) -> pd.DataFrame:
    """Return the measures of some heads of a network, a row each, computed once and kept in the store."""
    part = f"softmax-{role}"
    if networks.store.has(part):
        return Result.read(networks.store.read(part)).tables["heads"]
    chosen = _chosen(networks, role)
    with networks.times.timed(f"{role}: softmax of heads"):
        rows = []
        for done, one in enumerate(chosen):
            name = f"{one.head[0]}.{one.head[1]}"
            networks.progress(f"{role}: softmax of head {name}", done, networks.sizes.heads)
            found = taken_apart(one, networks.seed)
            place = {"layer": one.head[0], "head": one.head[1]}
            rows.append(place | found.measures() | _smoothness(one, found, networks.seed))
        table = pd.DataFrame(rows)
        with networks.store.writing(part) as writer:
            Result(tables={"heads": table}).write(writer)
    return table


def _chosen(networks: Networks, role: str) -> Iterator[HeadLogits]:
    return LogitSource(networks.capture(role), networks.some_heads(role)).window(0)


def first_head(networks: Networks, role: str) -> SoftmaxExperiment:
    """Return the first of the chosen heads, taken apart for a picture."""
    return taken_apart(next(_chosen(networks, role)), networks.seed)


def taken_apart(one: HeadLogits, seed: int) -> SoftmaxExperiment:
    """Return the softmax experiment of one head, with one shuffle to compare with."""
    return softmax_experiment(one.logits, visible=one.visible, sink=one.sink, draws=1, seed=seed)


def constructed_residual(logits: NDArray[np.float64], seed: int) -> float:
    """Return the relative residual of the paraproduct of a head that sees all keys."""
    return softmax_experiment(logits, draws=1, seed=seed).complete.relative_residual


def _smoothness(one: HeadLogits, found: SoftmaxExperiment, seed: int) -> dict[str, float]:
    """Return the variation of a head in three orders, and the exponent of its residual."""
    logits = filled_logits(one.logits, one.visible)
    rng = np.random.default_rng(seed)
    shuffled = logits[rng.permutation(len(logits))][:, rng.permutation(logits.shape[1])]
    residual = fitted_exponents(found.complete.residual, found.trees)["mixed"][0, 0]
    return {
        "variation_before": variation(logits),
        "variation": variation(found.organized(logits)),
        "variation_shuffled": variation(shuffled),
        "residual_exponent": float(residual),
    }


def variation(matrix: NDArray[Any]) -> float:
    """Return the mean absolute difference between neighboring entries of a matrix, along both axes.

    Examples
    --------
    >>> variation(np.array([[0.0, 1.0], [0.0, 1.0]]))
    0.5
    """
    return float((np.abs(np.diff(matrix, axis=0)).mean() + np.abs(np.diff(matrix, axis=1)).mean()) / 2)
