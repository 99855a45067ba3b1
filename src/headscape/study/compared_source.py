"""One network of a comparison: its heads, their geometry and measures window by window, taken from its study."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.comparison.gromov_wasserstein import gromov_wasserstein
from headscape.analysis.comparison.tree_shape import tree_shape
from headscape.analysis.entropy import coefficients_by_support
from headscape.analysis.entropy_study import NETWORK_K
from headscape.geometry.head_geometry import HeadGeometry
from headscape.study.stages.result import Result
from headscape.study.study import Study

FloatArray64 = NDArray[np.float64]
Heads = tuple[tuple[int, int], ...]

HEAD_MEASURES = ("haar_entropy", "mu_K", "k90")
"""Measures with one number per head and window, beside the patterns."""
TREE_MEASURES = ("depth", "folders", "first_folders", "largest_share", "balance")
_PROBED = ("positional", "induction_random", "duplicate_token_random")
_NUMBERS = ("place", "folder")
NOISE_SPLITS, FLOOR = 10, 2.5


@dataclass(frozen=True, eq=False)
class ComparedSource:
    """A network as a comparison sees it.

    Attributes
    ----------
    name
        What it is called in the comparison.
    about
        ``kind`` ("model", "capture", "study" or "tensors"), ``title``, ``windows``, ``length`` (tokens per window),
        ``field``, ``stack``, ``texts``, ``license``, ``study`` (its folder, or None) and ``removed`` (heads that a
        pruned model lacks, in the original's numbers).
    heads
        The (layer, head) pairs, layer-major.
    originals
        The same heads in the numbers of the model that was pruned; equal to ``heads`` where nothing was.
    table
        One row per head, indexed by (layer, head): ``name``, ``pattern``, the mean of every measure, ``folder``,
        ``place``.
    geometry
        Tree, EMDs and affinity of the heads over all windows.
    measures : (window, head) arrays by name
        "haar_entropy", "mu_K", "k90" and the pattern scores, as far as the source has them.
    networks : (window,) arrays by name
        "network_entropy" and the shape of the head tree: "depth", "folders", "first_folders", "largest_share",
        "balance".
    spectrum : (window, coefficient) array
        The tri-Haar coefficients of largest support, by decreasing support (at most 100).
    noise : (split,) array
        Gromov-Wasserstein distances between the head geometries of disjoint halves of its windows, scaled to all
        windows; empty for fewer than 4 windows.
    """

    name: str
    about: Mapping[str, Any]
    heads: Heads
    originals: Heads
    table: pd.DataFrame
    geometry: HeadGeometry
    measures: Mapping[str, FloatArray64]
    networks: Mapping[str, FloatArray64]
    spectrum: FloatArray64
    noise: FloatArray64

    @property
    def title(self) -> str:
        """The name of the model as people know it."""
        return str(self.about["title"])

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(self.about["windows"])

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers."""
        return tuple(dict.fromkeys(layer for layer, _ in self.heads))

    @property
    def removed(self) -> Heads:
        """The heads that a pruned model lacks, in the original's numbers."""
        return tuple((layer, head) for layer, head in self.about["removed"])

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names of the pattern scores."""
        return tuple(name for name in self.measures if name not in HEAD_MEASURES)

    @property
    def pattern_counts(self) -> dict[str, int]:
        """How many heads have each pattern's name; empty if patterns were not measured."""
        if "pattern" not in self.table:
            return {}
        counts = self.table["pattern"].value_counts(sort=True)
        return {str(name): int(count) for name, count in counts.items()}

    def diffusion_map(self, n_components: int = 3) -> FloatArray64:
        """Embed the heads by the diffusion map of their affinity."""
        return self.geometry.diffusion_map(n_components)

    @classmethod
    def of_study(cls, name: str, study: Study, about: Mapping[str, Any], originals: Heads) -> Self:
        """Take from a study what a comparison needs."""
        heads = tuple(study.data.heads)
        measures = {**_head_measures(study), **_patterns(study)}
        shapes = [tree_shape(organization.trees["head"]) for organization in study.organizations]
        networks = {
            "network_entropy": np.asarray(study["entropy"].network),
            **{name: np.array([shape[name] for shape in shapes]) for name in TREE_MEASURES},
        }
        wanted = ["name", "pattern", *_NUMBERS]
        table = study.heads[[column for column in wanted if column in study.heads]].copy()
        table = table.astype({column: np.int64 for column in _NUMBERS if column in table})
        for measure, values in measures.items():
            table[measure] = values.mean(axis=0)
        spectrum = np.stack([_spectrum(study, window) for window in range(study.windows)])
        noise = window_noise(scaled_emds(study), seed=int(study.parameters["seed"]))
        return cls(
            name, about, heads, originals, table, study.head_geometry, measures, networks, spectrum, noise
        )

    def to_result(self) -> Result:
        """Return everything as arrays, attributes and tables, to be saved."""
        arrays = {f"geometry.{name}": array for name, array in self.geometry.arrays().items()}
        arrays |= {f"measure.{name}": array for name, array in self.measures.items()}
        arrays |= {f"network.{name}": array for name, array in self.networks.items()}
        pairs = {"heads": self.heads, "originals": self.originals}
        return Result(
            {**arrays, "spectrum": self.spectrum},
            {
                "name": self.name,
                "about": dict(self.about),
                "noise": self.noise.tolist(),
                "measures": list(self.measures),
                "networks": list(self.networks),
                **{key: [list(pair) for pair in value] for key, value in pairs.items()},
            },
            {"heads": self.table.reset_index()},
        )

    @classmethod
    def from_result(cls, result: Result) -> Self:
        """Return what :meth:`to_result` saved."""

        def under(prefix: str) -> dict[str, NDArray[Any]]:
            found = {name: array for name, array in result.arrays.items() if name.startswith(f"{prefix}.")}
            return {name.removeprefix(f"{prefix}."): array for name, array in found.items()}

        def ordered(prefix: str) -> dict[str, NDArray[Any]]:
            found = under(prefix)
            return {name: found[name] for name in result.attributes[f"{prefix}s"]}

        heads, originals = (
            tuple((int(layer), int(head)) for layer, head in result.attributes[name])
            for name in ("heads", "originals")
        )
        return cls(
            result.attributes["name"],
            result.attributes["about"],
            heads,
            originals,
            result.tables["heads"].set_index(["layer", "head"]),
            HeadGeometry.from_arrays(under("geometry")),
            ordered("measure"),
            ordered("network"),
            result.arrays["spectrum"],
            np.array(result.attributes["noise"]),
        )


def scaled_emds(study: Study) -> FloatArray64:
    """Return the (window, head, head) EMDs of a study, each window in units of its median."""
    emds = np.stack([organization.emd["head"] for organization in study.organizations])
    medians = np.median(emds.reshape(len(emds), -1), axis=1)
    return np.asarray(emds / np.where(medians > 0, medians, 1.0)[:, None, None])


def window_noise(emds: FloatArray64, *, seed: int = 0, splits: int = NOISE_SPLITS) -> FloatArray64:
    """Return the distances between geometries of disjoint halves of one network's windows.

    Halves have fewer windows than two whole sets, so that the distances are larger by sqrt(n / half); they are scaled
    down to sets of all n windows.

    Parameters
    ----------
    emds : (window, head, head) array
        In median EMDs.
    seed, splits
        Which halves, and at most how many.
    """
    n = len(emds)
    half = n // 2
    if half < 2:
        return np.empty(0)
    found = []
    for a, b in _halves(n, seed, splits):
        distance = gromov_wasserstein(emds[a].mean(axis=0), emds[b].mean(axis=0), one_start=True).distance
        found.append(distance * np.sqrt(half / n))
    return np.array(found)


def _halves(n: int, seed: int, most: int) -> list[tuple[list[int], list[int]]]:
    """Return pairs of disjoint halves of n windows: all, or some at random if there are more."""
    half = n // 2
    if n == 2 * half and comb(n - 1, half - 1) <= most:
        firsts = [[0, *rest] for rest in combinations(range(1, n), half - 1)]
        return [(first, [i for i in range(n) if i not in first]) for first in firsts]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(n).tolist() for _ in range(most)]
    return [(order[:half], order[half : 2 * half]) for order in orders]


def noise_floor(noises: Iterable[FloatArray64]) -> float:
    """Return the distance that window sets of one network hardly ever exceed: the largest of all networks.

        floor = mean + 2.5 standard deviations of the distances between halves

    The halves share windows, so that their own quantiles are too low: window sets of the tiny model exceeded the 95 %
    quantile in 8 % of 200 pairs. NaN if no network has a noise.
    """
    bounds = (float(noise.mean() + FLOOR * noise.std(ddof=1)) for noise in noises if len(noise) > 1)
    return max(bounds, default=float("nan"))


def _head_measures(study: Study) -> dict[str, FloatArray64]:
    """Return the (window, head) arrays of the measures with one number per head, as far as they were measured."""
    found = {"haar_entropy": np.asarray(study["entropy"].entropies)}
    if "energy" in study:
        for name in HEAD_MEASURES[1:]:
            tables = [result.tables["heads"] for result in study.results["energy"]]
            longest = [table[table["length"] == table["length"].max()] for table in tables]
            rows = [table.set_index(["layer", "head"]).loc[list(study.data.heads)] for table in longest]
            found[name] = np.stack([row[name].to_numpy(dtype=np.float64) for row in rows])
    return {name: values for name, values in found.items() if np.isfinite(values).all()}


def _patterns(study: Study) -> dict[str, FloatArray64]:
    """Return the (window, head) pattern scores that all windows and heads have."""
    if "patterns" not in study:
        return {}
    results = study.results["patterns"]
    names = [name for name in results[0].attributes["names"] if name not in _PROBED]
    common = [name for name in names if all(name in result.attributes["names"] for result in results)]
    scores = {
        name: np.stack([r.arrays["scores"][r.attributes["names"].index(name)] for r in results])
        for name in common
    }
    return {name: values for name, values in scores.items() if np.isfinite(values).all()}


def _spectrum(study: Study, window: int) -> FloatArray64:
    """Return the tri-Haar coefficients of one window by decreasing support (OA figure 6, arXiv 2506.15541)."""
    x = study.data.tensor(window, study.parameters["field"])
    found = coefficients_by_support(x, study.organizations[window].trees, min(NETWORK_K, x.data.size))
    return np.asarray(found.values.ravel()[:NETWORK_K])
