"""What two networks of a comparison differ in, as counts and lists that sentences are made of."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from headscape.analysis.comparison.shifts import ROUNDING
from headscape.analysis.comparison.window_test import EVERYTHING
from headscape.output import counted
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.measure_words import noise_words, words_of
from headscape.study.pair_tests import CHANGED, IDENTICAL, UNKNOWN

MOST_NAMED = 8
GROW = ("network_entropy", "folders")
"""Measures of a whole network that grow with its number of heads."""
MOST = 0.5
"""From this share of the heads on, a network changed throughout."""


@dataclass(frozen=True, eq=False)
class PairWords:
    """Two networks of a comparison, with what is said about them."""

    pair: ComparedPair
    a: ComparedSource
    b: ComparedSource

    @property
    def names(self) -> str:
        """Both names."""
        return f"{self.a.name} and {self.b.name}"

    @property
    def identical(self) -> bool:
        """Whether nothing differs at all."""
        return (
            bool(self.pair.matched) and set(self.pair.changes["verdict"]) == {IDENTICAL} and not self.removed
        )

    @property
    def tested(self) -> bool:
        """Whether there was a noise to compare with."""
        return UNKNOWN not in set(self.pair.changes["verdict"])

    @property
    def too_few(self) -> bool:
        """Whether the windows can be exchanged in too few ways to call any difference changed."""
        test = self.pair.test
        few = bool(test) and test["exact"] and test["splits"] * test["level"] < 2
        return few and self.pair.windows == "other"

    @cached_property
    def removed(self) -> list[tuple[int, int]]:
        """Heads that one of both lacks, in the numbers of the original."""
        return sorted(set(self.a.removed) ^ set(self.b.removed)) if self.pair.matched else []

    @property
    def pruned(self) -> ComparedSource:
        """The one that lacks heads."""
        return self.a if len(self.a.removed) > len(self.b.removed) else self.b

    @cached_property
    def moved(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Heads that are at another place in the second network."""
        if self.pair.matched != "assignment":
            return []
        rows = self.pair.correspondence[["layer_a", "head_a", "layer_b", "head_b"]].astype(int)
        pairs = [((la, ha), (lb, hb)) for la, ha, lb, hb in rows.itertuples(index=False, name=None)]
        return [(here, there) for here, there in pairs if here != there]

    @cached_property
    def measures(self) -> pd.DataFrame:
        """What changed over the whole network, the largest difference first, but for what grows with the heads."""
        rows = self._changed("network")
        return rows if len(self.a.heads) == len(self.b.heads) else rows[~rows["measure"].isin(GROW)]

    @property
    def single_measures(self) -> list[str]:
        """The measures that changed over the whole network, without that of all together."""
        return [str(name) for name in self.measures["measure"] if name != EVERYTHING]

    @cached_property
    def layers(self) -> dict[int, tuple[float, str]]:
        """Layers that changed: the largest difference and its measure, the largest first."""
        rows = self._changed("layer")
        return {int(row.layer): (row.times_noise, row.measure) for row in _largest(rows, ["layer"])}

    @cached_property
    def folders(self) -> dict[int, tuple[float, str]]:
        """First folders of the head tree that changed."""
        rows = self._changed("folder")
        return {int(row.folder): (row.times_noise, row.measure) for row in _largest(rows, ["folder"])}

    @cached_property
    def heads(self) -> dict[tuple[int, int], tuple[float, str]]:
        """Heads that changed, in the numbers of the original where one was pruned."""
        called = dict(zip(self.a.heads, self.a.originals, strict=True))
        rows = _largest(self._changed("head"), ["layer", "head"])
        return {called[int(r["layer"]), int(r["head"])]: (r["times_noise"], r["measure"]) for r in rows}

    @property
    def n_heads(self) -> int:
        """How many heads were compared one by one."""
        rows = self.pair.at("head")
        return len(rows[["layer", "head"]].drop_duplicates())

    @property
    def touched(self) -> list[int]:
        """Layers that changed as a whole or in some of their heads."""
        return sorted({*self.layers, *(layer for layer, _ in self.heads)})

    @cached_property
    def shifted(self) -> dict[int, pd.Series]:
        """Layers whose heads moved on the same windows, be it less than the noise, the farthest first."""
        rows = self.pair.shifts
        rows = rows[(rows["level"] == "layer") & (rows["moved"] > ROUNDING)]
        ordered = rows.sort_values("moved", ascending=False, kind="stable")
        return {int(row["layer"]): row for _, row in ordered.iterrows()}

    @cached_property
    def shifted_heads(self) -> dict[tuple[int, int], float]:
        """Heads that moved on the same windows, in the numbers of the original where one was pruned, farthest first."""
        called = dict(zip(self.a.heads, self.a.originals, strict=True))
        rows = self.pair.shifts
        rows = rows[(rows["level"] == "head") & (rows["moved"] > ROUNDING)]
        ordered = rows.sort_values("moved", ascending=False, kind="stable")
        columns = (ordered[name] for name in ("layer", "head", "moved"))
        return {
            called[int(layer), int(head)]: float(moved) for layer, head, moved in zip(*columns, strict=True)
        }

    @property
    def unmoved(self) -> list[int]:
        """Layers that are the same on the same windows, up to rounding."""
        rows = self.pair.shifts[self.pair.shifts["level"] == "layer"]
        return sorted({int(layer) for layer in rows["layer"]} - set(self.shifted))

    @property
    def begins(self) -> int | None:
        """The layer in which the difference begins, if the layers before it are the same; else None."""
        first = self.pair.onset.first
        return first if first is not None and self.unmoved and min(self.unmoved) < first else None

    @property
    def largest(self) -> float:
        """The largest difference of any layer, folder or head, in units of the noise."""
        rows = self.pair.changes
        return float(rows[rows["level"] != "network"]["times_noise"].max())

    @property
    def throughout(self) -> bool:
        """Whether most of the heads changed."""
        return self.n_heads > 0 and len(self.heads) >= MOST * self.n_heads

    def _changed(self, level: str) -> pd.DataFrame:
        rows = self.pair.at(level)
        return rows[rows["verdict"] == CHANGED].sort_values("times_noise", ascending=False, kind="stable")


def _largest(rows: pd.DataFrame, by: list[str]) -> list[pd.Series]:
    """Return the first row of every unit; rows are sorted by size."""
    return [row for _, row in rows.drop_duplicates(by).iterrows()]


def pair_headline(words: PairWords) -> str:
    """Return what two networks differ in, in one sentence that anyone understands."""
    if words.identical:
        return "Identical on these windows."
    if not words.pair.matched:
        return _of_different_networks(words)
    opening = _opening(words)
    if not words.tested:
        return f"{opening}; one window has no noise to compare the differences with."
    if words.removed:
        return f"{opening}; {remaining_heads(words)}."
    if words.measures.empty and not words.touched:
        if words.too_few:
            return "Too few windows to tell them apart; whatever differs could be noise."
        if words.shifted and not words.moved:
            return f"{opening}; {_small_shift(words)}."
        if not words.moved:
            return "Inside the noise: one network differs as much from itself on other windows."
        return f"{opening}; the heads of both differ no more than one network on other windows."
    if words.throughout:
        where = (
            f"{len(words.heads)} of {words.n_heads} heads changed, in {_which_layers(words, words.touched)}"
        )
        return f"{opening}; {where}."
    if words.touched:
        heads = f", {counted(len(words.heads), 'head')}" if words.heads else " as a whole"
        where = f"{ranged(words.touched, 'layer')} changed{heads}"
        begins = "" if words.begins is None else f"; the difference begins in layer {words.begins}"
        return f"{opening}; {where}{begins}; the rest is within the noise."
    if not words.single_measures:
        return (
            f"{opening}; they differ in all measures together, but in no single measure, layer or head alone."
        )
    measures = listed([words_of(name).title for name in words.single_measures], 3)
    return f"{opening}; changed as a whole in {measures}; every layer and head is within the noise."


def _opening(words: PairWords) -> str:
    """Return whether the organization is the same, and what is known of the heads."""
    times = words.pair.times_noise
    if words.removed:
        return f"{words.pruned.name} lacks {_heads(words.removed)}"
    if words.moved:
        return f"The same heads in another order, {len(words.moved)} of {words.n_heads} moved"
    if times > 1:
        return f"Another organization ({noise_words(times)})"
    return "Same organization" if times <= 1 else "Same heads"


def _of_different_networks(words: PairWords) -> str:
    a, b = words.a, words.b
    sizes = [
        f"{s.name} has {counted(len(s.heads), 'head')} in {counted(len(s.layers), 'layer')}" for s in (a, b)
    ]
    opening = "Different networks" if a.title != b.title else f"Different heads of {a.title}"
    opening = f"{opening}: {sizes[0]}, {sizes[1]}"
    if not words.tested:
        return f"{opening}; one window has no noise to compare the differences with."
    times = words.pair.times_noise
    far = "no further apart than the noise" if times <= 1 else f"{noise_words(times)} apart"
    tested = set(words.pair.at("network")["measure"]) - {EVERYTHING}
    found = f"{len(words.single_measures)} of {len(tested)} measures differ by more than the noise"
    if not words.single_measures and not words.measures.empty:
        found = "all measures together differ by more than the noise, though no single one does"
    return f"{opening}; {found if times != times else f'their organizations are {far}, and {found}'}."


def _small_shift(words: PairWords) -> str:
    """Return where heads moved on the same windows, although nothing exceeds the noise."""
    most = f"most in layer {next(iter(words.shifted))}"
    where = f"the heads of {_which_layers(words, sorted(words.shifted))} differ on the same windows, {most}"
    return f"{where}, but by less than the noise ({small_times(words.largest)})"


def small_times(times: float) -> str:
    """Return a difference that is smaller than the noise, in units of the noise.

    Examples
    --------
    >>> small_times(0.347), small_times(0.0002)
    ('at most 0.35 times', 'at most 0.01 times')
    """
    return f"at most {max(times, 0.01):.2g} times"


def remaining_heads(words: PairWords) -> str:
    """Return in which layers the heads that were not removed changed, by more and by less than the noise."""
    touched = words.touched
    less = [layer for layer in sorted(words.shifted) if layer not in touched]
    told = []
    if touched:
        told.append(f"the remaining heads of {ranged(touched, 'layer')} changed with them")
    if less:
        noun = "those" if touched else "the remaining heads"
        size = "" if touched else f" ({small_times(words.largest)})"
        told.append(f"{noun} of {ranged(less, 'layer')} changed by less than the noise{size}")
    if told or words.pair.windows == "same":
        return " and ".join(told) or "the remaining heads stayed as they were"
    return "the remaining heads differ no more than one network on other windows"


def _which_layers(words: PairWords, layers: Sequence[int]) -> str:
    return "all layers" if set(layers) == {layer for layer, _ in words.a.heads} else ranged(layers, "layer")


def _heads(heads: Sequence[tuple[int, int]]) -> str:
    word = "head" if len(heads) == 1 else "heads"
    return f"{word} {named(heads)}"


def named(heads: Collection[tuple[int, int]], most: int = MOST_NAMED) -> str:
    """Return heads by number, a few and how many more.

    Examples
    --------
    >>> named([(0, 1), (2, 3), (4, 5)], 2)
    '0.1, 2.3 and 1 more'
    """
    return listed([f"{layer}.{head}" for layer, head in heads], most)


def listed(words: Sequence[str], most: int = MOST_NAMED) -> str:
    """Return words in a row: the first few, and how many more.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2)
    ('a, b and c', 'a, b and 2 more')
    """
    shown = list(words[:most])
    if len(words) > most:
        shown.append(f"{len(words) - most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def ranged(numbers: Sequence[int], noun: str) -> str:
    """Return numbers with their noun, neighbors as ranges.

    Examples
    --------
    >>> ranged([4, 5, 6], "layer"), ranged([0, 2, 3, 7], "layer"), ranged([3], "layer")
    ('layers 4-6', 'layers 0, 2, 3 and 7', 'layer 3')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [w for run in runs for w in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"{noun if len(numbers) == 1 else noun + 's'} {listed(words)}"
