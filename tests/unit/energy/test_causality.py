"""Which masks look causal, and what a causal mask that shows too much or too little is told."""

import numpy as np
import pytest

from headscape.energy.causality import causal_stacks, judge_causality, judge_own_key, looks_causal
from headscape.energy.judgement import Status
from headscape.tensor.attention_record import AttentionRecord

N = 32
CAUSAL = np.tri(N, dtype=bool)
LOCAL = np.abs(np.subtract.outer(np.arange(N), np.arange(N))) < 4


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (CAUSAL, True),
        (CAUSAL & LOCAL, True),
        (np.tri(N, k=1, dtype=bool), True),
        (np.tri(N, k=-1, dtype=bool), True),
        (CAUSAL[20:], True),
        (LOCAL, False),
        (np.ones((N, N), bool), False),
        (CAUSAL.T, False),
        (np.ones((1, 1), bool), False),
    ],
)
def test_a_mask_looks_causal_if_later_keys_are_hidden(visible, expected):
    assert looks_causal(visible) is expected


def test_the_last_query_belongs_to_the_last_key():
    late = CAUSAL[20:]
    assert judge_causality(late, 0, 0, causal=True).status == Status.passed
    assert judge_own_key(late, 0, 0).status == Status.passed
    assert judge_causality(late[:, :-1], 0, 0, causal=True).value == 11
    assert judge_own_key(late[:-1], 0, 0).value == 11


def test_each_fault_is_counted_once():
    ahead, behind = np.tri(N, k=2, dtype=bool), np.tri(N, k=-1, dtype=bool)
    assert judge_causality(ahead, 0, 0, causal=True).value == (N - 1) + (N - 2)
    assert judge_own_key(ahead, 0, 0).status == Status.passed
    assert judge_causality(behind, 0, 0, causal=True).status == Status.passed
    assert judge_own_key(behind, 0, 0).value == N


def test_stacks_are_judged_apart_and_cross_attention_has_no_vote():
    x = np.zeros((1, N, 2), np.float32)

    def record(stack, visible, kind="self"):
        return AttentionRecord(0, x, x, 1.0, visible, stack=stack, kind=kind)

    full = np.ones((N, N), bool)
    records = [record("encoder", full), record("decoder", CAUSAL), record("decoder", CAUSAL)]
    records += [record("decoder", full), record("cross", CAUSAL, "cross")]
    assert causal_stacks(records) == {"decoder"}
