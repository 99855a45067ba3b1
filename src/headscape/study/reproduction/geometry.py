"""Figure 3 of the organization paper (arXiv 2506.15541): diffusion map, adjacency and tree of the heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from headscape.energy.outliers import standing_out
from headscape.report.geometry_figures import affinity_figure, diffusion_figure, tree_figure
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    Verdict,
    judged,
)
from headscape.study.reproduction.networks import LANGUAGE, TRANSFORMER_XL, VISION, Networks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTERED = 0.5
"""From this silhouette on, groups count as clusters (Kaufman and Rousseeuw 1990)."""
MOST_GROUPS = 10


def head_maps(networks: Networks) -> Evidence:
    """Draw the heads of every network, and measure whether they form groups."""
    observations: list[Observation] = []
    figures: dict[str, Figure] = {}
    for role in (LANGUAGE, TRANSFORMER_XL, VISION):
        found = networks.organization(role, 0)
        emd = np.asarray(found.emd["head"])
        groups, silhouette = best_groups(emd)
        nearest = (emd + np.diag(np.full(len(emd), np.inf))).min(axis=1)
        outliers = int(standing_out(np.log(np.maximum(nearest, 1e-300))).sum())
        kind = "clustered" if silhouette >= CLUSTERED else "continuous"
        if role == VISION:
            verdict = judged(kind == "clustered" and outliers > 0, kind != "clustered" and outliers == 0)
        else:
            verdict = judged(kind == "continuous")
        flat = [notice for notice in found.warnings if notice.axis == "head" and "flat" in notice.name]
        observations.append(
            Observation(
                networks.title(role),
                networks.data(role, 1),
                f"The best of 2 to {MOST_GROUPS} groups ({groups}) has a mean silhouette of {silhouette:.2f}, "
                f"so the heads are {kind}; {outliers} of "
                f"{len(emd)} heads are outliers by the distance to their nearest head."
                + (" The head geometry is flat: the picture says little." if flat else ""),
                Verdict.untested if flat else verdict,
            )
        )
        figures |= {
            f"{role}-diffusion-map": diffusion_figure(found),
            f"{role}-affinity": affinity_figure(found),
            f"{role}-tree": tree_figure(found),
        }
    return Evidence.of(observations, figures=figures)


def best_groups(distances: NDArray[np.float64]) -> tuple[int, float]:
    """Return the number of groups (average linkage) with the largest mean silhouette, and that silhouette.

    The silhouette of a point is (b - a) / max(a, b), with a its mean distance within its group and b the smallest mean
    distance to another group; 0 for a group of one (Rousseeuw 1987).

    Examples
    --------
    >>> x = np.array([0.0, 0.1, 5.0, 5.1])
    >>> groups, silhouette = best_groups(abs(x[:, None] - x))
    >>> groups, round(silhouette, 2)
    (2, 0.98)
    """
    merged = linkage(squareform(distances, checks=False), "average")
    best = (1, 0.0)
    for count in range(2, min(MOST_GROUPS, len(distances) - 1) + 1):
        labels = fcluster(merged, count, "maxclust")
        best = max(best, (int(labels.max()), _silhouette(distances, labels)), key=lambda pair: pair[1])
    return best


def _silhouette(distances: NDArray[np.float64], labels: NDArray[Any]) -> float:
    members = labels[:, None] == np.unique(labels)
    sizes = members.sum(axis=0)
    own = members.argmax(axis=1)
    sums = distances @ members
    rows = np.arange(len(labels))
    within = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[rows, own] = np.inf
    between = means.min(axis=1)
    values = np.where(
        sizes[own] > 1, (between - within) / np.maximum(np.maximum(between, within), 1e-300), 0.0
    )
    return float(values.mean())


EXPERIMENTS = (
    Experiment(
        "figure-3",
        ORGANIZED,
        "figure 3",
        "Diffusion map, adjacency and tree of the heads",
        "The diffusion map of the language network's heads is continuous; that of the vision network is more "
        "clustered and has outliers.",
        (LANGUAGE, TRANSFORMER_XL, VISION),
        0.5,
        head_maps,
        "The published code takes the smallest eigenvalues for the diffusion map; the largest nontrivial ones "
        "are taken here, as the text says.",
    ),
)
