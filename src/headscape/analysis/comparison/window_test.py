"""Differences between two networks against those between windows of one and the same network.

Every measure is repeated over windows, so each network has a spread of its own. That spread is the noise: a
difference counts only if it is larger than those between window sets of one network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError

FloatArray64 = NDArray[np.float64]

LEVEL = 0.03
"""How often a network may seem to differ from itself on other windows, over all measures, layers and heads together."""
EVERYTHING = "everything"
"""The name of all measures together."""
MOST_SPLITS = 999
# Temporary arrays of a megabyte stay in the cache: ten times as fast as one of a hundred.
_BLOCK_NUMBERS = 1 << 17


@dataclass(frozen=True, eq=False)
class Block:
    """One measure of two networks, window by window, and the units that it is judged for.

    Parameters
    ----------
    a : (window, row, feature) array
    b : (window, row, feature) array
        Rows are heads (or 1, for a measure of the whole network), features are what the measure has per head.
    units : (unit, row) array
        The share of every row in every unit (a head, a layer, the network); rows of it sum to 1.
    levels
        The level of every unit, such as "head"; by default all are of one. Units of a level have one common noise.
    own : (row, feature) array
        How much of a difference is due to the row itself, from 0 to 1, where features stand for other rows; by default
        all of it. Units of all rows take the whole difference.
    """

    a: FloatArray64
    b: FloatArray64
    units: FloatArray64
    levels: Sequence[str] = ()
    own: FloatArray64 | None = None

    def members(self) -> list[NDArray[np.int64]]:
        """Return the units of every level."""
        levels = np.array(self.levels or [""] * len(self.units))
        return [np.flatnonzero(levels == level) for level in dict.fromkeys(levels)]


@dataclass(frozen=True, eq=False)
class WindowTest:
    """What a test says about every unit of every measure.

    Attributes
    ----------
    size : (unit,) arrays by measure
        The studentized difference: root mean square over heads and features of difference / standard error. The measure
        "everything" has one unit: the root mean square of all measures' sizes, each in units of its noise.
    times_noise : (unit,) arrays by measure
        The size in units of the noise: the bound that all units of all measures together stay below between window sets
        of one network, but for ``level`` of them. 0 for identical windows, infinite for a difference without any noise.
    p : (unit,) arrays by measure
        The p-value, adjusted for all units of all measures and for "everything".
    splits, exact
        How many splits of the windows were tried, and whether these were all.
    level, paired
        As they were given.
    """

    size: Mapping[str, FloatArray64]
    times_noise: Mapping[str, FloatArray64]
    p: Mapping[str, FloatArray64]
    splits: int
    exact: bool
    level: float
    paired: bool

    def changed(self, name: str) -> NDArray[np.bool_]:
        """Tell which units of a measure differ by more than the noise."""
        return np.asarray(self.times_noise[name] > 1)


def window_test(
    blocks: Mapping[str, Block], *, paired: bool, level: float = LEVEL, seed: int = 0
) -> WindowTest:
    """Compare two networks with the spread between windows of one and the same network.

        t_f^2 = (mean of a_f - mean of b_f)^2 / ((v_f + v) / 2 (1 / n_a + 1 / n_b))
        size of a unit = sqrt(mean of t_f^2 over its features f)
        size of everything = sqrt(mean over measures m of (size_m / root mean square of size_m over splits)^2)

    where v_f is the variance between windows of one network (pooled), and v its mean over all features: with few
    windows a feature that happens to vary little must not look certain; size_m is that of the unit with all rows.

    Parameters
    ----------
    blocks
        The measures by name.
    paired
        Whether both networks saw the same windows. Then the difference is not due to windows at all, and it is
        compared with what other windows would do; if not, windows are exchanged between the networks.
    level
        How often a network may seem to differ from itself, over everything that is tested.
    seed
        Of the splits, where there are too many to try all.

    Returns
    -------
    WindowTest

    Notes
    -----
    The noise is measured on residuals (every network minus its own mean), whose windows are split anew in all ways,
    or in 999 random ones. Units are divided by the quantile of the largest unit of their level and measure over the
    splits, and the noise is the quantile of the largest of all, so the level holds for all units together
    (Westfall and Young's max-T). Many small differences are seen by all measures together before any single one is
    certain (a nonparametric combination), so half of the level is for "everything", and half for the units.

    For other windows, p comes from splits of the windows themselves: an exact permutation test whatever the
    distribution, if windows of one network are exchangeable; windows that lie side by side in a text are only nearly
    so. Where that test finds nothing, its splits are the noise. For the same windows p comes from the residuals. Fewer
    than 5 windows in each network have too few splits to say anything at the level of 3 %.

    References
    ----------
    Westfall, Young, Resampling-based multiple testing, Wiley 1993; Pesarin, Salmaso, Permutation tests for complex
    data, Wiley 2010, for the combination; Tusher, Tibshirani, Chu, Significance analysis of microarrays applied to the
    ionizing radiation response, PNAS 98 (2001), for the variance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(2, 6, 3, 1))
    >>> b[:, 1] += 9
    >>> found = window_test({"x": Block(a, b, np.eye(3))}, paired=False)
    >>> found.changed("x").tolist(), found.splits, found.exact
    ([False, True, False], 462, True)
    """
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, but is {level}.")
    counts = {(len(block.a), len(block.b)) for block in blocks.values()}
    if len(counts) != 1:
        raise InputError(f"all measures must have the same windows, but their numbers are {sorted(counts)}.")
    n_a, n_b = counts.pop()
    if n_a + n_b < 4 or min(n_a, n_b) < 2:
        raise InputError(
            f"the spread between windows needs 2 windows of each network, but there are {n_a}, {n_b}."
        )
    splits, exact = _splits(n_a, n_b, seed)
    observed = {name: _sizes(block, None, residual=False) for name, block in blocks.items()}
    noise = {name: _sizes(block, splits, residual=True) for name, block in blocks.items()}
    sizes, times, p = _against(blocks, observed, noise, level)
    if not paired:
        exchanged = {name: _sizes(block, splits, residual=False) for name, block in blocks.items()}
        if not exact:  # the windows as they are count as one of the splits
            exchanged = {name: np.vstack([observed[name], sizes]) for name, sizes in exchanged.items()}
        sizes, by_exchange, p = _against(blocks, observed, exchanged, level)
        # A real difference widens the spread of exchanged windows too, so that it would seem smaller than it is.
        times = {
            name: np.where(p[name] > level, by_exchange[name], np.maximum(times[name], by_exchange[name]))
            for name in times
        }
    return WindowTest(sizes, times, p, len(splits), exact, level, paired)


def _splits(n_a: int, n_b: int, seed: int) -> tuple[FloatArray64, bool]:
    """Return ways to split windows into two groups as weights: 1 / n_a in the first, -1 / n_b in the second."""
    n, half = n_a + n_b, n_a == n_b
    total = comb(n, n_a) // (2 if half else 1)
    exact = total <= MOST_SPLITS
    if exact:
        # Groups of the same size can be exchanged without a change: the first window stays in the first.
        groups = (
            [(0, *rest) for rest in combinations(range(1, n), n_a - 1)]
            if half
            else list(combinations(range(n), n_a))
        )
    else:
        rng = np.random.default_rng(seed)
        groups = [tuple(rng.permutation(n)[:n_a]) for _ in range(MOST_SPLITS)]
    weights = np.full((len(groups), n), -1 / n_b)
    for row, group in zip(weights, groups, strict=True):
        row[list(group)] = 1 / n_a
    return weights, exact


def _sizes(block: Block, splits: FloatArray64 | None, *, residual: bool) -> FloatArray64:
    """Return the (split, unit) sizes; without splits those of the networks as they are."""
    squares = _per_unit(_squares(block, splits, residual, None), block.units)
    if block.own is not None and splits is None:
        own = _per_unit(_squares(block, splits, residual, block.own), block.units)
        squares = np.where((block.units > 0).all(axis=1), squares, own)
    return np.asarray(np.sqrt(squares))


def _squares(
    block: Block, splits: FloatArray64 | None, residual: bool, own: FloatArray64 | None
) -> FloatArray64:
    """Return the (split, row) means of t^2 over the features, each in proportion to the row's own share."""
    n_a, n_b = len(block.a), len(block.b)
    n, rows, features = n_a + n_b, *block.a.shape[1:]
    means = [np.mean(x, axis=0, dtype=np.float64) for x in (block.a, block.b)]
    x = np.concatenate([block.a, block.b]).astype(np.float64)
    if residual:
        x[:n_a] -= means[0]
        x[n_a:] -= means[1]
    else:
        x -= 0.5 * (means[0] + means[1])
    between, error = n_a * n_b / n, 1 / n_a + 1 / n_b
    total = np.einsum("wrf,wrf->rf", x, x) - x.sum(axis=0) ** 2 / n
    weights = splits if splits is not None else np.full((1, n), np.nan)
    flat = x.reshape(n, -1)
    if splits is None:
        squares = np.array([float(((means[0] - means[1]) ** 2).sum())])
    else:
        squares = np.einsum("sw,wv,sv->s", weights, flat @ flat.T, weights)
    common = np.maximum(total.sum() - between * squares, 0.0) / ((n - 2) * rows * features)
    sizes = np.empty((len(weights), rows))
    step = max(1, _BLOCK_NUMBERS // (len(weights) * features))
    for start in range(0, rows, step):
        some = slice(start, start + step)
        if splits is None:
            moved = np.asarray(means[0] - means[1])[None, some]
        else:
            moved = (weights @ x[:, some].reshape(n, -1)).reshape(len(weights), -1, features)
        moved = moved**2
        variance = np.maximum(total[some] - between * moved, 0.0) / (n - 2)
        scale = 0.5 * error * (variance + common[:, None, None])
        t = np.divide(moved, scale, out=np.where(moved > 0, np.inf, 0.0), where=scale > 0)
        if own is not None:
            t = np.multiply(t, own[some] ** 2, out=np.zeros_like(t), where=own[some] > 0)
        sizes[:, some] = t.mean(axis=2)
    return sizes


def _per_unit(sizes: FloatArray64, units: FloatArray64) -> FloatArray64:
    """Return the means over the rows of each unit; an infinite row makes its units infinite."""
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    found = finite @ units.T
    endless = (~np.isfinite(sizes)).astype(np.float64) @ (units > 0).T > 0
    return np.where(endless, np.inf, found)


def _against(
    blocks: Mapping[str, Block],
    observed: Mapping[str, FloatArray64],
    splits: Mapping[str, FloatArray64],
    level: float,
) -> tuple[dict[str, FloatArray64], dict[str, FloatArray64], dict[str, FloatArray64]]:
    """Return sizes, sizes in units of the noise, and p-values adjusted for all units of all measures."""
    half = 0.5 * level
    bounds = {name: _bounds(block, splits[name], half) for name, block in blocks.items()}
    largest = np.max([_ratio(sizes, bounds[name]).max(axis=1) for name, sizes in splits.items()], axis=0)
    ratios = {name: _ratio(sizes, bounds[name])[0] for name, sizes in observed.items()}
    sizes = {name: value[0] for name, value in observed.items()}
    times = {name: _in_noise(ratio, _bound(largest, half)) for name, ratio in ratios.items()}
    p = {name: np.array([_share_at_least(largest, r) for r in ratio]) for name, ratio in ratios.items()}
    whole, drawn = _together(blocks, observed, splits)
    sizes[EVERYTHING] = whole
    times[EVERYTHING] = _in_noise(whole, _bound(drawn, half))
    p[EVERYTHING] = np.array([_share_at_least(drawn, float(whole[0]))])
    return sizes, times, {name: np.minimum(1.0, 2 * value) for name, value in p.items()}


def _together(
    blocks: Mapping[str, Block], observed: Mapping[str, FloatArray64], splits: Mapping[str, FloatArray64]
) -> tuple[FloatArray64, FloatArray64]:
    """Return the size of all measures together, (1,) as observed and (split,) over the splits."""
    found = []
    for of in (observed, splits):
        squares = []
        for name, block in blocks.items():
            whole = (block.units > 0).all(axis=1)
            at: Any = int(np.argmax(whole)) if whole.any() else slice(None)
            scale = np.sqrt(np.mean(splits[name][:, at] ** 2))
            ratio = _ratio(of[name][:, at].reshape(len(of[name]), -1), np.asarray(scale))
            squares.append(np.mean(ratio**2, axis=1))
        found.append(np.sqrt(np.mean(squares, axis=0)))
    return found[0], found[1]


def _in_noise(sizes: FloatArray64, noise: float) -> FloatArray64:
    """Return sizes in units of the noise; what has no bound is never beyond it."""
    if np.isinf(noise):
        return np.minimum(sizes, 1.0)
    return np.asarray(sizes / noise if noise > 0 else sizes)


def _bounds(block: Block, sizes: FloatArray64, level: float) -> FloatArray64:
    """Return for every unit what the largest unit of its level exceeds in at most the share ``level`` of the splits."""
    bounds = np.empty(len(block.units))
    for members in block.members():
        bounds[members] = _bound(sizes[:, members].max(axis=1), level)
    return bounds


def _bound(values: FloatArray64, level: float) -> float:
    """Return the value that at most the share ``level`` of all values exceeds."""
    return float(np.sort(values)[len(values) - 1 - int(level * len(values))])


def _ratio(sizes: FloatArray64, bound: FloatArray64) -> FloatArray64:
    endless = np.where(sizes > 0, np.inf, 0.0)
    usable = np.broadcast_to((bound > 0) & np.isfinite(bound), sizes.shape)
    return np.divide(sizes, bound, out=endless, where=usable & np.isfinite(sizes))


def _share_at_least(draws: FloatArray64, value: float) -> float:
    # Rounding must not make a split seem smaller than itself.
    return float(np.mean(draws >= value * (1 - 1e-9)))


def unit_weights(groups: Sequence[Sequence[int]], rows: int) -> FloatArray64:
    """Return the weights of units that are the means of some rows.

    Examples
    --------
    >>> unit_weights([[0, 1], [2]], 3).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    weights = np.zeros((len(groups), rows))
    for row, group in zip(weights, groups, strict=True):
        row[list(group)] = 1 / len(group)
    return weights


def as_rows(x: Any) -> FloatArray64:
    """Return a measure as (window, row, feature): (window,) is one row, (window, row) has one feature.

    Examples
    --------
    >>> as_rows([1.0, 2.0]).shape, as_rows(np.ones((2, 5))).shape
    ((2, 1, 1), (2, 5, 1))
    """
    array = np.asarray(x)
    return array.reshape(*array.shape, *[1] * (3 - array.ndim))
