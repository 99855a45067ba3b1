"""What is left of softmax when the field keeps few components."""

import numpy as np
import pytest

from headscape.energy.low_rank import energy_components, low_rank_softmax
from headscape.errors import InputError


@pytest.fixture
def head():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 8)), rng.normal(size=(60, 8)) * np.logspace(0, -2, 8)


def test_all_components_move_nothing_and_none_is_the_uniform_distribution(head):
    moved = low_rank_softmax(*head, 0.5, [0, 8])
    assert moved.divergence[1].max() < 1e-12
    logits = 0.5 * head[0] @ head[1].T
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved.divergence[0], (p * np.log(p * 60)).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(moved.variance, [0, 1], atol=1e-12)


def test_more_components_move_softmax_less(head):
    means = low_rank_softmax(*head, 0.5, range(9)).divergence.mean(axis=1)
    assert (np.diff(means) < 1e-12).all()
    assert means[4] < means[0] / 10


def test_only_visible_keys_count(head):
    visible = np.tri(60, dtype=bool)
    visible[0] = False
    moved = low_rank_softmax(*head, 0.5, [2], visible)
    assert np.isnan(moved.divergence[0, 0])
    assert moved.divergence[0, 1] == pytest.approx(
        low_rank_softmax(head[0], head[1], 0.5, [2], np.arange(60)[None] < np.full((60, 1), 2)).divergence[
            0, 1
        ]
    )


def test_a_shorter_head_gives_the_same_field(head):
    parts = energy_components(*head, 0.5)
    np.testing.assert_allclose(parts.left[:, :3] @ parts.right[:, :3].T, parts.field(3))
    assert parts.variance_shares.sum() == pytest.approx(1)


def test_too_many_components_are_refused(head):
    with pytest.raises(InputError, match="between 0 and 8 components, but is 9"):
        low_rank_softmax(*head, 0.5, [9])
    with pytest.raises(InputError, match="visible must have the shape"):
        low_rank_softmax(*head, 0.5, [1], np.ones((2, 2), bool))
