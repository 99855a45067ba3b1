"""Attention patterns of the heads in one window: scores from 0 to 1, and what even attention would score.

With the attention A of a head and a detection matrix D (1 where the pattern says that a query attends to a key), a
linear score is

    sum(A * D) / sum(A)

over all queries that see a key: the error measure "mul" of TransformerLens' ``head_detector``. Names that end in
"_repeats" take only the queries that have such a key, so that a head that does nothing else scores 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.detections import FEWEST_ROWS, TOO_SHORT, BoolArray, Detections, Layout, detections

FloatArray = NDArray[np.float32] | NDArray[np.float64]
FloatArray64 = NDArray[np.float64]

ENOUGH = 0.5
"""Share of the queries that must see a key, or have a key at an offset, for it to count as sink or fixed offset."""
TOO_FEW_SEE = "no key is seen by half of the queries"
_ROWS = 256


@dataclass(frozen=True, eq=False)
class PatternScores:
    """Scores of some heads in one window.

    Parameters
    ----------
    scores
        By name, (head,).
    sink_key : (head,) integers
        The key that the score "sink" belongs to.
    diagonals : (head, 2 r + 1) array
        Mean attention to the key at offset -r, ..., r (query minus key); NaN for offsets that have a pattern of their
        own, and for those that less than half of the queries have.
    """

    scores: Mapping[str, FloatArray64]
    sink_key: NDArray[np.int64]
    diagonals: FloatArray64


class PatternScorer:
    """Scores heads that share the layout of a window.

    Parameters
    ----------
    layout
        What the queries and keys are, and which are visible.

    Attributes
    ----------
    left_out
        Scores that say nothing for this window, with the reason.

    Examples
    --------
    >>> scorer = PatternScorer(Layout(np.tri(32, dtype=bool)))
    >>> previous = np.eye(32, k=-1)
    >>> previous[0, 0] = 1.0
    >>> found = scorer.scores(previous[None])
    >>> found.scores["previous_token"].tolist(), found.scores["first_token"].round(3).tolist()
    ([0.96875], [0.062])
    >>> scorer.chance().scores["previous_token"].round(3).tolist()
    [0.096]
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._found: Detections = detections(layout)
        visible = layout.visible
        self._counts = visible.sum(axis=1)
        self._sinks = visible.sum(axis=0) >= ENOUGH * len(visible)
        self._several = self._counts >= 2
        self._offsets = _free_offsets(layout, self._found)
        self.left_out = dict(self._found.left_out)
        if not self._several.any():
            self.left_out |= dict.fromkeys(("uniform", "sharp"), TOO_SHORT)
        if not self._sinks.any():
            self.left_out["sink"] = TOO_FEW_SEE
        if not layout.cross and not self._offsets.any():
            self.left_out["offset"] = TOO_SHORT

    def scores(self, x: FloatArray) -> PatternScores:
        """Return the scores of (head, query, key) attention.

        Notes
        -----
        O(n L^2) a head for n patterns: one matrix product for all linear scores.
        """
        found = self._linear(x)
        columns = x.sum(axis=1, dtype=np.float64) / np.maximum(self.layout.visible.sum(axis=0), 1)
        columns[:, ~self._sinks] = -1.0
        if self._sinks.any():
            found["sink"] = columns.max(axis=1)
        found |= self._spread(x)
        return PatternScores(found, columns.argmax(axis=1), self._diagonals(x))

    def chance(self) -> PatternScores:
        """Return the scores of a head that attends evenly to all visible keys, as (1,) arrays."""
        even = self.layout.visible / np.maximum(self._counts, 1)[:, None]
        return self.scores(even[None])

    def _linear(self, x: NDArray[Any]) -> dict[str, FloatArray64]:
        """Return sum(A * D) / sum(A) of every detection matrix, by blocks of queries."""
        names = list(self._found.matrices)
        if not names:
            return {}
        hits = np.zeros((len(x), len(names)))
        for start in range(0, x.shape[1], _ROWS):
            rows = slice(start, start + _ROWS)
            d = np.stack([self._found.matrices[name][rows] for name in names]).astype(x.dtype)
            hits += x[:, rows].reshape(len(x), -1) @ d.reshape(len(names), -1).T
        counted = np.stack([self._found.rows[name] for name in names])
        total = x.sum(axis=2, dtype=np.float64) @ counted.T
        shares = np.divide(hits, total, out=np.full_like(hits, np.nan), where=total > 0)
        return dict(zip(names, shares.T, strict=True))

    def _spread(self, x: FloatArray) -> dict[str, FloatArray64]:
        """Return exp(entropy) / n and 1 - entropy / log n, means over the queries that see n >= 2 keys."""
        if not self._several.any():
            return {}
        rows, n = x[:, self._several], self._counts[self._several]
        total = rows.sum(axis=2, dtype=np.float64)
        logs = np.log(np.maximum(rows, np.finfo(rows.dtype).tiny))
        total[total == 0] = np.nan  # a query that the head gives no attention
        # Rows need not sum to 1: a sink of the model's own takes the rest.
        entropy = np.log(total) - np.einsum("hqk,hqk->hq", rows, logs) / total
        return {
            "uniform": _row_mean(np.exp(entropy) / n),
            "sharp": _row_mean(1.0 - entropy / np.log(n)),
        }

    def _diagonals(self, x: FloatArray) -> FloatArray64:
        """Return the mean attention at every offset, NaN where it does not count."""
        found = np.full((len(x), len(self._offsets)), np.nan)
        if self._offsets.any():
            at = np.flatnonzero(self._offsets) - len(self._offsets) // 2 - self.layout.n_memory
            found[:, self._offsets] = _diagonal_sums(x, at) / _diagonal_sums(self.layout.visible, at)
        return found


def positional_score(before: FloatArray, after: FloatArray, visible: BoolArray) -> FloatArray64:
    """Return how little the attention of every head changes if the tokens are replaced by others.

        mean over queries i of  1 - 1/2 sum_k |A_ik - B_ik|

    where A and B are the attention before and after, and i sees at least two keys.

    Parameters
    ----------
    before, after : (head, query, key) arrays
    visible : (query, key) bool

    Returns
    -------
    (head,) array
        1 if the tokens do not matter; NaN if no query sees two keys.

    Examples
    --------
    >>> ones = np.ones((2, 2), dtype=bool)
    >>> positional_score(np.eye(2)[None], np.full((1, 2, 2), 0.5), ones).tolist()
    [0.5]
    """
    several = visible.sum(axis=1) >= 2
    if not several.any():
        return np.full(len(before), np.nan)
    moved = np.abs(before[:, several] - after[:, several]).sum(axis=2, dtype=np.float64)
    return np.asarray(1.0 - moved.mean(axis=1) / 2)


def fixed_offsets(diagonals: FloatArray64) -> tuple[FloatArray64, NDArray[np.int64]]:
    """Return the largest mean diagonal of every head, averaged over windows, and its offset (query minus key).

    Parameters
    ----------
    diagonals : (window, head, 2 r + 1) array
        Of :class:`PatternScores`, cut to the same reach.

    Returns
    -------
    scores : (window, head) array
        Mean attention at that offset in every window.
    offsets : (head,) integers

    Examples
    --------
    >>> fixed_offsets(np.array([[[0.1, 0.6, np.nan]], [[0.3, 0.4, np.nan]]]))
    (array([[0.6],
           [0.4]]), array([0]))
    """
    reach = diagonals.shape[2] // 2
    known = ~np.isnan(diagonals)
    mean = np.where(known, diagonals, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    at = np.where(known.any(axis=0), mean, -1.0).argmax(axis=1)
    return np.take_along_axis(diagonals, at[None, :, None], axis=2)[:, :, 0], at - reach


def _free_offsets(layout: Layout, found: Detections) -> BoolArray:
    """Return which offsets from -r to r count: many queries have them, and no other pattern explains them."""
    reach = 0 if layout.cross else min(layout.visible.shape) // 2
    offsets = np.arange(-reach, reach + 1)
    in_matrix = offsets - layout.n_memory
    counts = _diagonal_sums(layout.visible, in_matrix)
    free: BoolArray = counts >= max(FEWEST_ROWS, ENOUGH * len(layout.visible))
    # In a text of period p every induction head attends p - 1 tokens back.
    for name in ("duplicate_token", "induction"):
        if name in found.matrices:
            free &= _diagonal_sums(found.matrices[name], in_matrix) < 0.5 * counts
    free[max(0, reach - 1) : reach + 2] = False
    return free


def _diagonal_sums(x: FloatArray | BoolArray, offsets: NDArray[np.int64]) -> FloatArray64:
    """Return the sums of the diagonals of (..., query, key) matrices at some offsets (query minus key), those last."""
    sums = [x.trace(-offset, axis1=-2, axis2=-1, dtype=np.float64) for offset in offsets]
    return np.stack(sums, axis=-1)


def _row_mean(rows: FloatArray64) -> FloatArray64:
    """Return the mean of every head over its queries, those without attention left out."""
    known = ~np.isnan(rows)
    count = known.sum(axis=1)
    total = np.where(known, rows, 0.0).sum(axis=1)
    return np.asarray(np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0))
