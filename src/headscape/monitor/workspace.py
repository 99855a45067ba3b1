"""How much memory the monitor may use at a time, and how heads and tokens are cut so that it is enough."""

from __future__ import annotations

from collections.abc import Iterator

WORKSPACE = 1 << 24
"""Bytes of all that is made of the queries and keys of the sampled rows at a time: 16 MiB."""


def at_once(size: int) -> int:
    """Return how many things of some bytes fit into the workspace, at least one."""
    return max(1, WORKSPACE // size)


def head_slices(n_heads: int, group: int, at_most: int) -> Iterator[slice]:
    """Yield consecutive heads, at most so many at a time, that read whole groups of keys or a part of one group.

    Parameters
    ----------
    n_heads, group
        Query heads, and how many of them share a key-value head.
    at_most
        Heads at a time.

    Examples
    --------
    >>> [(part.start, part.stop) for part in head_slices(8, 4, 7)]
    [(0, 4), (4, 8)]
    >>> [(part.start, part.stop) for part in head_slices(8, 4, 3)]
    [(0, 2), (2, 4), (4, 6), (6, 8)]
    """
    divisors = (n for n in range(min(group, at_most), 0, -1) if group % n == 0)
    size = at_most // group * group or next(divisors)
    for start in range(0, n_heads, size):
        yield slice(start, min(start + size, n_heads))


def token_slices(n_tokens: int, at_most: int) -> Iterator[slice]:
    """Yield consecutive tokens, at most so many at a time.

    Examples
    --------
    >>> [(part.start, part.stop) for part in token_slices(5, 3)]
    [(0, 3), (3, 5)]
    """
    for start in range(0, n_tokens, at_most):
        yield slice(start, min(start + at_most, n_tokens))
