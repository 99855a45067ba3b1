"""Which heads can go when several query heads read the same keys and values.

An attention module pairs query head i with key-value head i // (heads per key-value head), so that after a
removal every key-value head that stays must be read by equally many query heads.
"""

from collections.abc import Sequence


def removable(asked: Sequence[int], n_heads: int, n_kv_heads: int) -> tuple[int, ...]:
    """Return the largest part of the heads asked for that one layer can lose.

    A group (the query heads of one key-value head) that is asked for whole goes whole; every other group
    loses the same number k of heads,

        k = min over the groups that stay of how many of their heads are asked for.

    Parameters
    ----------
    asked
        Heads of the layer, the most wanted first; of a group that cannot lose all, these go first.
    n_heads, n_kv_heads
        Of the layer. Equal numbers mean that no keys are shared: everything asked for can go.

    Returns
    -------
    tuple of int
        Heads out of ``asked``, in its order.

    Notes
    -----
    It is the largest: a whole group is more than the k heads it would lose otherwise, and keeping it would
    not raise k.

    Examples
    --------
    >>> removable([5, 0, 1, 4], n_heads=6, n_kv_heads=2)  # two of each group of three can go: 4 and 5, 0 and 1
    (5, 0, 1, 4)
    >>> removable([5, 0, 4], n_heads=6, n_kv_heads=2)  # one of each: 5 was asked for before 4
    (5, 0)
    >>> removable([0, 1, 2, 5], n_heads=6, n_kv_heads=2)
    (0, 1, 2, 5)
    """
    size = n_heads // n_kv_heads
    groups = [[head for head in asked if head // size == group] for group in range(n_kv_heads)]
    partial = [len(group) for group in groups if len(group) < size]
    k = min(partial, default=0)
    going = {head for group in groups for head in (group if len(group) == size else group[:k])}
    return tuple(head for head in asked if head in going)
