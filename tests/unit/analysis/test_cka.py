"""Debiased linear CKA against the unbiased estimate of HSIC as it was published, and where the usual one misleads."""

import numpy as np
import pytest

from headscape.analysis.comparison.cka import centered_gram, cka_matrix, linear_cka
from headscape.errors import InputError


def unbiased_hsic(k, m):
    """Return HSIC_1 of Song et al. (2012), equation 5."""
    n = len(k)
    k, m = (x - np.diag(np.diag(x)) for x in (k, m))
    ones = np.ones(n)
    corrected = (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (
        ones @ k @ m @ ones
    )
    return (np.trace(k @ m) + corrected) / (n * (n - 3))


def test_it_is_the_ratio_of_unbiased_estimates():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 5)), rng.normal(size=(30, 8))
    y[:, :5] += x
    k, m = x @ x.T, y @ y.T
    expected = unbiased_hsic(k, m) / np.sqrt(unbiased_hsic(k, k) * unbiased_hsic(m, m))
    assert linear_cka(x, y) == pytest.approx(expected)


def test_rotation_scale_and_shift_do_not_matter():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 6))
    turned, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    assert linear_cka(x, 7 * x @ turned + 3) == pytest.approx(1)


def test_unrelated_activations_with_many_features_are_near_zero():
    rng = np.random.default_rng(2)
    values = [linear_cka(*rng.normal(size=(2, 50, 400))) for _ in range(20)]
    assert abs(np.mean(values)) < 0.02


def test_constant_activations_have_none_and_few_tokens_are_refused():
    varied = np.random.default_rng(3).normal(size=(10, 2))
    found = cka_matrix([centered_gram(np.zeros((10, 2))), centered_gram(varied)], [centered_gram(varied)])
    assert np.isnan(found[0, 0])
    assert found[1, 0] == pytest.approx(1)
    with pytest.raises(InputError, match="at least 4 tokens"):
        centered_gram(np.ones((3, 2)))
    with pytest.raises(InputError, match="same tokens"):
        cka_matrix([centered_gram(varied)], [centered_gram(varied[:8])])
