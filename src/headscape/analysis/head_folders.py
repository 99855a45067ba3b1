"""The folders of the head tree: which can be relied on, what their heads have in common, what the tree is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.folder_names import FEWEST_HEADS, MIXED, FolderAttributes, folder_names, readable
from headscape.analysis.stability import rank_correlations
from headscape.analysis.tree_agreement import label_agreement
from headscape.analysis.tree_support import SUPPORTED, TreeSupport
from headscape.geometry.head_geometry import HeadGeometry
from headscape.geometry.partition_tree import PartitionTree

FloatArray64 = NDArray[np.float64]

FOLLOWED = 0.5
"""A diffusion coordinate follows a score from this absolute rank correlation on."""

COORDINATES = 3


@dataclass(frozen=True, eq=False)
class Repetitions:
    """What was found again: everything about the trees that does not depend on what the heads do.

    Attributes
    ----------
    support
        Of every distinct folder of the tree.
    consensus
        The folders of more than half of the windows' trees.
    emd_correlations
        Rank correlations of the head EMDs between all pairs of windows; empty for one window.
    window_trees
        Columns ``folders`` and ``ami``: mean adjusted mutual information between the windows' trees, by level.
    steadiness
        Columns ``tree`` (flexible, linkage), ``noise``, ``folders``, ``ami``, ``lowest``: adjusted mutual information
        with the tree without noise.
    n_windows, noise, draws
        Number of windows; relative size of the noise of the support, and number of draws.
    """

    support: TreeSupport
    consensus: PartitionTree
    emd_correlations: FloatArray64
    window_trees: pd.DataFrame
    steadiness: pd.DataFrame
    n_windows: int
    noise: float
    draws: int


@dataclass(frozen=True, eq=False)
class HeadFolders:
    """The geometry of the heads over all windows, with support and names of its folders.

    Attributes
    ----------
    geometry
        Tree, EMDs, affinity and eigenpairs, from the mean of the windows' EMDs.
    repetitions
        Everything about what comes back over windows and under noise.
    names
        Of every distinct folder of the tree: what tells its heads from the rest, "mixed", or empty (root, fewer than 3
        heads, no support).
    agreement
        Columns ``attribute`` (layer, pattern, key-value head), ``folders``, ``ami``, ``shuffled``: adjusted mutual
        information by level, beside the 95 % quantile for shuffled labels (of key-value heads inside their layer).
    coordinates
        Columns ``coordinate``, ``follows``, ``rank_correlation``, ``chance``: the score (or the layer) that each
        diffusion coordinate follows best, and what unrelated scores reach.
    """

    geometry: HeadGeometry
    repetitions: Repetitions
    names: tuple[str, ...]
    agreement: pd.DataFrame
    coordinates: pd.DataFrame

    @property
    def support(self) -> FloatArray64:
        """The support of every distinct folder, over other samples of the windows and small noise."""
        return self.repetitions.support.both

    @property
    def consensus(self) -> PartitionTree:
        """The folders that more than half of the windows' trees have."""
        return self.repetitions.consensus

    def supported(self) -> NDArray[np.int64]:
        """Return those of the counted folders that come back in at least half of the repetitions."""
        return np.flatnonzero(self.counted() & (self.support >= SUPPORTED))

    def counted(self) -> NDArray[np.bool_]:
        """Mark the distinct folders of 3 and more heads, without the root."""
        size = self.geometry.tree.folders.size
        return np.asarray((size >= FEWEST_HEADS) & (size < self.geometry.tree.n_points))

    def followed(self) -> list[str]:
        """Return what each diffusion coordinate follows, as "first token, r = -0.90".

        Empty for correlations below 0.5, and for those that the best of as many unrelated scores reaches.
        """
        rows = self.coordinates.to_dict("records")
        words = [f"{row['follows']}, r = {row['rank_correlation']:.2f}" for row in rows]
        strong = self.coordinates["rank_correlation"].abs() >= self.coordinates["chance"].clip(lower=FOLLOWED)
        return [word if follows else "" for word, follows in zip(words, strong, strict=True)]

    def name_of_heads(self) -> list[str]:
        """Return for each head the name of the smallest folder with a name that holds it, or "none"."""
        names = ["none"] * self.geometry.tree.n_points
        for index, name in enumerate(self.names):  # folders come before their children
            if name and name != MIXED:
                for head in self.geometry.tree.folder(index):
                    names[head] = name
        return names

    def to_frame(self, labels: Sequence[str]) -> pd.DataFrame:
        """Return one row per distinct folder of 2 and more heads; ``labels`` are the names of the heads."""
        tree, support = self.geometry.tree, self.repetitions.support
        folders = tree.folders
        rows = [
            {
                "folder": int(i),
                "parent": int(folders.parent[i]),
                "level": int(folders.first_level[i]),
                "size": int(folders.size[i]),
                "support": support.both[i],
                "support_windows": support.windows[i],
                "support_noise": support.noise[i],
                "name": self.names[i],
                "heads": " ".join(labels[p] for p in tree.folder(int(i))),
            }
            for i in np.flatnonzero(folders.size > 1)
        ]
        return pd.DataFrame(rows)


def head_folders(
    geometry: HeadGeometry,
    repetitions: Repetitions,
    attributes: FolderAttributes,
    patterns: Sequence[str] | None = None,
    *,
    seed: int = 0,
) -> HeadFolders:
    """Name the folders of the head tree, and say what the tree and the map follow.

    Parameters
    ----------
    geometry, repetitions
        The mean geometry, and what of it comes back.
    attributes
        Layers, scores and key-value heads.
    patterns
        The pattern of every head, if it is known.
    seed
        Of the permutations.
    """
    tree = geometry.tree
    labels: dict[str, Any] = {"layer": (attributes.layers, None)}
    if patterns is not None:
        labels["pattern"] = (patterns, None)
    if attributes.groups is not None:
        labels["key-value head"] = (attributes.groups, attributes.layers)
    agreement = [
        {"attribute": name, **row}
        for name, (of_heads, within) in labels.items()
        for row in label_agreement(tree, of_heads, within=within, seed=seed)
    ]
    return HeadFolders(
        geometry,
        repetitions,
        tuple(folder_names(tree, attributes, repetitions.support.both, seed=seed)),
        pd.DataFrame(agreement, columns=["attribute", "folders", "ami", "shuffled"]),
        coordinates_follow(geometry.diffusion_map(COORDINATES), attributes),
    )


def coordinates_follow(coordinates: FloatArray64, attributes: FolderAttributes) -> pd.DataFrame:
    """Return which score, or the layer, each coordinate follows best by rank correlation.

    ``chance`` is the :func:`chance_correlation` over all coordinates.

    Examples
    --------
    >>> known = FolderAttributes(np.arange(4), {"first_token": np.array([0.1, 0.9, 0.2, 0.8])})
    >>> coordinates_follow(np.array([[-1.0], [-9.0], [-2.0], [-8.0]]), known).to_dict("records")
    [{'coordinate': 1, 'follows': 'first token', 'rank_correlation': -1.0, 'chance': 1.0}]
    """
    known = {readable(name): values for name, values in attributes.scores.items()} | {
        "layer": attributes.layers
    }
    chance = chance_correlation(len(coordinates), len(known) * coordinates.shape[1])
    rows = []
    for number, values in enumerate(coordinates.T, 1):
        found = rank_correlations(np.stack([stats.rankdata(v) for v in (values, *known.values())]))[0, 1:]
        best = int(np.abs(found).argmax())
        rows.append((number, list(known)[best], round(float(found[best]), 12), chance))
    return pd.DataFrame(rows, columns=["coordinate", "follows", "rank_correlation", "chance"])


def chance_correlation(n: int, tests: int) -> float:
    """Return the absolute rank correlation that the best of several unrelated scores reaches in 5 % of all cases.

        z(1 - 0.025 / tests) / sqrt(n - 1)

    the normal approximation for n points, with Bonferroni's correction; at most 1.

    Examples
    --------
    >>> round(chance_correlation(270, 60), 2), chance_correlation(4, 10)
    (0.2, 1.0)
    """
    return min(1.0, float(stats.norm.isf(0.025 / tests)) / float(np.sqrt(max(1, n - 1))))
