"""What the heads of a folder have in common: patterns, layers, key-value heads that tell it from the rest, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.pattern_kinds import PATTERNS
from headscape.analysis.stability import rank_correlations
from headscape.analysis.tree_support import SUPPORTED, membership
from headscape.geometry.partition_tree import PartitionTree

FloatArray64 = NDArray[np.float64]

FEWEST_HEADS = 3
FALSE_DISCOVERIES = 0.05
"""Share of false discoveries among all (folder, attribute) pairs that are named."""

STRONG_EFFECT = 0.5
VISIBLE = 0.05
"""How far the median score of a folder is from that of the other heads, at least, to be worth a word."""

# Two scores that rank the heads alike (a sink at the first token, the first token) name a folder once.
_SAME_SCORE = 0.7
_MOST_SCORES = 2
# A p-value is at least one over this: too few shuffles and a single folder could never stand out among hundreds.
_SHUFFLES = 9999
_WIRING_SHUFFLES = 999
_AT_ONCE = 500
_EQUAL = 1e-12

MIXED = "mixed"
_SHARED = {
    "positional": ("depend mostly on position", "depend little on position"),
    "sharp": ("attend sharply", "spread their attention"),
    "uniform": ("spread their attention evenly", "spread their attention unevenly"),
}


@dataclass(frozen=True, eq=False)
class FolderAttributes:
    """What is known about every head, in the order of the head axis.

    Parameters
    ----------
    layers : (head,) integers
    scores
        Scores of patterns by name, (head,) arrays.
    groups
        The key-value head that each head reads; None if no two heads share one.
    """

    layers: NDArray[np.int64]
    scores: Mapping[str, FloatArray64]
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class FolderEffects:
    """How the named folders differ from the rest, (folder, attribute); attributes are scores, then layer, then wiring.

    Attributes
    ----------
    folders
        Which distinct folders of the tree were tested.
    effect
        Of a score the rank-biserial correlation (1: all heads of the folder are above all others, -1: below); of the
        layer 1 - variance inside / variance of all, at least 0; of the wiring the share of pairs with a common
        key-value head that shuffling heads inside their layers does not explain.
    found
        Whether it stands out: false discovery rate held, and the effect strong.
    """

    folders: NDArray[np.int64]
    effect: FloatArray64
    found: NDArray[np.bool_]


def folder_names(
    tree: PartitionTree,
    attributes: FolderAttributes,
    support: FloatArray64 | None = None,
    *,
    shuffles: int = _SHUFFLES,
    seed: int = 0,
) -> list[str]:
    """Say what tells each folder from the rest of the heads.

    Parameters
    ----------
    tree
        Of the heads.
    attributes
        What is known about the heads.
    support : (folder,) array
        Of every distinct folder of the tree; those below 0.5 get no name.
    shuffles, seed
        Of the permutation tests.

    Returns
    -------
    list of str
        One per distinct folder: for example "31 heads, layers 12-20: attend to the first token (median score 0.81;
        other heads 0.22)"; "mixed" if nothing stands out; empty for the root, folders of fewer than 3 heads, and
        without support.

    Notes
    -----
    Heads are shuffled over the tree (for key-value heads only inside their layer, so that depth is no wiring), and
    the false discovery rate over all folders and attributes is held at 5 % (Benjamini and Hochberg). An effect counts
    from 0.5, a score if its medians differ by 0.05. A second for a thousand heads.

    Examples
    --------
    >>> tree = PartitionTree.from_levels([[range(24)], [range(6), range(6, 24)], [[i] for i in range(24)]])
    >>> score = np.where(np.arange(24) < 6, 0.8, 0.1) + 0.001 * np.arange(24)
    >>> known = FolderAttributes(np.tile(np.arange(6), 4), {"first_token": score})
    >>> folder_names(tree, known)[1]
    '6 heads, layers 0-5: attend to the first token (median score 0.80; other heads 0.11)'
    """
    names = [""] * tree.n_folders
    size = tree.folders.size
    named = (size >= FEWEST_HEADS) & (size < tree.n_points)
    if support is not None:
        named &= support >= SUPPORTED
    effects = folder_effects(tree, attributes, np.flatnonzero(named), shuffles=shuffles, seed=seed)
    for row, index in enumerate(effects.folders):
        members = np.zeros(tree.n_points, dtype=bool)
        members[tree.folder(int(index))] = True
        names[index] = _words(members, attributes, effects.effect[row], effects.found[row])
    return names


def folder_effects(
    tree: PartitionTree,
    attributes: FolderAttributes,
    folders: NDArray[np.int64],
    *,
    shuffles: int = _SHUFFLES,
    seed: int = 0,
) -> FolderEffects:
    """Measure what tells some distinct folders of a tree from the rest; see :func:`folder_names`."""
    rng = np.random.default_rng(seed)
    inside = membership(tree, folders).astype(np.float64)
    tests = [_score_tests(inside, attributes, rng, shuffles)]
    if attributes.groups is not None:
        tests.append(_wiring_tests(inside, attributes, rng, min(shuffles, _WIRING_SHUFFLES)))
    effect = np.concatenate([e for e, _ in tests], axis=1)
    p_values = np.concatenate([p for _, p in tests], axis=1)
    found = discoveries(p_values) & (np.abs(effect) >= STRONG_EFFECT)
    for row, members in enumerate(inside > 0):
        for column, values in enumerate(attributes.scores.values()):
            found[row, column] &= abs(np.median(values[members]) - np.median(values[~members])) >= VISIBLE
    return FolderEffects(folders, effect, found)


def discoveries(p_values: FloatArray64, rate: float = FALSE_DISCOVERIES) -> NDArray[np.bool_]:
    """Mark the p-values that keep the false discovery rate (Benjamini and Hochberg 1995).

    Examples
    --------
    >>> discoveries(np.array([0.001, 0.5, 0.03, 0.02])).tolist()
    [True, False, True, True]
    """
    ordered = np.sort(p_values, axis=None)
    below = np.flatnonzero(ordered <= rate * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    return np.asarray(p_values <= (ordered[below[-1]] if len(below) else -1.0))


def _score_tests(
    inside: FloatArray64, attributes: FolderAttributes, rng: np.random.Generator, shuffles: int
) -> tuple[FloatArray64, FloatArray64]:
    """Return effects and p-values of scores and layer, (folder, score + 1), against random folders of the same size."""
    n = inside.shape[1]
    scores = [stats.rankdata(values) - (n + 1) / 2 for values in attributes.scores.values()]
    layer = attributes.layers - attributes.layers.mean()
    layer /= layer.std() or 1.0
    columns = np.column_stack([*scores, layer, layer**2])  # sums of these give every statistic
    size = inside.sum(axis=1).astype(np.int64)
    sizes, which = np.unique(size, return_inverse=True)
    observed = _statistics(inside @ columns, size, n)
    reached = np.zeros(observed.shape)
    for start in range(0, shuffles, _AT_ONCE):
        draws = min(_AT_ONCE, shuffles - start)
        orders = rng.permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
        # The first m of shuffled heads are a random folder of m heads: all sizes at once.
        sums = np.cumsum(columns[orders], axis=1)[:, sizes - 1]
        null = np.abs(_statistics(sums, sizes, n))[:, which]
        reached += (null >= np.abs(observed) - _EQUAL).sum(axis=0)
    return observed, (1 + reached) / (1 + shuffles)


def _statistics(sums: FloatArray64, size: NDArray[np.int64], n: int) -> FloatArray64:
    """Return rank-biserial correlations and the concentration of the layers from sums (..., folder, column)."""
    ranks, layer, square = sums[..., :-2], sums[..., -2], sums[..., -1]
    spread = square / size - (layer / size) ** 2
    biserial = 2 * ranks / (size * (n - size))[:, None]
    return np.concatenate([biserial, np.maximum(1 - spread, 0.0)[..., None]], axis=-1)


def _wiring_tests(
    inside: FloatArray64, attributes: FolderAttributes, rng: np.random.Generator, shuffles: int
) -> tuple[FloatArray64, FloatArray64]:
    """Return effect and p-value of the key-value heads, (folder, 1), against heads shuffled inside their layers."""
    assert attributes.groups is not None
    group = np.unique(attributes.groups, return_inverse=True)[1]
    folder, head = np.nonzero(inside)
    observed = _sharing_pairs(folder, group[head], len(inside))
    by_layer = np.argsort(attributes.layers, kind="stable")
    shuffled = np.empty_like(group)
    reached, total = np.zeros(len(inside)), np.zeros(len(inside))
    for _ in range(shuffles):
        shuffled[by_layer] = group[np.lexsort((rng.random(len(group)), attributes.layers))]
        null = _sharing_pairs(folder, shuffled[head], len(inside))
        reached += null >= observed
        total += null
    effect = 1 - total / shuffles / np.maximum(observed, 1)
    return effect[:, None], ((1 + reached) / (1 + shuffles))[:, None]


def _sharing_pairs(folder: NDArray[np.int64], group: NDArray[np.int64], n_folders: int) -> FloatArray64:
    """Return for each folder how many pairs of its heads share a key-value head."""
    width = int(group.max(initial=0)) + 1
    counts = np.bincount(folder * width + group, minlength=n_folders * width).reshape(n_folders, width)
    return np.asarray((counts * (counts - 1) // 2).sum(axis=1).astype(np.float64))


def _words(
    members: NDArray[np.bool_], attributes: FolderAttributes, effect: FloatArray64, found: NDArray[np.bool_]
) -> str:
    """Return the name of one folder."""
    if not found.any():
        return MIXED
    n_scores = len(attributes.scores)
    told = [
        _score_words(name, attributes.scores[name], members, high=effect[i] > 0)
        for i, name in _telling_scores(attributes.scores, effect[:n_scores], found[:n_scores])
    ]
    if attributes.groups is not None and found[-1]:
        counts = np.unique_counts(attributes.groups[members]).counts
        pairs = int((counts * (counts - 1) // 2).sum())
        told.append(f"{pairs} pairs share a key-value head ({pairs * (1 - effect[-1]):.1f} expected)")
    where = f"{int(members.sum())} heads, {layer_range(attributes.layers[members], close=found[n_scores])}"
    return f"{where}: {', '.join(told)}" if told else where


def _telling_scores(
    scores: Mapping[str, FloatArray64], effect: FloatArray64, found: NDArray[np.bool_]
) -> list[tuple[int, str]]:
    """Choose the strongest of the scores that stand out, high ones before low ones, none that repeats another."""
    names = list(scores)
    order = [int(i) for i in np.lexsort((-np.abs(effect), effect < 0)) if found[i]]
    order = [i for i in order if effect[i] > 0] or order[:1]
    chosen: list[int] = []
    for i in order:
        ranks = np.stack([stats.rankdata(scores[names[j]]) for j in (i, *chosen)])
        if np.all(np.abs(rank_correlations(ranks)[0, 1:]) < _SAME_SCORE):
            chosen.append(i)
    return [(i, names[i]) for i in chosen[:_MOST_SCORES]]


def _score_words(name: str, values: FloatArray64, members: NDArray[np.bool_], *, high: bool) -> str:
    here, elsewhere = np.median(values[members]), np.median(values[~members])
    return f"{shared_words(name, high=high)} (median score {here:.2f}; other heads {elsewhere:.2f})"


def shared_words(name: str, *, high: bool) -> str:
    """Say what heads with a high or a low score have in common, after "31 heads".

    Examples
    --------
    >>> shared_words("previous_token", high=True), shared_words("positional", high=False)
    ('attend to the previous token', 'depend little on position')
    """
    if name in _SHARED:
        return _SHARED[name][0 if high else 1]
    doing = PATTERNS[name].doing if name in PATTERNS else ""
    if high and doing.startswith("attend"):
        return doing.replace("attend most ", "attend ")
    return f"have a {'high' if high else 'low'} {readable(name)} score"


def readable(name: str) -> str:
    """Return the name of a score as people write it."""
    return name.replace("_", " ")


def layer_range(layers: Sequence[Any] | NDArray[np.int64], *, close: bool) -> str:
    """Return the layers of some heads in words; of those close together, the range of the middle 80 %.

    Examples
    --------
    >>> layer_range([3, 4, 4, 5, 5, 5, 5, 6, 6, 6, 28], close=True), layer_range([7, 7], close=False)
    ('mostly layers 3-6', 'layer 7')
    """
    low, high = int(np.min(layers)), int(np.max(layers))
    if close:
        low, high = (int(q) for q in np.quantile(layers, [0.1, 0.9], method="closest_observation"))
    words = f"layers {low}-{high}" if low < high else f"layer {low}"
    return words if np.min(layers) >= low and np.max(layers) <= high else f"mostly {words}"
