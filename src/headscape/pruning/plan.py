"""What every layer keeps: the most of the heads asked for that an attention module can lose.

An attention module pairs query head i with key-value head i // (heads per key-value head), so that after a
removal every key-value head that stays must be read by equally many query heads.
"""

from collections.abc import Sequence

from headscape.errors import InputError
from headscape.models.adapters.protocol import LayerHeads
from headscape.models.anatomy import AttentionModule, Heads, require_known_heads
from headscape.pruning.manifest import Pairs


def removable(asked: Sequence[int], n_heads: int, n_kv_heads: int) -> tuple[int, ...]:
    """Return the largest part of the heads asked for that one layer can lose.

    A group (the query heads of one key-value head) that is asked for whole goes whole; every other group
    loses the same number k of heads,

        k = min over the groups that stay of how many of their heads are asked for.

    Of a group that cannot lose all, the heads that come first in ``asked`` go. It is the largest part: a whole group
    is more than the k heads it would lose otherwise, and keeping it would not raise k.

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


def whole_layers(modules: Sequence[AttentionModule]) -> tuple[LayerHeads, ...]:
    """Return the layers of a stack with all their heads."""
    return tuple(
        LayerHeads(m.layer, m.name, m.n_heads, m.n_kv_heads, tuple(range(m.n_heads))) for m in modules
    )


def planned_cuts(heads: Heads, modules: Sequence[AttentionModule]) -> tuple[list[LayerHeads], Pairs]:
    """Return what every layer keeps, and the heads that were asked for but cannot go."""
    pairs = require_known_heads(heads, modules)
    if not pairs:
        raise InputError("heads must name at least one (layer, head) pair, but is empty.")
    if len(set(pairs)) < len(pairs):
        twice = sorted({pair for pair in pairs if pairs.count(pair) > 1})
        raise InputError(f"heads must name every head once, but has {listed(twice)} more than once.")
    cuts, held = [], []
    for module in modules:
        asked = [head for layer, head in pairs if layer == module.layer]
        if len(asked) == module.n_heads:
            raise InputError(
                f"a layer must keep at least one head, but all {module.n_heads} of layer {module.layer} are to go. "
                "Leave one of them out of heads."
            )
        going = removable(asked, module.n_heads, module.n_kv_heads)
        held += [(module.layer, head) for head in asked if head not in going]
        kept = tuple(head for head in range(module.n_heads) if head not in going)
        cuts.append(LayerHeads(module.layer, module.name, module.n_heads, module.n_kv_heads, kept))
    if not any(layer.removed for layer in cuts):
        first = next(module for module in modules if module.layer == pairs[0][0])
        raise InputError(
            f"none of the heads asked for can go: in layer {first.layer}, {first.n_heads} heads share "
            f"{first.n_kv_heads} key-value heads in groups of {first.n_heads // first.n_kv_heads} in a row, and a "
            "layer loses whole groups, or the same number of heads from every group. Ask for more heads."
        )
    return cuts, tuple(held)


def listed(pairs: Sequence[tuple[int, int]]) -> str:
    """Return the first few heads as text."""
    text = ", ".join(f"{layer}.{head}" for layer, head in pairs[:8])
    return text if len(pairs) <= 8 else f"{text} and {len(pairs) - 8} more"
