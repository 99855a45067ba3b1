"""Every measure of two networks against the noise: which measures, layers, folders and heads changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.comparison.effects import effect_over_windows
from headscape.analysis.comparison.shifts import head_shifts
from headscape.analysis.comparison.window_test import (
    EVERYTHING,
    Block,
    WindowTest,
    as_rows,
    unit_weights,
    window_test,
)
from headscape.study.compared_pair import SHIFTS
from headscape.study.compared_source import HEAD_MEASURES, ComparedSource
from headscape.study.head_matching import Matching

FloatArray64 = NDArray[np.float64]

DECILES = np.arange(1, 10) / 10
CHANGED, INSIDE, IDENTICAL, UNKNOWN = "changed", "inside the noise", "identical", "unknown"
COLUMNS = ("level", "layer", "head", "folder", "measure", "size", "times_noise", "p", "verdict")
EFFECTS = ("measure", "median_a", "median_b", "delta", "low", "high", "times_noise", "p", "verdict")

Unit = tuple[str, int, int, int]
"""Level, layer, head, folder; -1 where it has none."""
NETWORK: Unit = ("network", -1, -1, -1)


class PairTests:
    """All measures of two networks on the windows that are compared.

    Parameters
    ----------
    a, b
        The networks.
    emds
        The (window, head, head) EMDs of both, in median EMDs.
    windows
        The windows of both that are compared.
    matching
        The heads that belong together.
    moved : (pair of heads,) array
        How far the attention of every matched head is from that of its partner on the same windows, if that is known.
    """

    def __init__(
        self,
        a: ComparedSource,
        b: ComparedSource,
        emds: tuple[FloatArray64, FloatArray64],
        windows: tuple[Sequence[int], Sequence[int]],
        matching: Matching,
        moved: FloatArray64 | None = None,
    ) -> None:
        self.sources, self.windows, self.matching, self.moved = (a, b), windows, matching, moved
        self.emds = tuple(emd[list(chosen)] for emd, chosen in zip(emds, windows, strict=True))
        self.units = self._units() if matching.how else [NETWORK]
        names = [name for name in a.measures if name in b.measures]
        self.measures = [name for name in HEAD_MEASURES if name in names]
        self.patterns = [name for name in names if name not in HEAD_MEASURES]

    def run(self, *, paired: bool, level: float, seed: int) -> tuple[WindowTest | None, pd.DataFrame]:
        """Test everything; without a spread between windows nothing but equality can be said."""
        blocks = self.blocks()
        enough = min(map(len, self.windows)) >= 2
        test = window_test(blocks, paired=paired, level=level, seed=seed) if enough else None
        rows: list[tuple[Any, ...]] = []
        equal = {
            name: self._equal(block) if paired else np.zeros(len(block.units), dtype=bool)
            for name, block in blocks.items()
        }
        equal = {EVERYTHING: np.array([all(of.all() for of in equal.values())]), **equal}
        for name, same in equal.items():
            units = self.units if len(same) == len(self.units) else [NETWORK]
            for number, unit in enumerate(units):
                rows.append((*unit, name, *_judged(test, name, number, same=bool(same[number]))))
        return test, pd.DataFrame(rows, columns=list(COLUMNS))

    def blocks(self) -> dict[str, Block]:
        """Return every measure: for matched heads head by head, else as the distribution over the heads."""
        found = {"geometry": self._geometry()}
        for name in self.measures:
            found[name] = self._measure([name], log=True)
        if self.patterns:
            found["patterns"] = self._measure(self.patterns)
            whole = [self._measure([name]) for name in self.patterns]
            for name, block in zip(self.patterns, whole, strict=True):
                found[name] = Block(block.a, block.b, block.units[:1])
        one = np.ones((1, 1))
        for name in self.sources[0].networks:
            a, b = (s.networks[name][list(w)] for s, w in zip(self.sources, self.windows, strict=True))
            if name == "network_entropy":
                a, b = _log(a), _log(b)
            found[name] = Block(as_rows(a), as_rows(b), one)
        return found

    def effects(self, changes: pd.DataFrame, *, paired: bool) -> pd.DataFrame:
        """Return medians and effect sizes of the measures with one number per head, and of the whole network."""
        tested = changes[changes["level"] == "network"].set_index("measure")
        rows = []
        for name in [*self.measures, *self.patterns, *self.sources[0].networks]:
            a, b = (
                (s.measures[name] if name in s.measures else s.networks[name][:, None])[list(w)]
                for s, w in zip(self.sources, self.windows, strict=True)
            )
            medians = [float(np.median(x.mean(axis=0))) for x in (a, b)]
            # The windows themselves are the sample where a measure has one number per window.
            effect = effect_over_windows(a, b, paired=paired) if name in self.sources[0].measures else None
            bounds = (np.nan,) * 3 if effect is None else (effect.estimate, effect.low, effect.high)
            verdict = tuple(tested.loc[name, ["times_noise", "p", "verdict"]])
            rows.append((name, *medians, *bounds, *verdict))
        return pd.DataFrame(rows, columns=list(EFFECTS))

    def shifts(self, emds: FloatArray64) -> pd.DataFrame:
        """Return how far the heads of every unit moved on the same windows, from the EMDs between both networks."""
        by_head = head_shifts(emds, self.matching.rows, self.matching.columns)
        moved = by_head @ self._weights().T
        most = np.empty(moved.shape)
        levels = np.array(self.levels)
        for level in dict.fromkeys(self.levels):
            members = levels == level
            most[:, members] = moved[:, members] >= moved[:, members].max(axis=1, keepdims=True)
        found = (moved.mean(axis=0), moved.min(axis=0), moved.max(axis=0), most.mean(axis=0))
        rows = [(*unit, *values) for unit, *values in zip(self.units, *found, strict=True)]
        return pd.DataFrame(rows, columns=list(SHIFTS))

    def _units(self) -> list[Unit]:
        """Return the network, its layers, the first folders of its tree, and its heads."""
        heads = [self.sources[0].heads[i] for i in self.matching.rows]
        layers = dict.fromkeys(layer for layer, _ in heads)
        folders = sorted(set(self._folders()))
        return [
            NETWORK,
            *(("layer", layer, -1, -1) for layer in layers),
            *(("folder", -1, -1, int(folder)) for folder in folders),
            *(("head", layer, head, -1) for layer, head in heads),
        ]

    @property
    def levels(self) -> list[str]:
        """The level of every unit."""
        return [level for level, _, _, _ in self.units]

    def _folders(self) -> NDArray[Any]:
        labels = self.sources[0].geometry.tree.labels
        return np.asarray(labels[min(1, len(labels) - 1)][self.matching.rows])

    def _weights(self) -> FloatArray64:
        heads = [self.sources[0].heads[i] for i in self.matching.rows]
        folders, n = self._folders(), len(heads)
        groups: list[list[int]] = []
        for kind, layer, head, folder in self.units:
            members = {
                "network": range(n),
                "layer": [i for i in range(n) if heads[i][0] == layer],
                "folder": [i for i in range(n) if folders[i] == folder],
                "head": [i for i in range(n) if heads[i] == (layer, head)],
            }[kind]
            groups.append(list(members))
        return unit_weights(groups, n)

    def _geometry(self) -> Block:
        if self.matching.how:
            places = (self.matching.rows, self.matching.columns)
            a, b = (emd[:, at][:, :, at] for emd, at in zip(self.emds, places, strict=True))
            return Block(
                a, b, self._weights(), self.levels, None if self.moved is None else own_share(self.moved)
            )
        a, b = (_deciles_of_emds(emd) for emd in self.emds)
        return Block(a[:, None], b[:, None], np.ones((1, 1)))

    def _measure(self, names: Sequence[str], *, log: bool = False) -> Block:
        """Return (window, head, measure) values of matched heads, or the deciles over all heads."""
        values = []
        places = (self.matching.rows, self.matching.columns)
        for source, windows, at in zip(self.sources, self.windows, places, strict=True):
            x = np.stack([source.measures[name][list(windows)] for name in names], axis=2)
            x = _log(x) if log else x
            if self.matching.how:
                values.append(x[:, at])
            else:
                deciles = np.moveaxis(np.quantile(x, DECILES, axis=1), 0, 1)
                values.append(deciles.reshape(len(x), 1, -1))
        units = self._weights() if self.matching.how else np.ones((1, 1))
        return Block(values[0], values[1], units, self.levels)

    def _equal(self, block: Block) -> NDArray[np.bool_]:
        """Tell which units are the same in all windows."""
        if block.a.shape != block.b.shape:
            return np.zeros(len(block.units), dtype=bool)
        differs = (block.a != block.b).any(axis=(0, 2)).astype(np.float64)
        return np.asarray((block.units > 0) @ differs == 0)


def _judged(test: WindowTest | None, name: str, unit: int, *, same: bool) -> tuple[float, float, float, str]:
    """Return size, size in units of the noise, p-value and verdict of one unit."""
    if test is None:
        return np.nan, 0.0 if same else np.nan, np.nan, IDENTICAL if same else UNKNOWN
    size, times, p = (float(of[name][unit]) for of in (test.size, test.times_noise, test.p))
    return size, times, p, IDENTICAL if same else CHANGED if times > 1 else INSIDE


def own_share(moved: FloatArray64) -> FloatArray64:
    """Return how much of a change of the distance between two heads is due to the first, from how far each moved.

        share_ij = min(1, 2 m_i / (m_i + m_j))

    The distances of a head change even if only others move; |change of d_ij| <= m_i + m_j says who can have done it.

    Examples
    --------
    >>> own_share(np.array([0.0, 1.0, 3.0])).tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]]
    """
    both = np.add.outer(moved, moved)
    share = np.divide(2 * moved[:, None], both, out=np.zeros_like(both), where=both > 0)
    return np.asarray(np.minimum(share, 1.0))


def _deciles_of_emds(emds: FloatArray64) -> FloatArray64:
    """Return the deciles of the distances between different heads, window by window."""
    upper = np.triu_indices(emds.shape[1], 1)
    if not len(upper[0]):
        return np.zeros((len(emds), len(DECILES)))
    return np.stack([np.quantile(emd[upper], DECILES) for emd in emds])


def _log(x: FloatArray64) -> FloatArray64:
    """Return logarithms, in which differences are ratios; what is smaller counts as a millionth."""
    return np.asarray(np.log(np.maximum(x, 1e-6)))


def how_tested(test: WindowTest | None) -> Mapping[str, Any]:
    """Return how a test was made, as JSON can hold it."""
    if test is None:
        return {}
    return {"splits": test.splits, "exact": test.exact, "level": test.level, "paired": test.paired}
