"""The paraproduct: one pass over the levels against the evaluation pair by pair that rebuilds its averages."""

from functools import partial

import numpy as np

from benchmarks.bench_stages import captured
from benchmarks.harness import Measure, Row, compare, timed
from headscape.analysis.dyadic_trees import dyadic_trees
from headscape.analysis.log_softmax import log_softmax
from headscape.analysis.paraproduct import paraproduct
from headscape.engine import LocalEngine
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Questionnaire
from headscape.study.stages import stage_named, stage_options
from headscape.study.stages.context import Context
from headscape.tensor.synthetic import planted_tensor

PAIRS = "pair by pair: four averages per pair by numpy reduceat, terms at full size, same results"
SUM_ONLY = "pair by pair as above, but only the sum: no sizes and no residuals per pair of levels"


def rows() -> list[Row | Measure]:
    return [*full_trees(), *flexible_trees(), *experiment()]


def full_trees() -> list[Row]:
    """Compare on full dyadic trees of growing size."""
    found = []
    for n in (256, 512, 1024):
        f, grid = np.random.default_rng(0).normal(size=(n, n)), dyadic_trees((n, n))
        name = f"paraproduct, {n} x {n}, full dyadic trees"
        ours = partial(paraproduct, f, grid)
        wanted = ">= 20x" if n == 1024 else ""
        found.append(compare(name, ours, partial(pair_by_pair, f, grid), PAIRS, wanted=wanted))
        if n == 1024:
            found.append(compare(name, ours, partial(pair_by_pair, f, grid, sizes=False), SUM_ONLY))
    return found


def flexible_trees() -> list[Row]:
    """Compare on trees as heads have them."""
    head = 3 * planted_tensor(256, 256, 1, 1, groups=1).data[:, :, 0].astype(np.float64)
    flexible = Questionnaire(n_iter=1, alpha=1.0, beta=0.0).fit(head).trees_
    return [
        compare(
            "paraproduct, 256 x 256, flexible trees",
            lambda: paraproduct(head, flexible),
            lambda: pair_by_pair(head, flexible),
            PAIRS,
        )
    ]


def experiment() -> list[Measure]:
    """Time the stage "softmax" on one layer, every head of which is organized for itself."""
    found = []
    for length in (64, 128, 256):
        context = Context(
            captured(1, 9, length), {"field": "probs", "seed": 0}, stage_options({}), engine=LocalEngine()
        )
        name = f"softmax experiment of 9 heads, {length} tokens"
        found.append(timed(name, partial(stage_named("softmax").measure, context, 0), repeats=1))
    return found


def pair_by_pair(
    f: np.ndarray, trees: dict[str, PartitionTree], sizes: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum over all pairs of levels and the sizes of its parts, each pair for itself."""
    query, key = trees["query"], trees["key"]
    inside = np.ix_(query.order, key.order)
    g = log_softmax(f)[inside]
    starts, counts = [], []
    for tree in (query, key):
        labels = tree.labels[:, tree.order]
        starts.append([np.unique(row, return_index=True)[1] for row in labels])
        counts.append([np.bincount(row) for row in labels])

    def average(j: int, k: int) -> np.ndarray:
        sums = np.add.reduceat(np.add.reduceat(g, starts[1][k], axis=1), starts[0][j], axis=0)
        means = sums / np.outer(counts[0][j], counts[1][k])
        return np.repeat(np.repeat(means, counts[0][j], axis=0), counts[1][k], axis=1)

    total = np.zeros_like(g)
    found = np.zeros((4, query.depth - 1, key.depth - 1))
    for j in range(query.depth - 1):
        for k in range(key.depth - 1):
            p, down, beside, across = (
                average(j, k),
                average(j + 1, k),
                average(j, k + 1),
                average(j + 1, k + 1),
            )
            slope = np.exp(p)
            first = slope * (across - beside - down + p)
            second = slope * (down - p) * (beside - p)
            both = first + second
            total += both
            if sizes:
                left = np.exp(across) - np.exp(beside) - np.exp(down) + slope - both
                found[:, j, k] = [np.sqrt(np.mean(x * x)) for x in (first, second, both, left)]
    result = np.empty_like(total)
    result[inside] = total
    return result, found
