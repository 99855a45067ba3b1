"""Causal attention: which masks are meant to be causal, and where such a mask shows too much or too little."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from headscape.energy.judgement import Judgement
from headscape.tensor.attention_record import AttentionRecord


def looks_causal(visible: NDArray[np.bool_]) -> bool:
    """Tell whether a mask is meant to be causal: later keys are visible far less often than earlier ones.

    A mask that is off by one still looks causal, so that it can be judged; no mask at all, and a local window
    that reaches to both sides, do not.

    Parameters
    ----------
    visible : (..., query, key) bool
        Which keys each query sees. The last query belongs to the last key.

    Examples
    --------
    >>> [looks_causal(mask) for mask in (np.tri(40, dtype=bool), np.tri(40, k=1, dtype=bool), np.ones((40, 40), bool))]
    [True, True, False]
    """
    distance = _distance(visible)
    later, earlier = (int(np.sum(visible & side)) for side in (distance > 0, distance < 0))
    return 4 * later < earlier


def causal_stacks(records: Iterable[AttentionRecord]) -> frozenset[str]:
    """Return the stacks of self-attention in which most masks look causal."""
    votes: dict[str, list[bool]] = {}
    for record in records:
        if record.kind == "self":
            votes.setdefault(record.stack, []).append(looks_causal(record.visible))
    return frozenset(stack for stack, found in votes.items() if 2 * sum(found) > len(found))


def judge_causality(
    visible: NDArray[np.bool_], layer: int, head: int, *, causal: bool, stack: str = "self"
) -> Judgement:
    """Test that no query sees a later key; not judged where attention is not causal.

    Parameters
    ----------
    visible : (query, key) bool
    layer, head, stack
        Where.
    causal
        Whether later keys must be hidden.

    Examples
    --------
    >>> judge_causality(np.tri(4, k=1, dtype=bool), 0, 0, causal=True).detail
    '3 of 4 queries see later keys, such as query 0 key 1'
    >>> judge_causality(np.ones((4, 4), bool), 0, 0, causal=False).detail
    'no mask: every query sees every key'
    """
    test = "causality"
    if not causal:
        why = "no mask: every query sees every key" if visible.all() else "attention is not causal"
        return Judgement.not_judged(test, layer, head, why, stack)
    seen = visible & (_distance(visible) > 0)
    queries = int(seen.any(axis=1).sum())
    query, key = np.unravel_index(int(seen.argmax()), seen.shape)
    detail = f"{queries} of {len(seen)} queries see later keys, such as query {query} key {key}"
    return Judgement.measured(test, layer, head, float(seen.sum()), 0.0, detail, stack)


def judge_own_key(visible: NDArray[np.bool_], layer: int, head: int, stack: str = "self") -> Judgement:
    """Test that every query of causal attention sees the key of its own token.

    Examples
    --------
    >>> judge_own_key(np.tri(4, k=-1, dtype=bool), 0, 0).detail
    '4 of 4 queries do not see their own key: the mask hides too much'
    """
    hidden = int(np.sum(~visible & (_distance(visible) == 0)))
    detail = f"{hidden} of {len(visible)} queries do not see their own key: the mask hides too much"
    return Judgement.measured("own key", layer, head, float(hidden), 0.0, detail, stack)


def _distance(visible: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return how far each key lies after each query; the last query belongs to the last key."""
    n_queries, n_keys = visible.shape[-2:]
    return np.arange(n_keys) - np.arange(n_keys - n_queries, n_keys)[:, None]
