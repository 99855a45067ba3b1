"""What organizing a large capture costs: operations counted, and timed on this machine for a moment.

For H heads, windows of L tokens, trees of F folders on heads and G on tokens, W workers, and I iterations:

    affinities    2 H L^3 floating-point operations, twice; by symmetry half of them, under a mask a third of those
    fields        H L^2 entries of the softmax for the affinities, and PASSES times for each EMD: large folders need
                  what small ones need once more
    averages      sums in float64: H G (L + G) between heads, F L (L + G) between queries and between keys
    distances     H^2 / 2 * G^2 absolute differences between heads, L^2 / 2 * F G between queries and between keys;
                  those of features that are zero under the mask are left out
    rounding      the features of 8 bits, if distances are computed from them
    a sample      of the features, if distances are estimates: SHARE of distances, rounding and, between heads, of G in
                  the averages; fields and averages of PILOTS heads once more
    trees         TREES (n / 1000)^3 seconds for n points
    reading       the capture once, or once for every block
    overhead      for every head of a pass, every outer folder and every block, however small

The EMD between heads is computed once, or all three I times; each part is divided by its rate on one core, and by W.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from threadpoolctl import threadpool_limits

from headscape.geometry.dithered import DitheredDistances
from headscape.geometry.feature_sample import PILOTS, SHARE, FeatureSample
from headscape.geometry.l1_kernel import l1_distances
from headscape.geometry.streamed_blocks import OTHERS
from headscape.geometry.streamed_plan import StreamedPlan
from headscape.tensor.attention_record import AttentionRecord, causal_visibility
from headscape.tensor.fields import probs

PASSES = 2.3
READING = 1e8
"""Bytes of a capture that are read, verified and decompressed in a second."""
TREES = 0.3
PER_HEAD, PER_FOLDER, PER_BLOCK = 3e-4, 5e-4, 1e-2
_TRIALS = 3


@dataclass(frozen=True)
class Rates:
    """Operations per second on one core.

    Products in float64, entries of a softmax, sums, absolute differences of floats and of bytes, features rounded.
    """

    products: float
    entries: float
    sums: float
    differences: float
    byte_differences: float
    rounded: float


@dataclass(frozen=True)
class Cost:
    """Expected seconds by part on one core; ``seconds`` is for all workers, of which trees occupy one."""

    affinities: float
    fields: float
    averages: float
    distances: float
    rounding: float
    trees: float
    reading: float
    overhead: float
    workers: int

    @property
    def core_seconds(self) -> float:
        """Expected seconds on one core."""
        return float(sum(getattr(self, part.name) for part in fields(self) if part.name != "workers"))

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole."""
        return (self.core_seconds - self.trees) / self.workers + self.trees


def streamed_cost(plan: StreamedPlan, rates: Rates, n_iter: int = 0) -> Cost:
    """Return what a plan costs at these rates: the heads alone, or ``n_iter`` iterations of the questionnaire.

    Examples
    --------
    >>> sizes = {"query": 2048, "key": 2048, "head": 1024}
    >>> folders = {axis: 8 * n // 5 for axis, n in sizes.items()}
    >>> plan = StreamedPlan(sizes, folders, 32, 1.0, {"head": 100}, True, 2, 4 << 30, dithered=False)
    >>> cost = streamed_cost(plan, Rates(2e10, 1e8, 3e8, 1e10, 1e11, 1e9))
    >>> round(cost.distances), round(cost.affinities)
    (563, 880)
    """
    sizes, folders = plan.sizes, plan.folders
    heads, queries, keys = sizes["head"], sizes["query"], sizes["key"]
    masked = plan.visible < 1.0
    area = heads * queries * keys
    averages = distances = rounding = 0.0
    for axis in ("head",) if n_iter == 0 else tuple(OTHERS):
        outer, inner = OTHERS[axis]
        kept = SHARE if plan.dithered else 1.0
        features = folders[outer] * folders[inner]
        averages += sizes[axis] * folders[outer] * sizes[inner]
        averages += sizes[axis] * features * (kept if axis == "head" else 1.0)
        # Between heads zeros are shared. Between tokens, only bytes leave out those that one of the two has.
        share = (
            plan.visible if axis == "head" else (2 * plan.visible / 3 if masked and plan.dithered else 1.0)
        )
        distances += 0.5 * sizes[axis] ** 2 * features * share * kept
        rounding += sizes[axis] * features * plan.dithered * kept
        if plan.dithered and axis == "head":
            averages += PILOTS * folders[outer] * (sizes[inner] + folders[inner])
    times = max(1, n_iter)
    passes = PASSES * (1 if n_iter == 0 else 3 * n_iter)
    passes += PASSES * times * min(1.0, PILOTS / heads) * plan.dithered
    # A block between heads looks at all of them, one between tokens at some.
    calls = 1 + times * plan.n_blocks("head") + 2 * PASSES * n_iter
    opened = times * folders["query"] + 2 * n_iter * folders["head"]
    blocks = times * plan.n_blocks("head") + sum(
        n_iter * plan.n_blocks(axis) for axis in ("query", "key") if n_iter
    )
    grown = [queries, keys, heads] + [queries, keys, heads] * (n_iter - 1) + [queries, keys] * (n_iter > 0)
    return Cost(
        affinities=area * (queries + keys) / (3 if masked else 1) / rates.products,
        fields=area * (1 + passes) / rates.entries,
        averages=times * averages / rates.sums,
        distances=times * distances / (rates.byte_differences if plan.dithered else rates.differences),
        rounding=times * rounding / rates.rounded,
        trees=TREES * sum((n / 1000) ** 3 for n in grown),
        reading=(1 if plan.held else calls) * heads * 4 * plan.d * (queries + keys) / READING,
        overhead=calls * heads * PER_HEAD + opened * PER_FOLDER + blocks * PER_BLOCK,
        workers=plan.workers,
    )


@cache
def measured_rates() -> Rates:
    """Time each kind of operation on one core for a moment; a second with the kernels' compilation cached."""
    from headscape.geometry._l1_bytes import write_features

    rng = np.random.default_rng(0)
    n = 384
    matrix = rng.random((n, n))
    queries = rng.normal(size=(1, 512, 64)).astype(np.float32)
    record = AttentionRecord(0, queries, queries, 0.125, causal_visibility(512))
    rows = rng.random((512, 1 << 12)).astype(np.float32)
    values, out = rng.random((64, 512), dtype=np.float32), np.empty(64 * 700, np.float32)
    ones, places, order = np.ones(700), np.arange(64), rng.permutation(512)
    start, stop = np.sort(rng.integers(0, 513, size=(2, 700)), axis=0)
    folders, ends, at = np.arange(700), np.tile([0, 700], (64, 1)), 700 * places
    sample = FeatureSample.of(np.arange(rows.shape[1]), np.ones(rows.shape[1]), rng)

    def averages() -> None:
        write_features(
            values, places, places + 1, ones[:64], order, start, stop, ones, folders, ends, at, out
        )

    dithered = DitheredDistances(len(rows))

    with threadpool_limits(1, user_api="blas"):
        pairs = 0.5 * len(rows) * rows.size
        rounding = _seconds(lambda: dithered.rounded(rows, sample))
        whole = _seconds(lambda: dithered.add(rows, sample))
        return Rates(
            products=2 * n**3 / _seconds(lambda: matrix @ matrix),
            entries=512 * 512 / _seconds(lambda: probs(record, 0)),
            sums=64 * (512 + 700) / _seconds(averages),
            differences=pairs / _seconds(lambda: l1_distances(rows, small=False)),
            byte_differences=pairs / max(whole - rounding, 0.1 * whole),
            rounded=rows.size / rounding,
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
