"""Haar entropies of all heads over several windows, and how stable their ranking is (OA 3.2, B.1, arXiv 2506.15541)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.entropy import head_entropy, network_entropy
from headscape.analysis.haar import Trees
from headscape.analysis.intervals import bootstrap_means
from headscape.analysis.stability import RankStability, rank_agreement, rank_stability
from headscape.analysis.supports import neighboring_k, top_supports
from headscape.analysis.windows import Windows, WindowSource, staged
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import organize
from headscape.geometry.partition_tree import PartitionTree
from headscape.notices import Notice
from headscape.tensor.network_tensor import AXES, NetworkTensor
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.store import Store, content_hash

KIND = "entropy-study"
_ARRAYS = ("entropies", "network", "used", "k_values", "by_k", "by_field")
NETWORK_K = 100

FloatArray64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EntropyStudy:
    """The l_p entropies of all heads over several windows, and what they are worth.

    Attributes
    ----------
    entropies : (window, head) array
    heads
        The (layer, head) pairs of the head axis.
    network : (window,) array
        The network entropy over the (at most) 100 tri-Haar coefficients of largest support.
    used : (window,) integers
        How many bi-Haar wavelets went into the entropies of a window, ties included.
    k_values, by_k : (k,) and (k, window, head) arrays
        Other choices of k, and the entropies with them on the same trees.
    fields, by_field : names and (field, window, head) array
        Other fields, and the entropies with them on trees of their own.
    trees
        The trees of every window by axis, the same for all if they are shared.
    field, parameters
        The main field, and everything the study was made with.
    geometry_warnings
        Named states of the geometry, each with the windows in which it was seen.
    """

    entropies: FloatArray64
    heads: tuple[tuple[int, int], ...]
    network: FloatArray64
    used: NDArray[np.int64]
    k_values: FloatArray64
    by_k: FloatArray64
    fields: tuple[str, ...]
    by_field: FloatArray64
    trees: tuple[Trees, ...]
    field: str
    parameters: dict[str, Any]
    geometry_warnings: tuple[Notice, ...] = ()

    @cached_property
    def stability(self) -> RankStability:
        """How well the ranks agree between windows, with bootstrap intervals."""
        return rank_stability(self.entropies, seed=int(self.parameters["seed"]), name="Haar entropy")

    @property
    def ranks(self) -> FloatArray64:
        """The rank of every head in every window, 1 for the lowest entropy."""
        return np.asarray(stats.rankdata(self.entropies, axis=1))

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Named states in which the ranks or the geometry say little."""
        return (*self.stability.warnings, *self.geometry_warnings)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per head: mean Haar entropy with interval, ranks, how often at the bottom and the top."""
        mean, low, high = bootstrap_means(self.entropies, seed=int(self.parameters["seed"]))
        ranks = self.ranks
        columns = {
            "layer": [layer for layer, _ in self.heads],
            "head": [head for _, head in self.heads],
            "haar_entropy": mean,
            "haar_entropy_low": low,
            "haar_entropy_high": high,
            "haar_rank": ranks.mean(axis=0),
            "haar_rank_min": ranks.min(axis=0),
            "haar_rank_max": ranks.max(axis=0),
            "haar_bottom_count": self.stability.bottom_counts,
            "haar_top_count": self.stability.top_counts,
        }
        return pd.DataFrame(columns)

    def most_frequent(self, count: int = 3) -> "pd.DataFrame":
        """Return the heads most often at the top and at the bottom, with their counts (OA table 1)."""
        return self.stability.most_frequent(self.heads, count)

    def stability_by_count(self, counts: Sequence[int] = (6, 10, 20)) -> "pd.DataFrame":
        """Return how well the ranks agree over the first windows, for several numbers of windows.

        Numbers above those of the study are left out; all windows are always the last row.
        """
        total = len(self.entropies)
        rows = []
        for count in [*sorted({c for c in counts if 2 <= c < total}), total]:
            found = rank_stability(self.entropies[:count], seed=int(self.parameters["seed"]))
            row: dict[str, float] = {"windows": count}
            for name in ("kendall_w", "rank_correlation", "jaccard_bottom", "jaccard_top"):
                interval = getattr(found, name)
                row |= {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def sensitivity(self) -> "pd.DataFrame":
        """Return how the ranks move with k and the field: agreement with the main choice, window means."""
        rows = [("k", f"{k:g}", other) for k, other in zip(self.k_values, self.by_k, strict=True)]
        rows += [("field", name, other) for name, other in zip(self.fields, self.by_field, strict=True)]
        agreements = [rank_agreement(self.entropies, other) for _, _, other in rows]
        return pd.DataFrame(
            {
                "parameter": [parameter for parameter, _, _ in rows],
                "value": [value for _, value, _ in rows],
                "rank_correlation": [a.rank_correlation for a in agreements],
                "jaccard_bottom": [a.jaccard_bottom for a in agreements],
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a folder; :meth:`load` gives the same back."""
        with Store.create(
            path, KIND, parameters=self.parameters, input_hash=content_hash(self.entropies)
        ) as store:
            if store.has("study"):
                return
            with store.writing("study") as part:
                for name in _ARRAYS:
                    part.array(name, getattr(self, name))
                for window, trees in enumerate(self.trees):
                    for axis, tree in trees.items():
                        part.array(f"tree-{window}-{axis}", tree.labels)
                part.attributes(
                    heads=[list(pair) for pair in self.heads],
                    fields=list(self.fields),
                    field=self.field,
                    warnings=[vars(warning) for warning in self.geometry_warnings],
                )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote."""
        with explain_read_errors(path):
            store = Store.open(path, KIND)
            part = store.read("study")
            labels = part.attributes
            entropies = part.array("entropies")
            trees = tuple(
                {axis: PartitionTree(part.array(f"tree-{window}-{axis}")) for axis in AXES}
                for window in range(len(entropies))
            )
            return cls(
                trees=trees,
                **{name: part.array(name) for name in _ARRAYS},
                heads=tuple((layer, head) for layer, head in labels["heads"]),
                fields=tuple(labels["fields"]),
                field=labels["field"],
                parameters=store.header["parameters"],
                geometry_warnings=tuple(Notice(**values) for values in labels["warnings"]),
            )


def entropy_study(
    windows: Windows | Sequence[Any],
    *,
    field: str = "probs",
    k: float = 400,
    p: float = 1.0,
    trees: Literal["per_window", "shared"] = "per_window",
    n_windows: int | None = None,
    k_values: Sequence[float] | None = None,
    fields: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = no_progress,
    **organize_options: Any,
) -> EntropyStudy:
    """Compute the entropies of all heads in every window, and how far they can be trusted.

    Parameters
    ----------
    windows
        A capture, or a list of network tensors or (query, key, head) arrays with the same heads; a single
        one is one window.
    field
        The field that is taken from a capture; tensors are what they are.
    k, p
        As in :func:`headscape.head_entropy`.
    trees
        "per_window": queries, keys and heads are organized anew in every window, since its tokens are others.
        "shared": once, on the mean over all windows.
    n_windows
        Only the first so many windows; all by default.
    k_values
        Other choices of k to compare the ranks with; by default half and twice k.
    fields
        Other fields of a capture to compare the ranks with; each is organized for itself.
    seed
        Of the bootstrap.
    progress
        Told while a window is organized, and after it.
    **organize_options
        Those of :func:`headscape.organize`.

    Returns
    -------
    EntropyStudy

    Notes
    -----
    One organization per window and field; only one window is in memory at a time (two for "shared").

    References
    ----------
    OA (arXiv 2506.15541), (21), figure 5, B.1 and table 1, B.2 and table 2.

    Examples
    --------
    >>> from headscape.tensor.synthetic import planted_tensor
    >>> tensors = [planted_tensor(16, 16, 2, 4, noise=0.1, seed=0) for seed in range(2)]
    >>> entropy_study(tensors, k=50, n_iter=1).stability.kendall_w.estimate
    1.0
    """
    if trees not in ("per_window", "shared"):
        raise InputError(f"trees must be 'per_window' or 'shared', but is {trees!r}.")
    source = WindowSource(windows, fields, n_windows)
    heads, main_field = source.labels(field)
    shared = None
    if trees == "shared":
        options = organize_options | {"progress": staged(progress, "mean of all windows")}
        shared = organize(source.mean(field), **options).trees
    found: list[Notice] = []
    rows: list[WindowEntropies] = []
    used_trees: list[Trees] = []
    for window in range(source.count):
        x = source.tensor(window, field)
        options = organize_options | {"progress": staged(progress, f"window {window + 1}/{source.count}")}
        use = shared or _trees(x, window, options, found)
        used_trees.append(use)
        by_field = []
        for name in fields:
            other = source.tensor(window, name)
            by_field.append(head_entropy(other, _trees(other, window, options, found), k, p))
        rows.append(window_entropies(x, use, k, p, k_values, by_field))
        progress("entropies", window + 1, source.count)
    chosen = {name: value for name, value in organize_options.items() if name != "engine"}
    return study_of_windows(
        rows,
        heads=heads,
        fields=tuple(fields),
        trees=tuple(used_trees),
        field=main_field,
        parameters={"k": k, "p": p, "trees": trees, "seed": seed, "organize": chosen},
        geometry_warnings=tuple(found),
    )


def study_of_windows(
    rows: "Sequence[WindowEntropies]",
    *,
    heads: tuple[tuple[int, int], ...],
    trees: tuple[Trees, ...],
    field: str,
    parameters: dict[str, Any],
    fields: tuple[str, ...] = (),
    geometry_warnings: tuple[Notice, ...] = (),
) -> EntropyStudy:
    """Put the entropies of single windows together: see :class:`EntropyStudy` for the names."""
    return EntropyStudy(
        entropies=np.stack([row.entropies for row in rows]),
        heads=heads,
        network=np.array([row.network for row in rows]),
        used=np.array([row.used for row in rows]),
        k_values=np.asarray(rows[0].k_values, dtype=np.float64),
        by_k=np.stack([row.by_k for row in rows], axis=1),
        fields=fields,
        by_field=np.stack([row.by_field for row in rows], axis=1),
        trees=trees,
        field=field,
        parameters=parameters,
        geometry_warnings=geometry_warnings,
    )


@dataclass(frozen=True)
class WindowEntropies:
    """What one window gives: see :class:`EntropyStudy` for the names."""

    entropies: FloatArray64
    network: float
    used: int
    k_values: tuple[float, ...]
    by_k: FloatArray64
    by_field: FloatArray64


def window_entropies(
    x: NetworkTensor,
    trees: Trees,
    k: float,
    p: float,
    k_values: Sequence[float] | None = None,
    by_field: Sequence[FloatArray64] = (),
) -> WindowEntropies:
    """Return the entropies of one window on trees that are there: see :func:`entropy_study`."""
    k_values = neighboring_k(k) if k_values is None else k_values
    entropies = head_entropy(x, trees, k, p)
    n_heads = len(entropies)
    return WindowEntropies(
        entropies=entropies,
        network=network_entropy(x, trees, NETWORK_K, p),
        used=top_supports({axis: trees[axis] for axis in ("query", "key")}, k).used,
        k_values=tuple(k_values),
        by_k=np.array([head_entropy(x, trees, value, p) for value in k_values]).reshape(-1, n_heads),
        by_field=np.array(by_field).reshape(-1, n_heads),
    )


def _trees(x: NetworkTensor, window: int, options: Mapping[str, Any], found: list[Notice]) -> Trees:
    """Organize one window; what the geometry warns of goes to ``found``, with the window's number."""
    result = organize(x, **options)
    found += [replace(w, message=f"window {window}: {w.message}") for w in result.warnings]
    return result.trees
