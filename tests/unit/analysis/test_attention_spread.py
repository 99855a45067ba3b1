import numpy as np
import pytest

from headscape.analysis.attention_spread import attention_confidence, attention_entropy
from headscape.errors import InputError
from headscape.tensor.network_tensor import NetworkTensor


def rows_of(shape, seed=0, causal=False):
    p = np.random.default_rng(seed).random(shape)
    if causal:
        p *= np.tril(np.ones(shape[:2]))[..., None]
    return p / p.sum(axis=1, keepdims=True)


def tensor(p):
    return NetworkTensor(p, field="probs")


@pytest.mark.parametrize("causal", [False, True])
def test_against_loops(causal):
    p = rows_of((7, 7, 3), causal=causal)
    entropies, largest = np.zeros(3), np.zeros(3)
    for h in range(3):
        for i in range(7):
            entropies[h] -= sum(x * np.log(x) for x in p[i, :, h] if x > 0) / 7
            largest[h] += max(p[i, :, h]) / 7
    np.testing.assert_allclose(attention_entropy(tensor(p)), entropies, rtol=1e-6)
    np.testing.assert_allclose(attention_confidence(tensor(p)), largest, rtol=1e-6)


def test_bounds_are_reached_by_one_key_and_by_all_alike():
    p = np.zeros((4, 6, 2))
    p[np.arange(4), [5, 0, 2, 2], 0] = 1.0
    p[:, :, 1] = 1 / 6
    np.testing.assert_allclose(attention_entropy(tensor(p)), [0.0, np.log(6)], rtol=1e-6)
    np.testing.assert_allclose(attention_confidence(tensor(p)), [1.0, 1 / 6], rtol=1e-6)
    between = tensor(rows_of((4, 6, 2)))
    assert ((attention_entropy(between) > 0) & (attention_entropy(between) < np.log(6))).all()


def test_the_order_of_keys_and_queries_does_not_matter():
    p, rng = rows_of((8, 9, 4)), np.random.default_rng(1)
    moved = p[rng.permutation(8)][:, rng.permutation(9)]
    for measure in (attention_entropy, attention_confidence):
        np.testing.assert_allclose(measure(tensor(moved)), measure(tensor(p)), rtol=1e-6)


def test_single_precision_is_summed_in_double():
    p = np.full((2000, 50, 1), 1 / 50, dtype=np.float32)
    assert attention_entropy(tensor(p))[0] == pytest.approx(np.log(50), rel=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (NetworkTensor(np.ones((3, 3, 2)), field="logits"), "but holds logits of shape"),
        (NetworkTensor(np.ones((3, 3)), field="probs"), r"but holds probs of shape \(3, 3\)"),
    ],
)
def test_other_fields_are_refused(x, message):
    for measure in (attention_entropy, attention_confidence):
        with pytest.raises(InputError, match=message):
            measure(x)
