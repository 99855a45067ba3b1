"""The EMD between heads from a sample of its terms, with an estimate of the error.

The EMD (OA 15, arXiv 2506.15541) is a sum of |a_f - b_f| over features f, the pairs of folders. A feature that differs
little from head to head contributes little to any of the distances. Feature f is drawn with probability

    pi_f = min(1, c s_f),   s_f = spread of f over some heads (+ a floor),   sum of pi_f = share * number of features

and its term counts 1 / pi_f times, so that every distance is unbiased (Horvitz and Thompson 1952, doi:10.2307/2280784).
Features are drawn systematically, ordered by the head that deviates most in them, so that every head gets its share of
the draws, and dealt to groups at random; how the sums of the groups differ gives the standard error of every distance.
It takes no account of the order, and is rather too large than too small.
"""

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.l1_kernel import l1_distances
from headscape.geometry.streamed_emd import DEFAULT_MEMORY, HeadBlocks
from headscape.tensor.checks import require_integer, require_number

GROUPS = 4
PILOT = 64
"""Heads from which the spread of the features is estimated."""
PILOT_BYTES = 1 << 26
"""Memory of the features of these heads that are held at a time."""
FLOOR = 0.05
"""Share of the mean spread that every feature is given: one that is equal in all pilot heads may differ in others."""


@dataclass(frozen=True, eq=False)
class SampledEMD:
    """An estimated EMD: ``emd`` and its ``standard_error``, both (head, head), and the ``share`` of terms summed up."""

    emd: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    share: float

    def relative_error(self, quantile: float = 0.95) -> float:
        """Return a quantile, over all pairs of heads, of the expected relative error.

        The expected size of a normal error is its standard deviation times sqrt(2 / pi).
        """
        above = np.triu_indices(len(self.emd), 1)
        distance = np.maximum(self.emd[above], np.finfo(float).tiny)
        return float(np.quantile(np.sqrt(2 / np.pi) * self.standard_error[above] / distance, quantile))

    def summary(self) -> dict[str, float]:
        """Return what a result records of its sample."""
        errors = {
            f"relative_error_{name}": self.relative_error(q) for name, q in (("median", 0.5), ("95", 0.95))
        }
        return {"share": self.share, **errors}


def sampled_head_emd(
    blocks: HeadBlocks,
    share: float = 0.1,
    *,
    seed: int = 0,
    pilot: int = PILOT,
    memory: int = DEFAULT_MEMORY,
    block: int | None = None,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> SampledEMD:
    """Estimate the tree EMD between all heads from a share of its terms.

    Parameters
    ----------
    blocks
        What the EMD is summed over: ``HeadBlocks.of(capture, window, trees, alpha, beta, field, dtype)``.
    share
        Of the terms, and so of the kernel's work, in (0, 1].
    seed
        Of the sample: the same for any engine and block.
    pilot
        Heads from which the spread of every feature is estimated.
    memory, block, engine, progress
        As for :func:`headscape.geometry.streamed_emd.streamed_head_emd`.

    Returns
    -------
    SampledEMD

    Notes
    -----
    The kernel's work shrinks with the share; that of the fields does not. The estimate is symmetric and unbiased, and
    the triangle inequality holds: it is a weighted L1 distance.
    """
    require_number(share, "share", 1e-6, 1)
    require_integer(pilot, "pilot", 2, 1_000_000)
    engine = engine or LocalEngine()
    rng = np.random.default_rng(seed)
    sampled = SampledBlocks.drawn(blocks, share, rng, pilot)
    if block is None:
        block = blocks.plan(memory, engine).block
    tasks = sampled.tasks(block)
    n = len(blocks.capture.heads)
    sums = np.zeros((GROUPS + 1, n, n))
    for done, part in enumerate(engine.map(sampled.group_distances, tasks)):
        sums += part
        progress("EMD of head", done + 1, len(tasks))
    drawn = sums[1:]
    variance = GROUPS / (GROUPS - 1) * np.sum((drawn - drawn.mean(axis=0)) ** 2, axis=0)
    return SampledEMD(sums.sum(axis=0), np.sqrt(variance), len(sampled.inner_of) / sampled.n_features)


@dataclass(frozen=True, eq=False)
class SampledBlocks(HeadBlocks):
    """Blocks of which only some features are summed up.

    ``first`` tells for every outer folder, in the order of ``folders``, where its features begin; ``inner_of``,
    ``factor`` and ``group`` give for each its inner folder, weight over probability, and group (0: certain).
    """

    first: NDArray[np.int64]
    inner_of: NDArray[np.int64]
    factor: NDArray[np.float64]
    group: NDArray[np.int8]

    @property
    def n_features(self) -> int:
        """Number of all features."""
        return self.outer.n_folders * self.inner.n_folders

    @classmethod
    def drawn(cls, blocks: HeadBlocks, share: float, rng: np.random.Generator, pilot: int) -> Self:
        """Draw features by their spread over some heads."""
        spread, foremost = _spread(blocks, rng, pilot)
        probability = inclusion_probabilities(spread, share)
        # Systematic: one number decides, and every stretch of features gets as many draws as its probabilities sum to.
        order = np.lexsort((spread, foremost))
        ends = np.cumsum(probability[order]) + rng.random()
        chosen = order[np.floor(ends) > np.floor(ends - probability[order])]
        certain = probability >= 1.0
        chosen = np.union1d(chosen[~certain[chosen]], np.flatnonzero(certain))
        outer, inner = np.divmod(chosen, blocks.inner.n_folders)
        group = rng.permutation(np.arange(len(chosen)) % GROUPS).astype(np.int8) + np.int8(1)
        group[certain[chosen]] = 0
        return cls(
            **{item.name: getattr(blocks, item.name) for item in fields(HeadBlocks)},
            first=np.searchsorted(outer, np.arange(blocks.outer.n_folders + 1)).astype(np.int64),
            inner_of=inner.astype(np.int64),
            factor=blocks.inner_weight[inner] / probability[chosen],
            group=group,
        )

    def group_distances(self, task: range) -> NDArray[np.float64]:
        """Return what one block contributes to the sums of certain features and of every group."""
        begin, end = int(self.first[task.start]), int(self.first[task.stop])
        order = np.argsort(self.group[begin:end], kind="stable") + begin
        outer = np.searchsorted(self.first, order, side="right") - 1 - task.start
        inner = self.inner_of[order]
        start, stop = self.inner.folders.start, self.inner.folders.start + self.inner.folders.size
        n = len(self.capture.heads)
        features = np.empty((n, len(order)), dtype=self.dtype)
        for place, sums in enumerate(self.folder_rows(task)):
            below = np.zeros((len(sums), self.inner.n_points + 1))
            np.cumsum(sums, axis=1, out=below[:, 1:])
            features[place] = (below[outer, stop[inner]] - below[outer, start[inner]]) * self.factor[order]
        cuts = np.searchsorted(self.group[order], np.arange(GROUPS + 2))
        return np.stack(
            [
                l1_distances(np.ascontiguousarray(features[:, a:b])) if b > a else np.zeros((n, n))
                for a, b in pairwise(cuts)
            ]
        )


def inclusion_probabilities(spread: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return probabilities in proportion to the spread, at most 1, that sum to a share of the features.

    Examples
    --------
    >>> inclusion_probabilities(np.array([8.0, 1.0, 1.0, 0.0]), 0.5).round(3).tolist()
    [1.0, 0.474, 0.474, 0.053]
    """
    if not np.isfinite(spread).all() or spread.min() < 0:
        raise InputError("the spread of features must be finite and not negative.")
    size = spread + FLOOR * (float(spread.mean()) or 1.0)
    wanted = share * len(spread)
    if share >= 1.0:
        return np.ones(len(spread))
    probability: NDArray[np.float64] = wanted * size / size.sum()
    # Those beyond 1 are certain; the rest share what is left, which may push more beyond 1.
    certain = probability >= 1.0
    while certain.any() and not certain.all():
        rest = size[~certain]
        probability = np.where(certain, 1.0, (wanted - certain.sum()) * size / rest.sum())
        if not (probability[~certain] >= 1.0).any():
            break
        certain = probability >= 1.0
    return np.asarray(np.minimum(probability, 1.0))


def _spread(
    blocks: HeadBlocks, rng: np.random.Generator, pilot: int
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the standard deviation of every feature over some heads, and which of them deviates most.

    Outer folders come in the order of their begin.
    """
    heads = blocks.capture.heads
    chosen = rng.choice(len(heads), size=min(pilot, len(heads)), replace=False)
    few = blocks.of_heads([heads[i] for i in sorted(chosen)])
    inner = blocks.inner.n_folders
    spread = np.empty(blocks.outer.n_folders * inner)
    foremost = np.empty(len(spread), dtype=np.int32)
    step = max(1, min(blocks.outer.n_folders // 8, PILOT_BYTES // (8 * len(chosen) * inner)))
    for task in few.tasks(step):
        features, part = few.features(task), slice(task.start * inner, task.stop * inner)
        spread[part] = features.std(axis=0, dtype=np.float64)
        features -= np.median(features, axis=0)
        foremost[part] = np.abs(features).argmax(axis=0)
    return spread, foremost
