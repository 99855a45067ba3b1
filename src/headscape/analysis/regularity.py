"""How regular a head is on its trees: Hoelder exponents from Haar coefficients (OA 1, 2, arXiv 2506.15541)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from headscape.analysis.haar import Trees, haar, require_trees
from headscape.analysis.holder_constants import axis_constants, mixed_constants
from headscape.analysis.intervals import Interval
from headscape.analysis.wavelets import Wavelets, wavelets
from headscape.engine import Engine, LocalEngine
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import PartitionTree, trees_of
from headscape.tensor.checks import as_float_array, require_axes, require_finite

FloatArray64 = NDArray[np.float64]
_BLOCK_BYTES = 1 << 22  # of the heads that are transformed at a time: their rows stay in the cache


@dataclass(frozen=True, eq=False)
class HolderExponents:
    """The Hoelder exponents of every head; all arrays are (head,).

    Attributes
    ----------
    mixed, query, key : (head, 3) arrays
        Exponent, lower and upper bound: of the mixed differences, and along one axis.
    constant_mixed, constant_query, constant_key
        The smallest constants C in OA (2) for the exponents ``alpha_*``; the mixed one is a lower bound from
        sampled quadruples, the others are exact.
    alpha_mixed, alpha_query, alpha_key
        The exponents of the constants: the fitted ones, or the fallback where the fit is not positive.
    level
        The level of the intervals.
    """

    mixed: FloatArray64
    query: FloatArray64
    key: FloatArray64
    constant_mixed: FloatArray64
    constant_query: FloatArray64
    constant_key: FloatArray64
    alpha_mixed: FloatArray64
    alpha_query: FloatArray64
    alpha_key: FloatArray64
    level: float

    @property
    def smallest(self) -> FloatArray64:
        """The smallest of the three exponents of each head: all conditions of OA (2) hold at most with this."""
        return np.minimum(np.minimum(self.mixed[:, 0], self.query[:, 0]), self.key[:, 0])

    @property
    def in_range(self) -> NDArray[np.bool_]:
        """Whether a head meets the assumption of OA theorem 1, mixed alpha-Hoelder for some 0 < alpha < 1/2.

        A larger exponent implies all smaller ones, so this is: the smallest of the three is positive.
        """
        return self.smallest > 0

    @property
    def verdict(self) -> str:
        """One sentence: how many heads are regular enough for OA theorem 1."""
        inside, n = int(self.in_range.sum()), len(self.mixed)
        if np.isnan(self.mixed[:, 0]).all():
            return f"no head (of {n}) varies over enough scales for an exponent."
        low, middle, high = np.nanquantile(self.mixed[:, 0], [0.25, 0.5, 0.75])
        many = f"{inside} of {n} heads are" if inside else f"no head (of {n}) is"
        return (
            f"{many} in the range 0 < alpha < 1/2 that theorem 1 assumes (mixed and along both axes); mixed "
            f"exponent: median {middle:.2f}, interquartile {low:.2f} to {high:.2f}; query: "
            f"{np.nanmedian(self.query[:, 0]):.2f}, key: {np.nanmedian(self.key[:, 0]):.2f}."
        )

    def head(self, index: int) -> Interval:
        """Return the mixed exponent of one head with its interval."""
        exponent, low, high = self.mixed[index].tolist()
        return Interval(exponent, low, high, self.level)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per head."""
        columns: dict[str, NDArray[Any]] = {}
        for name in ("mixed", "query", "key"):
            values = getattr(self, name)
            columns |= {f"holder_{name}": values[:, 0], f"holder_{name}_low": values[:, 1]}
            columns |= {f"holder_{name}_high": values[:, 2]}
            columns |= {f"constant_{name}": getattr(self, f"constant_{name}")}
        return pd.DataFrame(columns | {"in_theorem_range": self.in_range}).rename_axis("head")


def holder_exponent(
    x: Any,
    trees: Trees | Organization,
    *,
    level: float = 0.95,
    fallback_alpha: float = 0.25,
    n_samples: int = 100_000,
    seed: int = 0,
) -> HolderExponents:
    """Estimate the Hoelder exponents of every head on its query and key trees, mixed and along each axis.

        rms over {|F| / n_q * |G| / n_k = s} of |mean difference of x over the wavelets of F, G|  ~  C s^alpha

    where F and G are the folders that the wavelets split, and a mean difference is the coefficient divided by
    sqrt(ab / (a + b)) for each axis, a and b the sizes of the wavelet's sides. Along one axis: the same with
    the coefficients of that axis alone, over all points of the other.

    Parameters
    ----------
    x : (query, key[, head]) array
    trees
        Trees by axis name; "query" and "key" are used.
    level
        The level of the intervals.
    fallback_alpha
        The exponent for the constants of OA (2) where the fitted one is not positive.
    n_samples, seed
        The number of quadruples for the mixed constant, and their seed.

    Returns
    -------
    HolderExponents

    Notes
    -----
    The root mean square per dyadic bin of s, then a least-squares line in log-log, each bin weighted by how
    many coefficients it holds; the interval is that of the slope, from the scatter of the bins. Raw
    coefficients against the support would be biased on uneven trees, the largest per bin is biased by the
    number of coefficients. Haar wavelets see no exponent above 1: smooth functions give 1 on dyadic trees and
    0.87 to 0.95 on uneven ones; white noise gives -1/2 on balanced trees. O(size of x).

    References
    ----------
    OA (arXiv 2506.15541), definitions 1 and 2, theorem 1; Gavish, Coifman, "Sampling, denoising and compression of
    matrices by coherent matrix organization", 2012.

    Examples
    --------
    >>> labels = np.stack([np.arange(64) >> s for s in range(6, -1, -1)])
    >>> trees = {"query": PartitionTree(labels), "key": PartitionTree(labels)}
    >>> ramp = np.linspace(0, 1, 64)
    >>> holder_exponent(np.outer(ramp, ramp), trees).mixed[0].round(3).tolist()
    [1.0, 1.0, 1.0]
    """
    if not 0 < fallback_alpha <= 1:
        raise InputError(f"fallback_alpha must be in (0, 1], but is {fallback_alpha}.")
    trees = trees_of(trees)
    fits = fitted_exponents(x, trees, level)
    array = as_float_array(x, "x")
    array = array.reshape(*array.shape[:2], -1)
    query, key = trees["query"], trees["key"]
    alphas = {name: np.where(fit[:, 0] > 0, fit[:, 0], fallback_alpha) for name, fit in fits.items()}
    return HolderExponents(
        **fits,
        constant_mixed=mixed_constants(array, query, key, alphas["mixed"], n_samples, seed),
        constant_query=axis_constants(array, query, alphas["query"]),
        constant_key=axis_constants(array.swapaxes(0, 1), key, alphas["key"]),
        alpha_mixed=alphas["mixed"],
        alpha_query=alphas["query"],
        alpha_key=alphas["key"],
        level=level,
    )


def fitted_exponents(
    x: Any, trees: Trees | Organization, level: float = 0.95, engine: Engine | None = None
) -> dict[str, FloatArray64]:
    """Return the exponents of :func:`holder_exponent` by name, without the constants, at a fraction of the time.

    Heads are fitted in blocks, which ``engine`` spreads; by default over local threads.

    Returns
    -------
    dict of (head, 3) arrays
        Exponent, lower and upper bound for "mixed", "query" and "key".

    Examples
    --------
    >>> trees = {axis: PartitionTree(np.stack([np.arange(8) >> s for s in (3, 2, 1, 0)])) for axis in ("query", "key")}
    >>> fitted_exponents(np.add.outer(np.arange(8.0), np.arange(8.0)), trees)["query"][0].round(3).tolist()
    [1.0, 1.0, 1.0]
    """
    array = as_float_array(x, "x")
    require_axes(array, (2, 3), "x")
    trees = require_trees(array, trees, ("query", "key"))
    require_finite(array, "x")
    array = array.reshape(*array.shape[:2], -1)
    n_heads = array.shape[2]
    step = max(1, _BLOCK_BYTES // max(1, array[:, :, :1].nbytes))

    bases = wavelets(trees["query"]), wavelets(trees["key"])
    scales = [_log_scale(basis) for basis in bases]
    bins = [_Bins.of(scale) for scale in (np.add.outer(*scales).ravel(), *scales)]

    def fitted(start: int) -> list[FloatArray64]:
        block = np.ascontiguousarray(array[:, :, start : start + step])
        squares = _squared_differences(block, trees["query"], trees["key"], *bases)
        return [_slopes(one, of_scale, level) for one, of_scale in zip(bins, squares, strict=True)]

    blocks = list((engine or LocalEngine()).map(fitted, range(0, n_heads, step)))
    return {
        name: np.concatenate([block[place] for block in blocks])
        for place, name in enumerate(("mixed", "query", "key"))
    }


def _squared_differences(
    x: NDArray[Any], query: PartitionTree, key: PartitionTree, q: Wavelets, k: Wavelets
) -> list[FloatArray64]:
    """Return squared mean differences (wavelet, head): mixed, and their means along the queries and the keys."""
    along_query, along_key = haar(x, query, 0), haar(x, key, 1)
    mixed = np.square(haar(along_query[1:], key, 1)[:, 1:]).astype(np.float64)
    mixed /= np.multiply.outer(q.difference_norm[1:], k.difference_norm[1:])[:, :, None] ** 2
    means = []
    for basis, coefficients in ((q, along_query[1:]), (k, along_key[:, 1:].swapaxes(0, 1))):
        sums = np.einsum("wph,wph->wh", coefficients, coefficients).astype(np.float64)
        means.append(sums / (coefficients.shape[1] * basis.difference_norm[1:, None] ** 2))
    return [mixed.reshape(-1, x.shape[2]), *means]


def _log_scale(basis: Wavelets) -> FloatArray64:
    """Return log2 of the share of points in the folder that each wavelet splits, without the constant."""
    return np.asarray(np.log2(basis.folder_size[1:] / len(basis.order)))


@dataclass(frozen=True, eq=False)
class _Bins:
    """Dyadic bins of scales: which coefficients they hold, how many, and the mean log2 scale."""

    member: FloatArray64
    count: NDArray[np.int64]
    at: FloatArray64

    @classmethod
    def of(cls, scale: FloatArray64) -> "_Bins":
        _, inverse = np.unique(np.round(scale), return_inverse=True)
        count = np.bincount(inverse)
        member = (np.arange(len(count))[:, None] == inverse).astype(np.float64)
        return cls(member, count, np.bincount(inverse, weights=scale) / count)


def _slopes(bins: _Bins, squares: FloatArray64, level: float) -> FloatArray64:
    """Return slope, low and high of log2 rms against log2 scale for every column of squares."""
    count, at = bins.count, bins.at
    powers = bins.member @ squares / count[:, None]
    result = np.full((squares.shape[1], 3), np.nan)
    for head, power in enumerate(powers.T):
        some = power > 0
        if some.sum() >= 2:
            result[head] = _weighted_slope(at[some], 0.5 * np.log2(power[some]), count[some], level)
    return result


def _weighted_slope(at: FloatArray64, y: FloatArray64, weight: NDArray[Any], level: float) -> list[float]:
    """Return the slope of a weighted least-squares line and the bounds of its interval."""
    weight = weight / weight.sum()
    centered = at - weight @ at
    spread = float(weight @ centered**2)
    slope = float(weight @ (centered * y)) / spread
    if len(at) < 3:
        return [slope, np.nan, np.nan]
    residual = y - weight @ y - slope * centered
    freedom = len(at) - 2
    error = np.sqrt(float(weight @ residual**2) / (freedom * spread))
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * error  # the quantile of Student's t
    return [slope, slope - half, slope + half]
