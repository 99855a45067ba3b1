"""Is attention invariant to softmax? OA theorem 2 and corollary 1 (arXiv 2506.15541), measured on every head."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.head_logits import LogitSource, Pair
from headscape.analysis.intervals import Interval, bootstrap
from headscape.analysis.softmax_experiment import ORGANIZE_OPTIONS, Masked, softmax_experiment
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.notices import Notice
from headscape.tensor.attention_record import BoolArray
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.store import Store, content_hash

KIND = "softmax-invariance"
MEASURES = (
    "residual",
    "residual_shuffled",
    "residual_mixed",
    "residual_exp",
    "share_explained",
    "share_of_mixed",
    "mean",
    "mixed_size",
    "holder_mixed",
    "holder_query",
    "holder_key",
)
RESIDUAL_AS_LARGE = "paraproduct-residual-as-large-as-the-field"

# From these shares of softmax on, the invariant form counts as holding, and as holding in part.
HOLDS, HOLDS_IN_PART = 0.9, 0.5
# A rank correlation of fewer heads says nothing.
FEWEST_HEADS = 5

FloatArray64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SoftmaxInvariance:
    """How well the paraproduct and the invariant form describe the softmax of every head.

    Attributes
    ----------
    heads
        The (layer, head) pairs.
    measures
        A (window, head) array for every name of ``MEASURES``; see
        :class:`headscape.analysis.softmax_experiment.SoftmaxExperiment`. "residual" is the relative residual of
        the complete paraproduct, "share_explained" what the invariant form explains of softmax.
    parameters
        Everything the study was made with.
    """

    heads: tuple[Pair, ...]
    measures: Mapping[str, FloatArray64]
    parameters: Mapping[str, Any]

    def of_heads(self, name: str) -> FloatArray64:
        """Return one measure per head: the median over the windows."""
        if name not in self.measures:
            raise InputError(f"name must be one of {', '.join(self.measures)}, but is {name!r}.")
        return _median(self.measures[name], axis=0)

    @cached_property
    def correlation(self) -> Interval:
        """Rank correlation over the heads between the size of mixed differences and the share explained.

        The claim is about heads, so heads are drawn again for the interval. NaN for fewer than five heads.
        """
        pairs = np.stack([self.of_heads("mixed_size"), self.of_heads("share_explained")], axis=1)
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        if len(pairs) < FEWEST_HEADS:
            return Interval(np.nan, np.nan, np.nan)
        return bootstrap(pairs, _rank_correlation, seed=int(self.parameters["seed"]), within=(-1.0, 1.0))

    @property
    def window_correlations(self) -> FloatArray64:
        """The same rank correlation in every window."""
        both = zip(self.measures["mixed_size"], self.measures["share_explained"], strict=True)
        return np.array([_rank_correlation(np.stack(pair, axis=1)) for pair in both])

    @property
    def n_regular(self) -> int:
        """How many heads have positive exponents, mixed and along both axes, as theorem 1 assumes."""
        smallest = np.min([self.of_heads(f"holder_{name}") for name in ("mixed", "query", "key")], axis=0)
        return int((smallest > 0).sum())

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Names the heads whose paraproduct leaves as much over as there was."""
        large = np.flatnonzero(self.of_heads("residual") >= 1)
        if len(large) == 0:
            return ()
        some = ", ".join(f"{self.heads[i][0]}.{self.heads[i][1]}" for i in large[:5])
        more = "" if len(large) <= 5 else " and others"
        message = (
            f"the complete paraproduct is no better than a constant for {len(large)} heads ({some}{more})"
        )
        return (Notice(RESIDUAL_AS_LARGE, message),)

    @property
    def verdict(self) -> str:
        """The finding in words, with its numbers."""
        share = self.of_heads("share_explained")
        if np.isnan(share).all():
            return (
                "softmax is constant in every head: there is nothing that the invariant form could explain."
            )
        middle = float(np.nanmedian(share))
        state = "hold" if middle >= HOLDS else "hold in part" if middle >= HOLDS_IN_PART else "do not hold"
        heads = "the one head" if len(share) == 1 else f"the median of {len(share)} heads"
        most = "" if len(share) == 1 else f" (at most {_percent(float(np.nanmax(share)))})"
        return " ".join(
            [
                f"The invariant form explains {_percent(middle)} of softmax in {heads}{most}: the corollary's "
                f"assumptions {state} for this network.",
                self._assumptions(),
                self._claim(),
                self._residuals(),
            ]
        )

    def _assumptions(self) -> str:
        mean, size = self.of_heads("mean"), self.of_heads("mixed_size")
        known = (
            "the mean is not known from this field"
            if np.isnan(mean).all()
            else f"median |mean| of the logits {np.nanmedian(np.abs(mean)):.2g}"
        )
        return (
            f"It assumes a mean near 0 and large mixed differences: {known}, median size of the mixed differences "
            f"{np.nanmedian(size):.2g}; {self.n_regular} of {len(self.heads)} heads are as regular as theorem 1 asks."
        )

    def _claim(self) -> str:
        found = self.correlation
        if np.isnan(found.estimate):
            return "There are too few heads to say whether larger mixed differences go with a better fit."
        if found.low > 0:
            words = "heads with larger mixed differences are described better, as the paper claims"
        elif found.high < 0:
            words = "heads with larger mixed differences are described worse, against the paper's claim"
        else:
            words = "that larger mixed differences go with a better fit is not seen"
        return f"Rank correlation of the two over the heads: {found}; {words}."

    def _residuals(self) -> str:
        residual, shuffled = self.of_heads("residual"), self.of_heads("residual_shuffled")
        low, middle, high = np.nanquantile(residual, [0.25, 0.5, 0.75])
        mixed = float(np.nanmedian(self.of_heads("residual_mixed")))
        return (
            f"The complete paraproduct leaves a relative residual of {middle:.2f} (interquartile {low:.2f} to "
            f"{high:.2f}) in organized order and {np.nanmedian(shuffled):.2f} in shuffled order; of the mixed part "
            f"alone it leaves {mixed:.2f}."
        )

    def examples(self) -> tuple[Pair, ...]:
        """Return the heads with the largest, the median and the smallest residual, without repetition."""
        residual = self.of_heads("residual")
        order = np.argsort(residual)[: int(np.isfinite(residual).sum())]
        places = [order[-1], order[len(order) // 2], order[0]] if len(order) else [0]
        return tuple(dict.fromkeys(self.heads[int(place)] for place in places))

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per head: the medians over the windows."""
        columns: dict[str, Any] = {
            "layer": [layer for layer, _ in self.heads],
            "head": [head for _, head in self.heads],
        }
        return pd.DataFrame(columns | {name: self.of_heads(name) for name in self.measures})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a folder; :meth:`load` gives the same back."""
        digest = content_hash(*(self.measures[name] for name in MEASURES))
        with Store.create(path, KIND, parameters=dict(self.parameters), input_hash=digest) as store:
            if store.has("study"):
                return
            with store.writing("study") as part:
                for name in MEASURES:
                    part.array(name, self.measures[name])
                part.attributes(heads=[list(pair) for pair in self.heads])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote."""
        with explain_read_errors(path):
            store = Store.open(path, KIND)
            part = store.read("study")
            return cls(
                heads=tuple((layer, head) for layer, head in part.attributes["heads"]),
                measures={name: part.array(name) for name in MEASURES},
                parameters=store.header["parameters"],
            )


def softmax_invariance(
    source: Any,
    *,
    heads: Iterable[Pair] | None = None,
    windows: int | None = None,
    visible: BoolArray | str | None = None,
    masked: Masked = "fill",
    draws: int = 3,
    seed: int = 0,
    progress: Progress = no_progress,
    **organize_options: Any,
) -> SoftmaxInvariance:
    """Test on every head what OA says of softmax: paraproduct, invariant form, and the assumptions behind it.

    Parameters
    ----------
    source
        A capture, a network tensor, or a (query, key[, head]) array of logits. From a tensor of probabilities
        the logits are known up to a constant in every row: the mean is then NaN.
    heads
        Only these (layer, head) pairs.
    windows
        Only so many windows of a capture.
    visible : (query, key) bool, or "causal"
        Which keys each query sees, for tensors of logits or energies, which do not know; all by default.
    masked
        "fill" or "block", see :func:`headscape.softmax_experiment`.
    draws, seed
        How many shuffles of the points are averaged; seed of the shuffles and of the bootstrap.
    progress
        Told after every head.
    **organize_options
        Those of :func:`headscape.organize`; by default those of one matrix (10 iterations, alpha 1, beta 0).

    Returns
    -------
    SoftmaxInvariance

    Notes
    -----
    Every head is organized for itself, which takes nearly all of the time: about a second and a half a head of 256
    tokens on one core with 10 iterations.

    References
    ----------
    OA (arXiv 2506.15541), theorem 2, corollary 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = softmax_invariance(rng.normal(size=(12, 10, 6)), n_iter=1)
    >>> found.verdict[:28], found.to_frame().shape
    ('The invariant form explains ', (6, 13))
    """
    given = LogitSource(source, heads, visible)
    if windows is not None and not 1 <= windows <= given.n_windows:
        raise InputError(f"windows must be from 1 to {given.n_windows}, but is {windows}.")
    count = given.n_windows if windows is None else windows
    total = count * len(given.heads)
    measures = {name: np.full((count, len(given.heads)), np.nan) for name in MEASURES}
    for window in range(count):
        for place, head in enumerate(given.window(window)):
            progress("softmax invariance", window * len(given.heads) + place, total)
            found = softmax_experiment(
                head.logits,
                visible=head.visible,
                masked=masked,
                sink=head.sink,
                draws=draws,
                seed=seed,
                **organize_options,
            ).measures()
            if not head.rows_known:
                found["mean"] = np.nan
            for name in MEASURES:
                measures[name][window, place] = found[name]
    progress("softmax invariance", total, total)
    parameters = {
        "field": given.field,
        "visible": visible if visible is None or isinstance(visible, str) else "array",
        "masked": masked,
        "draws": draws,
        "seed": seed,
        "organize": ORGANIZE_OPTIONS
        | {name: value for name, value in organize_options.items() if name not in ("engine", "progress")},
    }
    return SoftmaxInvariance(given.heads, measures, parameters)


def _rank_correlation(pairs: FloatArray64) -> float:
    """Return Spearman's correlation of two columns; 0 if one of them is constant."""
    ranks = stats.rankdata(pairs, axis=0)
    ranks = ranks - ranks.mean(axis=0)
    size = float(np.sqrt((ranks**2).sum(axis=0).prod()))
    return float(ranks[:, 0] @ ranks[:, 1]) / size if size > 0 else 0.0


def _median(values: FloatArray64, axis: int) -> FloatArray64:
    """Return the median of the finite values; NaN where there is none."""
    known = np.isfinite(values)
    some = known.any(axis=axis)
    result = np.full(some.shape, np.nan)
    for place in np.flatnonzero(some):
        column = values[:, place]
        result[place] = np.median(column[known[:, place]])
    return result


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
