"""The geometry: L1 kernel, questionnaire, memory, growth with length, heads and folders."""

import time
from functools import partial

import numpy as np
from scipy.cluster.hierarchy import average, optimal_leaf_ordering
from scipy.spatial.distance import pdist, squareform

from benchmarks.harness import Measure, Row, compare, peak_memory, timed
from benchmarks.speedup import causal
from headscape.engine import LocalEngine
from headscape.geometry import slices as slices_module
from headscape.geometry.l1_kernel import compiled_kernel, l1_distances
from headscape.geometry.leaf_order import optimal_leaf_order
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Questionnaire
from headscape.geometry.tree_emd import tree_emd
from headscape.tensor.network_tensor import axis_names
from headscape.tensor.synthetic import planted_tensor

PDIST = 'scipy pdist "cityblock", one thread'
DENSE = "dense averaging matrices (BLAS) + scipy pdist + the same trees"


def rows() -> list[Row | Measure]:
    table: list[Row | Measure] = [
        *kernel(),
        *leaf_order(),
        *growth(),
        *long_axes(),
        *memory(),
    ]
    return table


def kernel() -> list[Row]:
    x = np.random.default_rng(0).random((256, 100_000), dtype=np.float32)
    compiled_kernel()
    halves = np.array_split(x, 2, axis=1)
    two = LocalEngine(threads=2)
    return [
        compare(
            "L1 kernel, 256 x 100,000 float32, 1 thread",
            lambda: l1_distances(x, small=False),
            lambda: pdist(x, "cityblock"),
            PDIST,
            wanted=">= 4x",
        ),
        compare(
            "L1 kernel, 256 x 100,000 float32, 2 threads",
            lambda: sum(two.map(lambda part: l1_distances(part, small=False), halves)),
            lambda: pdist(x, "cityblock"),
            PDIST,
        ),
    ]


def leaf_order() -> list[Row]:
    """Compare with scipy's function, which prunes its search but misses the optimum (scipy issue 11227)."""
    found = []
    for n in (256, 1024):
        points = np.random.default_rng(0).random((n, 3))
        condensed = pdist(points, "cityblock")
        linkage, distance = average(condensed), squareform(condensed)
        joints = linkage[:, :2].astype(np.int64)
        found.append(
            compare(
                f"optimal leaf order, {n} leaves",
                lambda joints=joints, distance=distance: optimal_leaf_order(joints, distance),
                lambda linkage=linkage, condensed=condensed: optimal_leaf_ordering(linkage, condensed),
                "scipy optimal_leaf_ordering (not optimal)",
                wanted=">= 1x",
            )
        )
    return found


def questionnaire() -> list[Row | Measure]:
    found: list[Row | Measure] = []
    for queries, keys, layers, heads in ((64, 64, 4, 9), (128, 128, 12, 12), (256, 256, 16, 8)):
        x = planted_tensor(queries, keys, layers, heads, noise=0.5).data
        fit = Questionnaire(n_iter=3).fit
        found.append(
            compare(
                f"questionnaire, 3 iterations, {queries} x {keys} x {layers * heads}",
                lambda fit=fit, x=x: fit(x),
                lambda x=x: baseline_questionnaire(x),
                DENSE,
                wanted=">= 5x",
            )
        )
    x = causal(planted_tensor(256, 256, 30, 9, noise=0.5).data)
    fit = Questionnaire(n_iter=3).fit
    found.append(
        compare(
            "questionnaire, 3 iterations, 256 x 256 x 270, causal",
            lambda: fit(x),
            lambda: baseline_questionnaire(x),
            DENSE,
            wanted=">= 50x",
        )
    )
    return found


def dense_emd(
    x: np.ndarray, trees: dict[str, PartitionTree], axis: str, alpha: float, beta: float, **_: object
) -> np.ndarray:
    """Do it as the best simple code a user would write: averaging matrices through BLAS, then scipy's pdist."""
    names = axis_names(x.ndim)
    for place, name in enumerate(names):
        if name == axis:
            continue
        tree = trees[name]
        folders = tree.folders
        average = np.zeros((tree.n_folders, tree.n_points), dtype=x.dtype)
        weight = tree.weights(alpha, beta) / folders.size
        for i in range(tree.n_folders):
            average[i, tree.folder(i)] = weight[i]
        x = np.moveaxis(np.tensordot(average, x, axes=(1, place)), 0, place)
    features = np.moveaxis(x, names.index(axis), 0)
    return squareform(pdist(features.reshape(len(features), -1), "cityblock"))


def baseline_questionnaire(x: np.ndarray) -> Questionnaire:
    ours = slices_module.tree_emd, slices_module.ArraySlices.prepare
    # What our EMDs have prepared for them would be in its way.
    slices_module.tree_emd, slices_module.ArraySlices.prepare = dense_emd, lambda *_: None
    try:
        return Questionnaire(n_iter=3).fit(x)
    finally:
        slices_module.tree_emd, slices_module.ArraySlices.prepare = ours


def growth() -> list[Measure]:
    """How the time of one iteration grows with length and heads, and of one EMD with folders."""
    found = []
    shapes = [(64, 64, 64), (128, 128, 64), (256, 256, 64), (512, 512, 64), (256, 256, 16), (256, 256, 256)]
    for q, k, h in shapes:
        x = planted_tensor(q, k, 1, h, noise=0.5).data
        found.append(timed(f"one iteration, {q} x {k} x {h}", partial(Questionnaire(n_iter=1).fit, x)))
    x = planted_tensor(256, 256, 8, 16, noise=0.5).data
    for constant in (0.5, 1.0, 4.0):
        trees = Questionnaire(n_iter=1, tree_constant=constant).fit(x).trees_
        folders = trees["query"].n_folders * trees["key"].n_folders
        name = f"EMD of 128 heads, {folders} products of folders"
        found.append(timed(name, partial(tree_emd, x, trees, "head")))
    return found


def long_axes() -> list[Measure]:
    """Measure what long axes cost beyond their EMDs: all else together must not take longer than these."""
    spent = [0.0]

    def timed(*arguments: object, **options: object) -> np.ndarray:
        start = time.perf_counter()
        found = tree_emd(*arguments, **options)
        spent[0] += time.perf_counter() - start
        return found

    slices_module.tree_emd = timed
    try:
        start = time.perf_counter()
        Questionnaire(n_iter=3).fit(planted_tensor(2048, 2048, layers=2, heads_per_layer=4).data)
        total = time.perf_counter() - start
    finally:
        slices_module.tree_emd = tree_emd
    return [
        Measure("2048 x 2048 x 8, 3 iterations", total, "s"),
        Measure("the same, in times of its EMDs", total / spent[0], "x", "wanted: < 2"),
    ]


def memory() -> list[Measure]:
    code = (
        "from headscape.geometry.questionnaire import Questionnaire\n"
        "from headscape.tensor.synthetic import planted_tensor\n"
        "Questionnaire(n_iter=1).fit(planted_tensor(256, 256, 16, 8).data)"
    )
    return [
        Measure("peak memory of the process, 256 x 256 x 128", peak_memory(code), "MiB", "wanted: < 1024")
    ]
