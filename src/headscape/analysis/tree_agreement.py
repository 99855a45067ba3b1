"""What a tree agrees with, level by level: labels of its points, another tree, itself under noise, other windows."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import gammaln, xlogy

from headscape.analysis.stability import rank_correlations
from headscape.analysis.tree_support import Grow, noisy_emd
from headscape.geometry.builders.grown import folder_counts
from headscape.geometry.partition_tree import IntArray, PartitionTree

FloatArray64 = NDArray[np.float64]


def adjusted_mutual_information(a: Any, b: Any) -> float:
    """Return how much two partitions of the same points tell about each other, adjusted for chance.

        AMI = (I - E[I]) / ((H(a) + H(b)) / 2 - E[I])

    with I the mutual information, H the entropies, and E[I] the mean of I over all permutations of the points: 1 for
    equal partitions, 0 on average for unrelated ones.

    Parameters
    ----------
    a, b : (n,) arrays
        The labels of the points in both partitions.

    References
    ----------
    Vinh, Epps, Bailey, Information theoretic measures for clusterings comparison, JMLR 11 (2010).

    Examples
    --------
    >>> adjusted_mutual_information([0, 0, 1, 1], [5, 5, 3, 3])
    1.0
    >>> round(adjusted_mutual_information([0, 0, 1, 1], [0, 1, 0, 1]), 2)
    -0.5
    """
    first, second = (np.unique(labels, return_inverse=True)[1] for labels in (a, b))
    expected, most = _chance(first, second)
    return _adjusted(_mutual_information(first, second), expected, most)


def level_agreement(tree: PartitionTree, other: PartitionTree) -> FloatArray64:
    """Return the adjusted mutual information of every proper level of a tree with the other tree.

    Level by level, root and single points left out; of the other tree the level that is nearest in the number of
    folders (in ratio).
    """
    return np.array(
        [adjusted_mutual_information(row, level_near(other, k)) for k, row in proper_levels(tree)]
    )


def label_agreement(
    tree: PartitionTree,
    labels: Sequence[Any],
    *,
    within: Sequence[Any] | None = None,
    shuffles: int = 200,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Compare every proper level of a tree with labels of its points.

    Parameters
    ----------
    tree
    labels : (n,) sequence
    within : (n,) sequence
        Shuffle labels only among points that agree here: with the layer, what is left is not due to depth.
    shuffles, seed
        How often the labels are shuffled, and by which seed.

    Returns
    -------
    list of dict
        Per level: ``folders``, ``ami`` (adjusted mutual information), and ``shuffled``, the 95 % quantile of the
        same with shuffled labels.
    """
    rng = np.random.default_rng(seed)
    own = np.unique(np.asarray(labels), return_inverse=True)[1]
    strata = np.zeros(len(own)) if within is None else np.unique(np.asarray(within), return_inverse=True)[1]
    # Sorting by stratum and a random number permutes inside the strata.
    sorted_points = np.argsort(strata, kind="stable")
    shuffled = np.empty((shuffles, len(own)), dtype=np.int64)
    for draw in shuffled:
        draw[sorted_points] = own[np.lexsort((rng.random(len(own)), strata))]
    rows = []
    for k, level in proper_levels(tree):
        expected, most = _chance(level, own)  # permutations do not change it
        value = _adjusted(_mutual_information(level, own), expected, most)
        null = [_adjusted(_mutual_information(level, draw), expected, most) for draw in shuffled]
        rows.append({"folders": float(k), "ami": value, "shuffled": float(np.quantile(null, 0.95))})
    return rows


def steadiness(
    emd: FloatArray64, grow: Grow, noises: Sequence[float], *, draws: int = 10, seed: int = 0
) -> list[dict[str, float]]:
    """Compare the tree of distances with the trees of the same distances with noise.

    Returns
    -------
    list of dict
        Per size of the noise and proper level: ``noise``, ``folders``, ``ami`` (adjusted mutual information with the
        tree without noise, mean over draws) and ``lowest`` (of all draws).
    """
    rng = np.random.default_rng(seed)
    tree = grow(emd)
    rows = []
    for noise in noises:
        found = np.array([level_agreement(tree, grow(noisy_emd(emd, noise, rng))) for _ in range(draws)])
        for (k, _), values in zip(proper_levels(tree), found.T, strict=True):
            row = {"noise": noise, "folders": k, "ami": float(values.mean()), "lowest": float(values.min())}
            rows.append(row)
    return rows


def agreement_of_trees(tree: PartitionTree, trees: Sequence[PartitionTree]) -> list[dict[str, float]]:
    """Compare trees in pairs, at the levels that are nearest to each proper level of one tree.

    Returns
    -------
    list of dict
        Per proper level of ``tree``: ``folders`` and ``ami``, the mean adjusted mutual information of all pairs.
    """
    pairs = list(combinations(trees, 2))
    return [
        {
            "folders": float(k),
            "ami": float(
                np.mean([adjusted_mutual_information(level_near(a, k), level_near(b, k)) for a, b in pairs])
            ),
        }
        for k, _ in proper_levels(tree)
    ]


def rank_correlation_of_emds(emds: Sequence[FloatArray64]) -> FloatArray64:
    """Return the rank correlations of the head EMDs between all pairs of windows; empty below 3 heads."""
    upper = np.triu_indices(len(emds[0]), k=1)
    values = np.stack([emd[upper] for emd in emds])
    if values.shape[1] < 2:
        return np.empty(0)
    correlations = rank_correlations(np.asarray(stats.rankdata(values, axis=1)))
    return np.asarray(correlations[np.triu_indices(len(emds), k=1)])


def proper_levels(tree: PartitionTree) -> list[tuple[int, IntArray]]:
    """Return number of folders and labels of every level between the root and the points."""
    rows = zip(folder_counts(tree), tree.labels.astype(np.int64), strict=True)
    return [(k, row) for k, row in rows if 1 < k < tree.n_points]


def level_near(tree: PartitionTree, k: int) -> NDArray[np.integer[Any]]:
    """Return the labels of the level whose number of folders is nearest to k in ratio."""
    return np.asarray(tree.labels[np.abs(np.log(np.array(folder_counts(tree)) / k)).argmin()])


def _mutual_information(a: IntArray, b: IntArray) -> float:
    """Return the mutual information of two partitions, in nats."""
    n, width = len(a), int(b.max()) + 1
    cells = np.bincount(a * width + b)
    sizes = (np.bincount(labels) for labels in (a, b))
    return float((xlogy(cells, cells).sum() - sum(xlogy(s, s).sum() for s in sizes)) / n + np.log(n))


def _chance(a: IntArray, b: IntArray) -> tuple[float, float]:
    """Return the mean of the mutual information over all permutations, and the mean entropy.

        E[I] = sum over folders of x and y points, m = max(1, x + y - n), ..., min(x, y), of
               m / n log(n m / (x y)) C(y, m) C(n - y, x - m) / C(n, x)

    Folders of equal size contribute alike and are taken together.
    """
    n = len(a)
    (xs, x_times), (ys, y_times) = (np.unique(np.bincount(labels), return_counts=True) for labels in (a, b))
    expected = 0.0
    for x, times in zip(xs, x_times, strict=True):
        y = ys[:, None]
        m = np.arange(1, x + 1)
        with np.errstate(divide="ignore"):
            # The logarithm of the hypergeometric probability; gammaln is infinite where m is impossible.
            chance = _log_binomial(y, m) + _log_binomial(n - y, x - m) - _log_binomial(n, x)
        possible = (m <= y) & (x - m <= n - y)
        share = np.where(possible, np.exp(np.where(possible, chance, 0.0)), 0.0)
        expected += times * float((y_times[:, None] * m / n * np.log(n * m / (x * y)) * share).sum())
    entropies = [np.log(n) - float(xlogy(s, s) @ t) / n for s, t in ((xs, x_times), (ys, y_times))]
    return expected, float(np.mean(entropies))


def _log_binomial(n: Any, k: Any) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _adjusted(information: float, expected: float, most: float) -> float:
    # Two partitions with nothing to tell apart are equal; rounding must not blow up near that.
    if most - expected < 1e-12:
        return 1.0 if information >= most - 1e-12 else 0.0
    return float((information - expected) / (most - expected))
