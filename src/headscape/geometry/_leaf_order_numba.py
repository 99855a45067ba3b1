"""The optimal leaf order, compiled: to the same bits as :func:`headscape.geometry.leaf_order.optimal_leaf_order`."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def write_leaf_order(joints, distance, equal, order):  # type: ignore[no-untyped-def]
    """Write the leaves of a binary tree from one end of the shortest path to the other.

    ``joints`` (n - 1, 2) and ``distance`` (n, n) are those of the function above; lengths that agree to the relative
    precision ``equal`` are equal.
    """
    n = len(joints) + 1
    cuts, leaves = _cuts(joints, n)
    d = np.empty_like(distance)
    for i in range(n):
        for j in range(n):
            d[i, j] = distance[leaves[i], leaves[j]]
    best = np.zeros_like(d)
    crossed = np.empty_like(d)
    for joint in range(n - 1):
        left, right = cuts[joints[joint, 0]], cuts[joints[joint, 1]]
        a, b, c = left[0], right[0], right[2]
        for near, stop, far, end in _halves(left):
            _shortest(best[near:stop, far:end], d[far:end, b:c], crossed[near - a : stop - a])
        for near, stop, far, end in _halves(right):
            _shortest(crossed[: b - a, near - b : stop - b], best[near:stop, far:end], best[a:b, far:end])
        best[b:c, a:b] = best[a:b, b:c].T
    _follow(joints, cuts, d, best, equal, order)
    for place in range(n):
        order[place] = leaves[order[place]]


@njit(nogil=True, cache=True)
def _cuts(joints, n):  # type: ignore[no-untyped-def]
    """Return where every part begins, where its halves meet (a leaf: where it stops) and where it stops; the leaves."""
    size = np.ones(2 * n - 1, np.int64)
    for i in range(n - 1):
        size[n + i] = size[joints[i, 0]] + size[joints[i, 1]]
    cuts = np.zeros((2 * n - 1, 3), np.int64)
    for i in range(n - 2, -1, -1):
        left, right = joints[i]
        cuts[left, 0] = cuts[n + i, 0]
        cuts[right, 0] = cuts[n + i, 1] = cuts[n + i, 0] + size[left]
    leaves = np.empty(n, np.int64)
    for part in range(2 * n - 1):
        cuts[part, 2] = cuts[part, 0] + size[part]
        if part < n:
            cuts[part, 1] = cuts[part, 2]
            leaves[cuts[part, 0]] = part
    return cuts, leaves


@njit(nogil=True, cache=True)
def _halves(cut):  # type: ignore[no-untyped-def]
    """Return (one half, the other half) and the reverse, each from and to; a leaf is both."""
    start, middle, stop = cut
    if middle == stop:
        return [(start, stop, start, stop)]
    return [(start, middle, middle, stop), (middle, stop, start, middle)]


@njit(nogil=True, cache=True)
def _shortest(a, b, out):  # type: ignore[no-untyped-def]
    """Write the min-plus product, min over m of a[i, m] + b[m, j]."""
    for i in range(len(a)):
        for j in range(b.shape[1]):
            out[i, j] = a[i, 0] + b[0, j]
        for m in range(1, len(b)):
            first = a[i, m]
            for j in range(b.shape[1]):
                other = first + b[m, j]
                out[i, j] = other if other < out[i, j] else out[i, j]


@njit(nogil=True, cache=True)
def _follow(joints, cuts, d, best, equal, path):  # type: ignore[no-untyped-def]
    """Follow the shortest path from the root down: split every joint between known ends where it crosses over."""
    n = len(joints) + 1
    stack = np.empty((2 * n, 3), np.int64)  # a part, and the two ends of the path through it
    left, right = cuts[joints[n - 2, 0]], cuts[joints[n - 2, 1]]
    u, w = _first_smallest(best[left[0] : left[2], right[0] : right[2]], equal)
    stack[0] = 2 * n - 2, left[0] + u, right[0] + w
    depth, place = 1, 0
    crossing = np.empty_like(d)
    while depth:
        depth -= 1
        part, u, w = stack[depth]
        if u == w:
            path[place] = u
            place += 1
            continue
        first, second = joints[part - n]
        if u > w:
            first, second = second, first
        near, end = _other_half(cuts[first], u)
        far, stop = _other_half(cuts[second], w)
        cost = crossing[: end - near, : stop - far]
        for m in range(near, end):
            for k in range(far, stop):
                cost[m - near, k - far] = best[u, m] + d[m, k] + best[k, w]
        m, k = _first_smallest(cost, equal)
        stack[depth] = second, far + k, w
        stack[depth + 1] = first, u, near + m
        depth += 2


@njit(nogil=True, cache=True)
def _other_half(cut, end):  # type: ignore[no-untyped-def]
    """Return the half of a part that the given end is not in; of a leaf, the leaf."""
    start, middle, stop = cut
    if middle == stop:
        return start, stop
    return (middle, stop) if end < middle else (start, middle)


@njit(nogil=True, cache=True)
def _first_smallest(cost, equal):  # type: ignore[no-untyped-def]
    """Return the place of the smallest entry, the first of equal ones."""
    bound = cost.min() * (1 + equal)
    for i in range(cost.shape[0]):
        for j in range(cost.shape[1]):
            if cost[i, j] <= bound:
                return i, j
    return 0, 0
