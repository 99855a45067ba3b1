"""The flexible tree: folders of any number of children, joined bottom-up (OA Algorithm 1, arXiv 2506.15541)."""

import heapq

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from headscape.errors import InputError
from headscape.geometry.diffusion import FLAT_EIGENVALUE, Eigenpairs, markov_eigenpairs
from headscape.geometry.median import median
from headscape.geometry.partition_tree import PartitionTree
from headscape.notices import TREE_CLOSED, Notice

# Points nearer than this share of the largest distance are duplicates; all distances within it are ties.
_EQUAL = 1e-9
# At t = 2^64 only the slowest coordinates are left, so more levels cannot show anything new.
_MAX_LEVELS = 64
_EQUALLY_FAR = "all points are equally far apart, so the tree has no groups"
_ONE_PLACE = "all points coincide in the random walk, so the tree has no groups"


def flexible_tree(
    affinity: NDArray[np.float64],
    *,
    tree_constant: float = 1.0,
    n_eigs: int = 12,
    eigenpairs: Eigenpairs | None = None,
) -> tuple[PartitionTree, list[Notice]]:
    """Grow a tree from the points up, level by level, with diffusion time t = 1, 2, 4, ...

    At each level the current folders are grouped greedily by the mean diffusion distance of their points,

        d_t(x, y) = | ((lambda_i / lambda_1)^t (psi_i(x) - psi_i(y)))_i |

    and the groups are the folders of the next level. Points at (nearly) the same place stay together.

    Parameters
    ----------
    affinity : (n, n) array
    tree_constant
        Larger values make folders smaller and the tree deeper.
    n_eigs
        Number of eigenpairs, the trivial one included.
    eigenpairs
        Those of the affinity, if they are known already.

    Returns
    -------
    tree, warnings
        If nothing more can be told apart (equal points, ties, no geometry), a root closes the tree over what
        remains and a warning says so.

    Notes
    -----
    O(n^2 log n) per level, about log n levels.
    """
    if not tree_constant > 0:
        raise InputError(f"tree_constant must be positive, but is {tree_constant}.")
    n = len(affinity)
    pairs = eigenpairs or markov_eigenpairs(affinity, n_eigs)
    partitions = [np.arange(n)]
    values = pairs.values[1:]
    closed = _EQUALLY_FAR if n > 2 and _is_flat(affinity, values) else ""
    if n > 2 and not closed:
        closed = _grow(partitions, values / values.max(), pairs.vectors[:, 1:], tree_constant)
    if n > 1 and partitions[-1].max() > 0:
        partitions.append(np.zeros(n, dtype=np.int64))
    tree = PartitionTree(np.stack(partitions[::-1]))
    return tree, [Notice(TREE_CLOSED, closed)] if closed else []


def _is_flat(affinity: NDArray[np.float64], values: NDArray[np.float64]) -> bool:
    """Tell whether all points are equal or equally far apart: then every choice of eigenvectors is arbitrary."""
    apart = affinity[~np.eye(len(affinity), dtype=bool)]
    return bool(values.max() <= FLAT_EIGENVALUE or apart.max() - apart.min() <= _EQUAL * apart.max())


def _grow(
    partitions: list[NDArray[np.int64]],
    ratios: NDArray[np.float64],
    psi: NDArray[np.float64],
    tree_constant: float,
) -> str:
    """Append coarser and coarser partitions; return why it stopped early, or nothing if it reached the root."""
    folders = partitions[0]
    time = 1.0
    for level in range(_MAX_LEVELS):
        coordinates = psi * ratios**time
        points = cdist(coordinates, coordinates)
        largest = points.max()
        if largest == 0:
            return _ONE_PLACE
        if level == 0:
            equal = points <= _EQUAL * largest
            if np.count_nonzero(equal) > len(points):
                folders = connected_components(equal, directed=False)[1].astype(np.int64)
        m = int(folders.max()) + 1
        if m == 1:
            return _ONE_PLACE
        distance = _folder_distances(points, folders, m)
        apart = distance[~np.eye(m, dtype=bool)]
        if m > 2 and apart.max() - apart.min() <= _EQUAL * apart.max():
            return f"the last {m} folders are equally far apart, so the root joins them all at once"
        groups = _group(distance, tree_constant)
        folders = groups[folders]
        partitions.append(folders)
        if folders.max() == 0:
            return ""
        time *= 2.0
    return f"{int(folders.max()) + 1} folders were left after {_MAX_LEVELS} levels, so the root joins them all at once"


def _folder_distances(points: NDArray[np.float64], folders: NDArray[np.int64], m: int) -> NDArray[np.float64]:
    """Average the distances of points over both folders."""
    if m == len(folders):
        return points[np.ix_(np.argsort(folders), np.argsort(folders))]  # single points: nothing to average
    member = np.zeros((m, len(folders)))
    member[folders, np.arange(len(folders))] = 1.0
    member /= member.sum(axis=1, keepdims=True)
    distance = member @ points @ member.T
    return 0.5 * (distance + distance.T)


def _group(distance: NDArray[np.float64], tree_constant: float) -> NDArray[np.int64]:
    """Group folders greedily, nearest first; return the group of each folder.

    A single folder joins another single one at once; it joins a group of s members only if it is nearer than
    (median / tree_constant) 2^(1 - s). Once a pair has joined, folders farther than the median stay single.
    """
    m = len(distance)
    far = distance.copy()
    np.fill_diagonal(far, np.inf)
    middle = median(far)
    nearest = _sorted_rows(far)[:, : m - 1]
    tried = np.zeros(m, dtype=np.int64)
    group = np.full(m, -1)
    size: list[int] = []
    queue = [(float(far[i, nearest[i, 0]]), i) for i in range(m)]
    heapq.heapify(queue)
    while queue:
        gap, i = heapq.heappop(queue)
        if group[i] >= 0:
            continue
        if gap >= middle and size:
            break
        candidate = nearest[i, tried[i]]
        if group[candidate] < 0:
            group[i] = group[candidate] = len(size)
            size.append(2)
        elif gap < middle / tree_constant * 2.0 ** (1 - size[group[candidate]]):
            group[i] = group[candidate]
            size[group[i]] += 1
        else:
            tried[i] += 1
            if tried[i] < m - 1:
                heapq.heappush(queue, (float(far[i, nearest[i, tried[i]]]), i))
    single = group < 0
    group[single] = len(size) + np.arange(single.sum())
    return group


def _sorted_rows(x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the columns of every row by value, the first of equal ones first."""
    # A stable sort takes three times as long, and is needed only where values are equal.
    columns = np.argsort(x, axis=1)
    values = np.take_along_axis(x, columns, axis=1)
    if (values[:, 1:] == values[:, :-1]).any():
        return np.argsort(x, axis=1, kind="stable")
    return columns
