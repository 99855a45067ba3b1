"""Haar entropies: against outer products over the same wavelets, against touching the tensor once, and memory."""

import tracemalloc

import numpy as np

from benchmarks.harness import Measure, Row, compare
from headscape.analysis.entropy import head_entropy, network_entropy
from headscape.analysis.haar import haar_basis, tensor_haar
from headscape.analysis.supports import top_supports
from headscape.analysis.wavelets import wavelets
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.questionnaire import Questionnaire
from headscape.tensor.synthetic import planted_tensor

SHAPE = "256 x 256 x 128 float32"
OUTER = "loop over the same tensor wavelets: np.outer, BLAS product with all heads"
COPY = "one copy of the tensor and one addition in place"
DENSE = "dense orthonormal bases through BLAS"


def rows() -> list[Row | Measure]:
    return [*entropies(64, 4, 9), *entropies(128, 10, 9), *entropies(256, 16, 8), *whole()]


def entropies(length: int, layers: int, heads: int) -> list[Row]:
    """Compare the entropies of all heads with the definition and with touching the tensor once."""
    x, trees = organized(length, layers, heads)
    pair = {axis: trees[axis] for axis in ("query", "key")}
    name = f"entropies of all heads, k = 400, {length} x {length} x {layers * heads} float32"
    largest = length == 256
    return [
        compare(
            name,
            lambda: head_entropy(x, trees),
            lambda: outer_products(x, pair, 400),
            OUTER,
            wanted=">= 50x" if largest else "",
        ),
        compare(
            name,
            lambda: head_entropy(x, trees),
            lambda: copy_and_add(x),
            COPY,
            wanted=">= 0.17x" if largest else "",
        ),
    ]


def whole() -> list[Row | Measure]:
    """Compare what else is computed from Haar coefficients, at the largest size."""
    x, trees = organized(256, 16, 8)
    pair = {axis: trees[axis] for axis in ("query", "key")}
    bases = {axis: haar_basis(tree).astype(np.float32) for axis, tree in pair.items()}
    return [
        compare(
            f"network entropy, k = 100, {SHAPE}",
            lambda: network_entropy(x, trees),
            lambda: copy_and_add(x),
            COPY,
        ),
        compare(
            f"bi-Haar transform of all heads, {SHAPE}",
            lambda: tensor_haar(x, pair),
            lambda: dense_transform(x, bases),
            DENSE,
        ),
        Measure(
            f"peak memory of head_entropy beside the tensor, {SHAPE}",
            peak_share(x, trees),
            "x",
            "in sizes of the tensor; wanted: tensor included < 2",
        ),
    ]


def organized(length: int, layers: int, heads: int) -> tuple[np.ndarray, dict[str, PartitionTree]]:
    """Return a planted tensor and its trees."""
    x = planted_tensor(length, length, layers, heads, noise=0.5).data
    return x, Questionnaire(n_iter=1).fit(x).trees_


def outer_products(x: np.ndarray, trees: dict[str, PartitionTree], k: int) -> np.ndarray:
    """Do it by the definition, but with one BLAS product for all heads."""
    query, key = (haar_basis(tree).astype(np.float32) for tree in trees.values())
    supports = np.multiply.outer(*(wavelets(tree).support for tree in trees.values()))
    heads = x.reshape(-1, x.shape[2])
    total = np.zeros(x.shape[2])
    for i, j in np.argwhere(supports >= top_supports(trees, k).cut):
        total += np.abs(np.outer(query[:, i], key[:, j]).ravel() @ heads)
    return total


def copy_and_add(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y += x
    return y


def dense_transform(x: np.ndarray, bases: dict[str, np.ndarray]) -> np.ndarray:
    for place, basis in enumerate(bases.values()):
        x = np.moveaxis(np.tensordot(basis, x, axes=(0, place)), 0, place)
    return x


def peak_share(x: np.ndarray, trees: dict[str, PartitionTree]) -> float:
    tracemalloc.start()
    head_entropy(x, trees)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / x.nbytes
