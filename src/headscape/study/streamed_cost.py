"""What organizing the heads of a large capture costs: operations counted, and timed on this machine for a moment.

For H heads, windows of L tokens, trees of F folders, and W workers:

    affinities    4 H L^3 floating-point operations (two products of matrices a head)
    fields        H L^2 entries of the softmax, ROWS_AGAIN times: coarse folders need rows of several blocks
    averages      H F (L + F) sums in float64
    distances     H^2 / 2 * F^2 absolute differences in float32
    reading       the capture once per block, and a fixed time per head and block

each divided by its rate on one core, and by W.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from threadpoolctl import threadpool_limits

from headscape.geometry.l1_kernel import l1_distances
from headscape.geometry.streamed_emd import BlockPlan
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.fields import probs

ROWS_AGAIN = 3.0
READING = 1e8
"""Bytes of a capture that are read, verified and decompressed in a second."""
PER_HEAD = 1e-3
"""Seconds for every head of every block, however small."""
_TRIALS = 3


@dataclass(frozen=True)
class Rates:
    """Operations per second on one core: products in float64, entries of a softmax, sums, absolute differences."""

    products: float
    entries: float
    sums: float
    differences: float


@dataclass(frozen=True)
class Cost:
    """Expected seconds by part, for one worker; ``seconds`` is for all of them."""

    affinities: float
    fields: float
    averages: float
    distances: float
    reading: float
    workers: int

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole."""
        return self.core_seconds / self.workers

    @property
    def core_seconds(self) -> float:
        """Expected seconds on one core."""
        return self.affinities + self.fields + self.averages + self.distances + self.reading


def streamed_cost(plan: BlockPlan, rates: Rates, share: float = 1.0, d: int = 64) -> Cost:
    """Return what a plan costs at these rates, if a share of the terms of the EMD is summed up; d: length of a query.

    Examples
    --------
    >>> plan = BlockPlan(1024, 2048, 2048, 3300, 3300, block=100, workers=2, memory=4 << 30)
    >>> cost = streamed_cost(plan, Rates(2e10, 1e8, 3e8, 2e10))
    >>> round(cost.distances), round(cost.seconds)
    (285, 1338)
    """
    area = plan.queries * plan.keys
    return Cost(
        affinities=plan.heads * 2 * area * (plan.queries + plan.keys) / rates.products,
        fields=plan.heads * area * (1 + ROWS_AGAIN) / rates.entries,
        averages=plan.heads * plan.query_folders * (plan.keys + share * plan.key_folders) / rates.sums,
        distances=share * plan.differences / rates.differences,
        reading=(plan.n_blocks + 1) * plan.heads * (4 * d * (plan.queries + plan.keys) / READING + PER_HEAD),
        workers=plan.workers,
    )


@cache
def measured_rates() -> Rates:
    """Time each kind of operation on one core for a moment; a second with the kernel's compilation cached."""
    rng = np.random.default_rng(0)
    n = 384
    matrix = rng.random((n, n))
    queries = rng.normal(size=(1, 512, 64)).astype(np.float32)
    record = AttentionRecord(0, queries, queries, 0.125, causal_visibility(512))
    rows = rng.random((128, 1 << 15)).astype(np.float32)
    sums, ends = rng.random((64, 512)), rng.integers(0, 513, size=(2, 700))

    def averages() -> object:
        below = np.zeros((64, 513))
        np.cumsum(sums, axis=1, out=below[:, 1:])
        return (below[:, ends[0]] - below[:, ends[1]]).astype(np.float32)

    with threadpool_limits(1, user_api="blas"):
        return Rates(
            products=2 * n**3 / _seconds(lambda: matrix @ matrix),
            entries=512 * 512 / _seconds(lambda: probs(record, 0)),
            sums=64 * (512 + 700) / _seconds(averages),
            differences=0.5 * rows.shape[0] * rows.size / _seconds(lambda: l1_distances(rows, small=False)),
        )


def _seconds(function: Callable[[], object]) -> float:
    """Return the shortest of a few times of this core, whatever else it does, after one that may compile."""
    function()
    times = []
    for _ in range(_TRIALS):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return max(min(times), 1e-9)
