"""What a head does, in a word: its scores over all windows, the name that the largest gives it, and the families."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.detections import MOST_CHANCE
from headscape.analysis.intervals import bootstrap_means
from headscape.analysis.pattern_kinds import PATTERNS, SPECIFIC
from headscape.analysis.patterns import fixed_offsets

FloatArray64 = NDArray[np.float64]

MIXED = "mixed"
SHOWN = 3
ON_RANDOM = "on repeated random tokens"
EVEN = 0.8
"""Least score that names a head "uniform"."""


@dataclass(frozen=True, eq=False)
class WindowPatterns:
    """The scores of all heads in one window.

    Parameters
    ----------
    scores, chance
        By name, (head,): the score, and that of even attention; windows may lack some.
    sink_key : (head,) integers
    diagonals, chance_diagonals : (head, 2 r + 1) arrays
        As in :class:`headscape.analysis.patterns.PatternScores`.
    """

    scores: Mapping[str, FloatArray64]
    chance: Mapping[str, FloatArray64]
    sink_key: NDArray[np.int64]
    diagonals: FloatArray64
    chance_diagonals: FloatArray64


@dataclass(frozen=True, eq=False)
class HeadPatterns:
    """What every head does, over all windows: ``study["patterns"]``.

    Attributes
    ----------
    table : DataFrame, indexed by (layer, head)
        ``name`` (with its number), ``pattern`` (the kind, or "mixed"), one column a score, ``sink_key`` and
        ``offset_by`` (query minus key). NaN where the heads of a layer cannot show a pattern.
    chance
        What attention spread evenly over the visible keys scores, by score; the median head where layers differ.
    low, high : DataFrames
        Bounds of the 95 % intervals over windows; NaN for fewer than 4 windows.
    scores
        The names of the score columns.
    strength : Series
        The score behind every name; NaN for mixed heads.
    """

    table: pd.DataFrame
    chance: Mapping[str, float]
    low: pd.DataFrame
    high: pd.DataFrame
    scores: tuple[str, ...]
    strength: pd.Series

    def long(self) -> pd.DataFrame:
        """Return one row per head and score: layer, head, pattern, score, low, high, chance."""
        parts = []
        for name in self.scores:
            columns = {
                "pattern": name,
                "score": self.table[name],
                "low": self.low[name],
                "high": self.high[name],
                "chance": self.chance[name],
            }
            parts.append(pd.DataFrame(columns, index=self.table.index).reset_index())
        return pd.concat(parts, ignore_index=True)

    @property
    def sentence(self) -> str:
        """The families of heads with their counts."""
        counts = self.table["pattern"].value_counts()
        families = self._kinds()
        parts = [f"{counts[kind]} {self._doing(kind, int(counts[kind]))}" for kind in families]
        mixed = int(counts.get(MIXED, 0))
        n = len(self.table)
        if not families:
            return f"None of the {n} heads follows one of the simple attention patterns: all are mixed."
        rest = f"; {mixed} {'follows' if mixed == 1 else 'follow'} no single pattern (mixed)" if mixed else ""
        return f"Of {n} heads, {', '.join(parts)}{rest}."

    @property
    def clearest(self) -> str:
        """The head that shows each pattern most clearly, with its score; empty if no head has a name."""
        told = []
        for kind in self._kinds():
            best: Any = self.strength[self.table["pattern"] == kind].idxmax()
            mark = "*" if self._on_random(kind)[best] else ""
            told.append(f"{kind} {best[0]}.{best[1]} ({self.strength[best]:.2f}{mark})")
        marked = f" (* {ON_RANDOM})" if any("*" in words for words in told) else ""
        return f"The clearest head of each kind, with its score{marked}: {', '.join(told)}." if told else ""

    @property
    def striking(self) -> str:
        """The heads that show each pattern most clearly, and the layers of its family; empty if no head has a name."""
        told = [self._members(kind) for kind in self._kinds()]
        return f"The clearest heads of each kind, with their scores: {'; '.join(told)}." if told else ""

    def _kinds(self) -> list[str]:
        """Return the kinds of heads there are, the most frequent first."""
        return [str(kind) for kind in self.table["pattern"].value_counts().index if kind != MIXED]

    def _doing(self, kind: str, count: int) -> str:
        """Return what the heads of a family do; where a name rests on repeated tokens, it says so."""
        pattern = next(pattern for pattern in PATTERNS.values() if pattern.title == kind and pattern.doing)
        doing = _for_count(pattern.doing, count)
        if not pattern.on_repeats:
            return doing
        random = self._on_random(kind)
        where = (
            ON_RANDOM if random.all() else "on repeated tokens" if random.any() else "where a token repeats"
        )
        attend = "it attends" if count == 1 else "they attend"
        return f"{doing} ({where} {attend} to {pattern.on_repeats})"

    def _on_random(self, kind: str) -> pd.Series:
        """Return for each head of a family whether its name comes from repeated random tokens, not from the text."""
        return self.table["name"][self.table["pattern"] == kind].str.contains(ON_RANDOM)

    def _members(self, kind: str) -> str:
        """Return a family, its strongest heads and its layers; scores on random tokens are marked."""
        family = self.strength[self.table["pattern"] == kind].sort_values(ascending=False, kind="stable")
        random = self._on_random(kind)
        marks = {pair: f" {ON_RANDOM}" if random[pair] and not random.all() else "" for pair in family.index}
        heads = [f"{pair[0]}.{pair[1]} ({family[pair]:.2f}{marks[pair]})" for pair in family.index[:SHOWN]]
        layers = family.index.get_level_values("layer")
        where = f", layers {layers.min()}-{layers.max()}" if len(family) > SHOWN else ""
        return f"{kind}{f', {ON_RANDOM}' if random.all() else ''}: {', '.join(heads)}{where}"

    @property
    def described(self) -> list[str]:
        """What the score behind each name means, with its chance level; empty for mixed heads."""
        return [self._described(row) for row in self.table.to_dict("records")]

    def _described(self, row: Mapping[Hashable, Any]) -> str:
        kind, name = str(row["pattern"]), str(row["name"])
        for key in self.scores:
            pattern = PATTERNS[key]
            if pattern.title != kind or not pattern.doing or (ON_RANDOM in name) != key.endswith("_random"):
                continue
            _, share, to = pattern.meaning.rstrip(".").partition("Share of attention ")
            to = f"to {pattern.on_repeats}" if pattern.on_repeats else to
            if not (share or pattern.on_repeats):
                return ""
            of = ", where a token repeats," if pattern.on_repeats and ON_RANDOM not in name else ""
            goes = "goes" if to.startswith("to ") else "stays"
            score, chance = 100 * float(row[key]), 100 * self.chance[key]
            return f"{score:.0f} % of its attention{of} {goes} {to}; chance {chance:.2g} %"
        return ""

    @property
    def on_repeats(self) -> tuple[str, ...]:
        """Heads that follow induction on repeated random tokens, whatever their name."""
        name = "induction_random"
        if name not in self.scores:
            return ()
        strong = self.table[name][self.table[name] >= SPECIFIC].sort_values(ascending=False)
        listed = [f"{layer}.{head} ({strong[layer, head]:.2f})" for layer, head in strong.index[: 2 * SHOWN]]
        more = f" and {len(strong) - len(listed)} more" if len(strong) > len(listed) else ""
        attend = "attends" if len(strong) == 1 else "attend"
        return (
            f"On repeated random tokens, {len(strong)} of {len(self.table)} heads {attend} to the token after the "
            f"earlier occurrence, with a score of at least {SPECIFIC} (even attention: {self.chance[name]:.3f})"
            + (f": {', '.join(listed)}{more}." if listed else "."),
        )


def head_patterns_over(
    windows: Sequence[WindowPatterns], heads: Sequence[tuple[int, int]], *, seed: int = 0
) -> HeadPatterns:
    """Return the mean scores of every head over windows with intervals, and its name.

    With the excess e = (score - chance) / (1 - chance), the pattern with few keys (first token, previous token, ...)
    that has the largest e names the head if e >= 0.3; failing that, the pattern with many keys (local, segment, ...)
    with the largest e >= 0.5; failing that, "uniform" from a score of 0.8 on. Where there is an interval, its lower
    bound must lie above chance. Everything else is "mixed".

    Parameters
    ----------
    windows
        The scores of every window.
    heads
        The (layer, head) pairs.
    seed
        Of the bootstrap over windows.
    """
    of_windows, chances, offsets = _stacked(windows)
    names = tuple(name for name in PATTERNS if name in of_windows)
    index = pd.MultiIndex.from_tuples(list(heads), names=["layer", "head"])
    mean = {name: _known_mean(of_windows[name]) for name in names}
    bounds = {name: _bounds(of_windows[name], seed) for name in names}
    low = pd.DataFrame({name: bounds[name][0] for name in names}, index=index)
    high = pd.DataFrame({name: bounds[name][1] for name in names}, index=index)
    sink_key = _most_frequent(np.stack([window.sink_key for window in windows]))
    named = [
        _named(
            {name: mean[name][i] for name in names},
            {name: chances[name][i] for name in names},
            {name: bounds[name][0][i] for name in names},
            (int(sink_key[i]), int(offsets[i])),
        )
        for i in range(len(heads))
    ]
    columns = {
        "name": [name for _, name, _ in named],
        "pattern": [kind for kind, _, _ in named],
        **mean,
        "sink_key": sink_key,
        "offset_by": offsets,
    }
    chance = {name: float(np.nanmedian(chances[name])) for name in names}
    strength = pd.Series([score for _, _, score in named], index=index)
    return HeadPatterns(pd.DataFrame(columns, index=index), chance, low, high, names, strength)


def _stacked(
    windows: Sequence[WindowPatterns],
) -> tuple[dict[str, FloatArray64], dict[str, FloatArray64], NDArray[np.int64]]:
    """Return (window, head) scores, (head,) chances, and (head,) offsets; NaN where a window lacks a score."""
    n_heads = len(windows[0].sink_key)
    nothing = np.full(n_heads, np.nan)
    names = dict.fromkeys(name for window in windows for name in window.scores)
    scores = {name: np.stack([window.scores.get(name, nothing) for window in windows]) for name in names}
    chances = {name: _known_mean([window.chance.get(name, nothing) for window in windows]) for name in names}
    reach = min(window.diagonals.shape[1] // 2 for window in windows)
    diagonals, even = (
        np.stack([d[:, d.shape[1] // 2 - reach : d.shape[1] // 2 + reach + 1] for d in found])
        for found in ([w.diagonals for w in windows], [w.chance_diagonals for w in windows])
    )
    found, offsets = fixed_offsets(diagonals)
    if not np.isnan(found).all():
        scores["offset"], chances["offset"] = found, _known_mean(fixed_offsets(even)[0])
    kept = [name for name in scores if not np.isnan(scores[name]).all()]
    return {name: scores[name] for name in kept}, {name: chances[name] for name in kept}, offsets


def _for_count(doing: str, count: int) -> str:
    """Put what heads do into the singular if it is one."""
    verb, rest = doing.split(" ", 1)
    if count > 1:
        return doing
    if verb == "are":
        return f"is {'an' if rest[0] in 'aeiou' else 'a'} {rest.removesuffix('s')}"
    return f"{verb}s {rest.replace('themselves', 'itself')}"


def _named(
    scores: Mapping[str, float],
    chances: Mapping[str, float],
    low: Mapping[str, float],
    at: tuple[int, int],
) -> tuple[str, str, float]:
    """Return kind and name of a head and the score behind it; ``at`` are its sink key and its fixed offset."""
    best: dict[float, tuple[float, str]] = {}
    for name, score in scores.items():
        pattern, chance = PATTERNS[name], chances[name]
        unsure = np.isnan(score) or low[name] <= chance or chance > MOST_CHANCE
        if not pattern.doing or name == "uniform" or unsure or (name == "sink" and at[0] == 0):
            continue
        excess = (score - chance) / (1.0 - chance)
        if excess >= pattern.threshold and excess > best.get(pattern.threshold, (0.0, ""))[0]:
            best[pattern.threshold] = (excess, name)
    if not best:
        even = scores.get("uniform", 0.0)
        return ("uniform", f"uniform ({even:.2f})", even) if even >= EVEN else (MIXED, MIXED, np.nan)
    name = best[min(best)][1]
    kind, where = PATTERNS[name].title, f" {ON_RANDOM}" if name.endswith("_random") else ""
    place = {"sink": f" at key {at[0]}", "offset": f" {at[1]}"}.get(name, "")
    return kind, f"{kind}{place} ({scores[name]:.2f}{where})", scores[name]


def _bounds(scores: FloatArray64, seed: int) -> tuple[FloatArray64, FloatArray64]:
    """Return the bounds of the means of (window, head) scores within 0 and 1; NaN where windows lack the score."""
    _, low, high = bootstrap_means(np.nan_to_num(scores), seed=seed)
    lacking = np.isnan(scores).any(axis=0)
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    low[lacking] = high[lacking] = np.nan
    return low, high


def _known_mean(values: FloatArray64 | Sequence[FloatArray64]) -> FloatArray64:
    """Return the mean over the first axis of what is known."""
    array = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(array)
    count = known.sum(axis=0)
    total = np.where(known, array, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0))


def _most_frequent(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent value of every column, the smallest of equally frequent ones."""
    return np.array([np.bincount(column).argmax() for column in keys.T], dtype=np.int64)
