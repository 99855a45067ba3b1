"""The shape of a tree in a few numbers: how deep, how many folders, how even."""

import numpy as np

from headscape.geometry.partition_tree import PartitionTree


def tree_shape(tree: PartitionTree) -> dict[str, float]:
    """Return depth, folders, largest first folder and balance of a tree.

    Returns
    -------
    dict
        ``depth``: levels below the root. ``folders``: folders of several points, without the root. ``first_folders``:
        folders of the first level. ``largest_share``: share of the points in the largest of them. ``balance``: the
        entropy of the folder sizes against its largest value, mean over the levels between root and single points; 1 if
        all folders of a level are equal.

    Examples
    --------
    >>> shape = tree_shape(PartitionTree.from_levels([[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]]]))
    >>> shape["depth"], shape["folders"], shape["balance"]
    (2.0, 2.0, 1.0)
    """
    levels = tree.labels
    sizes = [np.unique(row, return_counts=True)[1] for row in levels]
    between = [row for row in sizes if 1 < len(row) < tree.n_points]
    first = next((row for row in sizes if len(row) > 1), sizes[-1])
    return {
        "depth": float(len(levels) - 1),
        "folders": float(sum((row > 1).sum() for row in between)),
        "first_folders": float(len(first)),
        "largest_share": float(first.max() / tree.n_points),
        "balance": float(np.mean([_evenness(row) for row in between])) if between else 1.0,
    }


def _evenness(sizes: "np.typing.NDArray[np.int64]") -> float:
    share = sizes / sizes.sum()
    return float(-(share * np.log(share)).sum() / np.log(len(sizes)))
