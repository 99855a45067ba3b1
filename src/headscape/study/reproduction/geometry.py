"""Figure 3 of the organization paper (arXiv 2506.15541): diffusion map, adjacency and tree of the heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from headscape.analysis.intervals import bootstrap
from headscape.energy.outliers import standing_out
from headscape.geometry.organization import Organization
from headscape.notices import FLAT_GEOMETRY
from headscape.report.geometry_figures import affinity_figure, diffusion_figure, tree_figure
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    Verdict,
    judged,
    span,
)
from headscape.study.reproduction.networks import IMAGE_ROLES, TENSOR_ROLES, Networks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = 5
CONTINUOUS, CLUSTERED = 0.5, 0.7
"""Below and above these silhouettes heads are continuous and clustered: points spread evenly over a line have 0.6 to
0.7, over a square 0.4 to 0.5, and from 0.7 on groups count as strong (Kaufman and Rousseeuw 1990)."""
MOST_GROUPS = 10


def head_maps(networks: Networks) -> Evidence:
    """Draw the heads of every network, and measure over several batches whether they form groups."""
    observations: list[Observation] = []
    figures: dict[str, Figure] = {}
    for role in networks.present(TENSOR_ROLES):
        windows = range(min(BATCHES, networks.capture(role).n_windows))
        found = [networks.organization(role, window) for window in windows]
        observations.append(_grouping(networks, role, found))
        figures |= {
            f"{role}-diffusion-map": diffusion_figure(found[0]),
            f"{role}-affinity": affinity_figure(found[0]),
            f"{role}-tree": tree_figure(found[0]),
        }
    return Evidence.of(observations, figures=figures)


def _grouping(networks: Networks, role: str, found: Sequence[Organization]) -> Observation:
    """Say whether the heads of a network are clustered or continuous, and how many are outliers."""
    emds = [np.asarray(one.emd["head"]) for one in found]
    groups, silhouettes = zip(*map(best_groups, emds), strict=True)
    outliers = [_outliers(emd) for emd in emds]
    n_heads = len(emds[0])
    silhouette = bootstrap(silhouettes, seed=networks.seed, within=(-1.0, 1.0))
    is_clustered, is_continuous = silhouette.low >= CLUSTERED, silhouette.high < CONTINUOUS
    if role in IMAGE_ROLES:
        some = float(np.median(outliers)) > 0
        verdict = judged(is_clustered and some, is_continuous and not some)
    else:
        verdict = judged(is_continuous, is_clustered)
    kind = (
        "clustered" if is_clustered else "continuous" if is_continuous else "between clustered and continuous"
    )
    flat = sum(any(n.axis == "head" and n.name == FLAT_GEOMETRY for n in one.warnings) for one in found)
    sentence = (
        f"The best grouping into 2 to {MOST_GROUPS} groups ({span(groups)} over the batches) has a "
        f"mean silhouette of {silhouette:.2f}, so the heads are {kind}; {span(outliers)} of {n_heads} heads are "
        "outliers by the distance to their nearest head."
    )
    if 2 * flat > len(found):
        sentence += f" The head geometry is flat in {flat} of {len(found)} batches, so the maps say little."
        verdict = Verdict.untested
    return networks.observed(role, len(found), sentence, verdict, f"{silhouette.estimate:.2f}")


def _outliers(emd: NDArray[np.float64]) -> int:
    """Return how many heads are unusually far from their nearest head."""
    nearest = (emd + np.diag(np.full(len(emd), np.inf))).min(axis=1)
    return int(standing_out(np.log(np.maximum(nearest, 1e-300))).sum())


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
        TENSOR_ROLES,
        "mean silhouette of the best grouping",
        0.1,
        head_maps,
        "The published code takes the smallest eigenvalues for the diffusion map; the largest nontrivial ones "
        "are taken here, as the text says. The paper judges one batch by eye; silhouette and outliers are measured "
        "on the EMDs between heads, with intervals over batches. Heads count as continuous below a silhouette of "
        f"{CONTINUOUS} and as clustered from {CLUSTERED} on: points spread evenly over a line have 0.6 to 0.7.",
        organized=BATCHES,
    ),
)
