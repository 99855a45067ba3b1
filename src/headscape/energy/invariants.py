"""The invariants of softmax attention, as tests on one recorded module.

They are those of the invariants paper (IS, arXiv 2605.02907). Each test gives one judgement per head: passed,
failed, or not judged, with the measured number and its tolerance. A test whose failure would only repeat another
one is not judged, so that one fault is named once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headscape.energy.causality import judge_causality, judge_own_key
from headscape.energy.factors import module_factors
from headscape.energy.field import energy_field, log_ratio_energy, zero_sum_error
from headscape.energy.judgement import Judgement, Status, Tolerances
from headscape.energy.measures import beyond_products
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.checks import FloatArray
from headscape.tensor.fields import energy, probs

SMALLEST_PROBABILITY = 1e-30
"""Below this float32 probabilities lose digits (subnormal numbers), and so do their logarithms."""


def judge_record(
    record: AttentionRecord, *, causal: bool, tolerances: Tolerances | None = None
) -> Iterator[Judgement]:
    """Test the invariants on every head of one module.

    Parameters
    ----------
    record
        Queries, keys and visibility; with the model's own probabilities in ``record.probs`` all tests are made,
        without them those on queries and keys.
    causal
        Whether the model must not see later keys; if not, causality is not judged.
    tolerances
        By default those of float32.

    Yields
    ------
    Judgement
        "zero-sum", "rank bound", "delocalization bound"; of self-attention "causality" and, where it is causal,
        "own key"; with probabilities also "row sums", "mask" and "recomputed probabilities".

    Notes
    -----
    O(L^2 d) per head, and O(L^3 / 8) for the rank of the model's own field.

    References
    ----------
    The invariants paper (IS, arXiv 2605.02907), mechanism-level invariants.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(size=(1, 20, 4)).astype(np.float32)
    >>> record = AttentionRecord(0, q, q, 0.5, np.tri(20, k=1, dtype=bool))
    >>> [(j.test, j.value) for j in judge_record(record, causal=True) if j.status == Status.failed]
    [('causality', 19.0)]
    """
    limits = tolerances or Tolerances()
    shared = list(_judged_mask(record, 0, causal)) if record.visible.ndim == 2 else None
    for head in range(record.n_heads):
        judge = HeadJudge(record, head, limits)
        if record.has_products:
            yield judge.zero_sum()
            yield judge.delocalization_bound()
        else:
            yield from judge.of_products_alone()
        if shared is None:
            yield from _judged_mask(record, head, causal)
        else:
            yield from (replace(judgement, head=head) for judgement in shared)
        if record.probs is None:
            if record.has_products:
                yield judge.rank_of_products("the model's own probabilities are not known")
            continue
        rows, mask = judge.row_sums(), judge.mask()
        yield rows
        yield mask
        if not record.has_products:
            continue
        broken = next((j.test for j in (rows, mask) if j.status == Status.failed), "")
        yield judge.own_rank(broken)
        yield judge.recomputed(broken)


def _judged_mask(record: AttentionRecord, head: int, causal: bool) -> Iterator[Judgement]:
    """Test the mask of one head of self-attention."""
    if record.kind == "self":
        visible, place = record.visible_to(head), (record.layer, head)
        yield judge_causality(visible, *place, causal=causal, stack=record.stack)
        if causal:
            yield judge_own_key(visible, *place, record.stack)


@dataclass(frozen=True)
class HeadJudge:
    """The tests on one head of a record."""

    record: AttentionRecord
    head: int
    limits: Tolerances

    def of_products_alone(self) -> "Iterator[Judgement]":
        """Say of the tests on queries and keys that these are not known."""
        why = "queries and keys are not known, only logits or probabilities"
        for test in ("zero-sum", "delocalization bound", "rank bound", "recomputed probabilities"):
            yield self._open(test, why)

    def zero_sum(self) -> Judgement:
        """Test that rows of the energy sum to zero, over the visible keys and over all keys."""
        full = energy_field(self._queries, self._keys, self.record.scale)
        value = max(zero_sum_error(energy(self.record, self.head)), zero_sum_error(full))
        return self._measured(
            "zero-sum", value, self.limits.zero_sum, "rows of the energy do not sum to zero"
        )

    def delocalization_bound(self) -> Judgement:
        """Test that no key holds more variance than leverage and stable rank allow."""
        spread = module_factors(self.record).delocalization(self.head)
        if np.isnan(spread.peak):
            return self._open("delocalization bound", "all keys are equal: the energy field is zero")
        value = spread.peak / spread.bound
        return self._measured(
            "delocalization bound", value, 1 + 1e-6, f"key {spread.peak_key} exceeds the bound"
        )

    def row_sums(self) -> Judgement:
        """Test that the model's own probabilities sum to one (with the sink, where there is one)."""
        own = self._own
        rows = self.record.visible_to(self.head).any(axis=1)
        sums = own.sum(axis=1, dtype=np.float64)[rows]
        if self.record.sinks is not None:
            value = float(np.maximum(sums - 1, 0).max(initial=0.0))
            return self._measured("row sums", value, self.limits.row_sums, "rows sum to more than one")
        value = float(np.abs(sums - 1).max(initial=0.0))
        detail = "rows of the probabilities do not sum to one"
        if np.allclose(own.sum(axis=0, dtype=np.float64), 1, atol=10 * self.limits.row_sums):
            detail += ", but columns do: softmax runs over the wrong axis"
        return self._measured("row sums", value, self.limits.row_sums, detail)

    def mask(self) -> Judgement:
        """Test that the model's own probabilities are zero where the mask hides a key."""
        visible = self.record.visible_to(self.head)
        hidden = np.where(visible.any(axis=1, keepdims=True) & ~visible, self._own, 0)
        value = float(np.abs(hidden).max(initial=0.0))
        query, key = np.unravel_index(int(np.abs(hidden).argmax()), hidden.shape)
        later = "later " if key > query and self.record.kind == "self" else ""
        detail = f"query {query} gives {value:.3g} to the {later}key {key}, which the mask hides"
        return self._measured("mask", value, self.limits.row_sums, detail)

    def rank_of_products(self, why: str) -> Judgement:
        """Test that the rank of s q.k, fully centered, is at most min(d, L - 1)."""
        spectrum = module_factors(self.record).spectrum(self.head)
        extra = beyond_products(self.record)
        detail = f"of s q.k alone{f', without {extra}' if extra else ''}: {why}"
        return self._measured(
            "rank bound", float(spectrum.rank), float(spectrum.rank_bound), detail, keep_detail=True
        )

    def own_rank(self, broken: str) -> Judgement:
        """Test the rank of the log-ratio of the model's own probabilities, on a block that is all visible."""
        if broken:
            return self._open("rank bound", f"follows from {broken!r}")
        block = visible_block(self.record.visible_to(self.head))
        bound = self.record.head_dim
        if block is None or min(block[0].stop - block[0].start, block[1].stop - 1) <= bound:
            return self.rank_of_products(f"the window has no visible block larger than d = {bound}")
        own = self._own[block]
        if own.min() < SMALLEST_PROBABILITY:
            return self.rank_of_products("probabilities too small for the log-ratio route")
        field = log_ratio_energy(own)
        values = np.linalg.svd(field, compute_uv=False)
        noise = 4 * self.limits.eps * (1 + np.abs(np.log(own)).max()) * sum(np.sqrt(field.shape))
        extra = ", ".join(p for p in beyond_products(self.record).split(", ") if p and p != "sinks")
        if extra:
            rank = int((values > self.limits.rank * values[0] + noise).sum())
            return self.rank_of_products(f"the whole field has rank {rank}, and no bound holds for it")
        detail = f"the field of the model's own probabilities has a rank above d = {bound}"
        value = max(0.0, float(values[bound] - noise)) / float(values[0])
        return self._measured("rank bound", value, self.limits.rank, detail)

    def recomputed(self, broken: str) -> Judgement:
        """Test that probabilities recomputed from queries and keys are the model's own."""
        if broken:
            return self._open("recomputed probabilities", f"follows from {broken!r}")
        # A query that sees no key has no softmax: what a model returns for it is its own affair.
        rows = self.record.visible_to(self.head).any(axis=1, keepdims=True)
        gap = np.where(rows, np.abs(probs(self.record, self.head) - self._own), 0)
        value = float(gap.max())
        query, key = np.unravel_index(int(gap.argmax()), gap.shape)
        detail = f"the model's own probabilities are not softmax of s q.k at query {query}, key {key}"
        return self._measured("recomputed probabilities", value, self.limits.probs, detail)

    @property
    def _queries(self) -> FloatArray:
        return np.asarray(self.record.queries[self.head])

    @property
    def _keys(self) -> FloatArray:
        return np.asarray(self.record.keys[self.record.kv_head(self.head)])

    @property
    def _own(self) -> FloatArray:
        assert self.record.probs is not None
        return np.asarray(self.record.probs[self.head])

    def _measured(
        self, test: str, value: float, limit: float, detail: str, keep_detail: bool = False
    ) -> Judgement:
        place = self.record.layer, self.head
        return Judgement.measured(
            test, *place, value, limit, detail, self.record.stack, keep_detail=keep_detail
        )

    def _open(self, test: str, why: str) -> Judgement:
        return Judgement.not_judged(test, self.record.layer, self.head, why, self.record.stack)


def judge_field(field: FloatArray, name: str, layer: int, head: int) -> Judgement:
    """Test the rows of a field that was computed elsewhere: an energy sums to zero, probabilities to one.

    Parameters
    ----------
    field : (query, key) array
    name
        "energy" or "probs".
    layer, head
        Where.

    Examples
    --------
    >>> judge_field(np.array([[1.0, -1.0], [0.5, 0.0]]), "energy", 3, 1).detail
    'row 1 of the energy sums to 0.5, not to zero'
    """
    sums = field.sum(axis=1, dtype=np.float64)
    exact = field.dtype == np.float64
    if name == "energy":
        # Looser than our own 1e-15: whoever subtracts the mean of large logits loses their rounding.
        test, value, limit = "zero-sum", zero_sum_error(field), 1e-12 if exact else 1e-6
        row = int(np.abs(sums).argmax())
        detail = f"row {row} of the energy sums to {sums[row]:.3g}, not to zero"
    else:
        seen = field.any(axis=1)
        gaps = np.where(seen, np.abs(sums - 1), 0.0)
        row = int(gaps.argmax())
        test, value, limit = "row sums", float(gaps[row]), 1e-12 if exact else 1e-5
        detail = f"row {row} of the probabilities sums to {sums[row]:.3g}, not to one"
        if value > limit and np.allclose(field.sum(axis=0, dtype=np.float64), 1, atol=10 * limit):
            detail += "; the columns do: softmax runs over the wrong axis"
    return Judgement.measured(test, layer, head, value, limit, detail)


def visible_block(visible: NDArray[np.bool_]) -> tuple[slice, slice] | None:
    """Return a block (queries, keys) in which every query sees every key: all, or late queries x early keys.

    Examples
    --------
    >>> visible_block(np.tri(6, dtype=bool))
    (slice(3, 6, None), slice(0, 3, None))
    """
    n_queries, n_keys = visible.shape
    late = (slice(n_queries // 2, n_queries), slice(0, n_keys // 2))
    for block in ((slice(0, n_queries), slice(0, n_keys)), late):
        if visible[block].size and visible[block].all():
            return block
    return None
