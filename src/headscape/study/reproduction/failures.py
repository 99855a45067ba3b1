"""Failure signatures of the organization paper's methods (arXiv 2506.15541): built to occur, and looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.entropy import head_entropy
from headscape.analysis.stability import RankStability, rank_stability
from headscape.geometry.organization import Organization, organize
from headscape.notices import FLAT_GEOMETRY, UNSTABLE_RANKING
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    Verdict,
    judged,
)
from headscape.study.reproduction.head_experiments import constructed_residual, head_table
from headscape.study.reproduction.networks import K_HEAD, TENSOR_ROLES, Networks

LARGE_RESIDUAL = 0.9
"""From this relative residual on, the paraproduct explains next to nothing of softmax."""
HEADS, BATCHES, RESIDUALS = 24, 6, 4
NOISE, SMALL_NOISE = 3.0, 0.05
"""Standard deviations of the logits of independent heads, and of the noise on structured ones."""
N_SIGNATURES = 3


@dataclass(frozen=True)
class Signatures:
    """What a network shows: batches with a flat map of the heads, their ranks over batches, the median residual."""

    flat: int
    batches: int
    ranks: RankStability
    residual: float

    @property
    def seen(self) -> list[str]:
        """The signatures that occur, in words."""
        there = {
            "a flat map": 2 * self.flat > self.batches,
            "unstable ranks": any(notice.name == UNSTABLE_RANKING for notice in self.ranks.warnings),
            "a large residual": self.residual >= LARGE_RESIDUAL,
        }
        return [name for name, is_there in there.items() if is_there]

    def sentence(self) -> str:
        """Return what is seen, with the numbers behind it."""
        shown = ", ".join(self.seen) or "none of the three"
        w, overlap = self.ranks.kendall_w, self.ranks.jaccard_bottom
        return (
            f"Shows {shown}: the map is flat in {self.flat} of {self.batches} batches, Kendall's W of the entropy "
            f"ranks is {w:.2f}, the lowest tenths of two batches overlap by "
            f"{overlap.estimate:.2f} (Jaccard), and the median relative residual of the paraproduct is "
            f"{self.residual:.2f}."
        )

    def row(self, network: str) -> dict[str, object]:
        """Return the numbers as a row of a table."""
        return {
            "network": network,
            "flat": self.flat,
            "batches": self.batches,
            "kendall_w": self.ranks.kendall_w.estimate,
            "jaccard_bottom": self.ranks.jaccard_bottom.estimate,
            "residual": self.residual,
        }


def failure_signatures(networks: Networks) -> Evidence:
    """Show the signatures on heads built to fail, none on heads built to work, and those of the networks."""
    rng, n = np.random.default_rng(networks.seed), networks.sizes.constructed
    size = f"{HEADS} heads of {n} tokens, {BATCHES} batches"
    noise, smooth = (_of_logits(made(rng, n), networks.seed) for made in (_independent, _structured))
    found = {"independent white-noise logits": noise, "logits smooth in hidden coordinates": smooth}
    verdicts = [judged(len(noise.seen) == N_SIGNATURES, not noise.seen), judged(not smooth.seen)]
    observations = [
        Observation(name, size, one.sentence(), verdict, f"{len(one.seen)} of {N_SIGNATURES}")
        for (name, one), verdict in zip(found.items(), verdicts, strict=True)
    ]
    for role in networks.present(TENSOR_ROLES):
        one = _of_network(networks, role)
        verdict = Verdict.agrees if one.seen else Verdict.untested
        figure = f"{len(one.seen)} of {N_SIGNATURES}"
        observations.append(networks.observed(role, one.batches, one.sentence(), verdict, figure))
        found[networks.title(role)] = one
    return Evidence.of(
        observations, {"signatures": pd.DataFrame([one.row(name) for name, one in found.items()])}
    )


def _of_network(networks: Networks, role: str) -> Signatures:
    entropies = networks.entropies(role, networks.sizes.windows)
    organizations = [networks.organization(role, window) for window in range(len(entropies))]
    ranks = rank_stability(entropies, seed=networks.seed)
    return _signatures(organizations, ranks, float(head_table(networks, role)["residual"].median()))


def _of_logits(batches: Sequence[NDArray[np.float64]], seed: int) -> Signatures:
    """Measure batches of logits (query, key, head)."""
    probs = [_softmax(logits) for logits in batches]
    organizations = [organize(x) for x in probs]
    rows = [head_entropy(x, one.trees, K_HEAD) for x, one in zip(probs, organizations, strict=True)]
    residuals = [constructed_residual(batches[0][:, :, head], seed) for head in range(RESIDUALS)]
    return _signatures(organizations, rank_stability(np.stack(rows), seed=seed), float(np.median(residuals)))


def _signatures(organizations: Sequence[Organization], ranks: RankStability, residual: float) -> Signatures:
    flat = [any(n.axis == "head" and n.name == FLAT_GEOMETRY for n in one.warnings) for one in organizations]
    return Signatures(sum(flat), len(flat), ranks, residual)


def _independent(rng: np.random.Generator, n: int) -> list[NDArray[np.float64]]:
    """Return batches in which no two heads, no two batches and no two entries have anything in common."""
    return [rng.normal(0.0, NOISE, (n, n, HEADS)) for _ in range(BATCHES)]


def _structured(rng: np.random.Generator, n: int) -> list[NDArray[np.float64]]:
    """Return batches whose logits depend smoothly on hidden coordinates of query, key and head."""
    query, key, head = (rng.random(size) for size in (n, n, HEADS))
    apart = query[:, None, None] - key[:, None] + head / 2
    wave = (1 + 2 * head) * np.cos(2 * np.pi * apart)
    return [wave + rng.normal(0.0, SMALL_NOISE, wave.shape) for _ in range(BATCHES)]


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


EXPERIMENTS = (
    Experiment(
        "failure-signatures",
        ORGANIZED,
        "follow-up check",
        "Failure signatures",
        "Uniform heads show as flat maps, uninformative entropies as unstable ranks, irregular heads as large "
        "residuals.",
        TENSOR_ROLES,
        "signatures that occur",
        0.1,
        failure_signatures,
        "Shown on heads built to have all three and on heads built to have none; on a network they agree where one "
        "occurs.",
        organized=20,
        takes_apart=True,
    ),
)
