"""One way to all kinds of trees: the points in an order that breaks ties, the builder by its name."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.builders.binary import binary_tree
from headscape.geometry.builders.flexible import flexible_tree
from headscape.geometry.builders.linkage import linkage_tree
from headscape.geometry.diffusion import Eigenpairs, markov_eigenpairs
from headscape.geometry.partition_tree import IntArray, PartitionTree
from headscape.notices import Notice

TreeKind = Literal["flexible", "binary", "linkage"]
TREE_KINDS: tuple[str, ...] = get_args(TreeKind)


def grown_tree(
    affinity: NDArray[np.float64],
    distance: NDArray[np.float64],
    order: IntArray,
    *,
    kind: TreeKind = "flexible",
    tree_constant: float = 1.0,
    n_eigs: int = 12,
) -> tuple[PartitionTree, Eigenpairs, list[Notice]]:
    """Return tree and eigenpairs of an affinity, and what the builder has to say about the tree.

    Parameters
    ----------
    affinity, distance : (n, n) arrays
        The distance behind the affinity; only the linkage tree reads it.
    order : (n,) integers
        The points in the order in which the builder sees them: it breaks ties.
    kind
        "flexible", "binary", or "linkage", whose levels have as many folders as those of the flexible tree.
    tree_constant, n_eigs
        As in :class:`headscape.Questionnaire`.
    """
    arranged = affinity[np.ix_(order, order)]
    pairs = markov_eigenpairs(arranged, n_eigs)
    if kind == "binary":
        tree, found = binary_tree(arranged)
    else:
        tree, found = flexible_tree(arranged, tree_constant=tree_constant, eigenpairs=pairs)
    if kind == "linkage":
        tree = linkage_tree(distance[np.ix_(order, order)], folder_counts(tree))
    back = np.argsort(order)
    return PartitionTree(tree.labels[:, back]), Eigenpairs(pairs.values, pairs.vectors[back]), found


def folder_counts(tree: PartitionTree) -> list[int]:
    """Return the number of folders of every level, the root's first.

    Examples
    --------
    >>> folder_counts(PartitionTree.from_levels([[[0, 1, 2]], [[2], [0, 1]], [[2], [0], [1]]]))
    [1, 2, 3]
    """
    return [int(row.max()) + 1 for row in tree.labels]
