"""The QR route against the dense singular value decomposition, and the other measures against plain loops."""

import numpy as np
import pytest

from headscape.energy.delocalization import delocalization
from headscape.energy.field import energy_field
from headscape.energy.incoherence import key_incoherence
from headscape.energy.low_rank import energy_components
from headscape.energy.spectrum import energy_spectrum, interaction_spectrum


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "d"), [(256, 256, 64), (40, 300, 16), (300, 40, 64), (20, 20, 32), (5, 2, 1)]
)
def test_singular_values_equal_those_of_the_dense_field(n_queries, n_keys, d):
    rng = np.random.default_rng(n_queries + n_keys)
    queries = rng.normal(size=(n_queries, d)) * np.logspace(0, -6, d)
    keys = rng.normal(size=(n_keys, d)) + 10 * rng.normal(size=d)
    found = energy_spectrum(queries, keys, 0.125).singular_values
    dense = np.linalg.svd(energy_field(queries, keys, 0.125), compute_uv=False)
    n = min(len(dense), len(found))
    np.testing.assert_allclose(found[:n], dense[:n], rtol=0, atol=1e-10 * dense[0])
    assert (dense[n:] < 1e-10 * dense[0]).all()


def test_interaction_equals_the_dense_product():
    rng = np.random.default_rng(0)
    w_q, w_k = rng.normal(size=(2, 16, 96))
    dense = np.linalg.svd(w_q.T @ w_k, compute_uv=False)
    np.testing.assert_allclose(
        interaction_spectrum(w_q, w_k).singular_values, dense[:16], atol=1e-10 * dense[0]
    )
    assert (dense[16:] < 1e-10 * dense[0]).all()


def test_shares_of_variance_equal_those_of_the_dense_field():
    rng = np.random.default_rng(1)
    queries, keys = rng.normal(size=(50, 8)), rng.normal(size=(70, 8)) + 3
    field = energy_field(queries, keys, 0.7)
    result = delocalization(queries, keys)
    np.testing.assert_allclose(result.shares, (field**2).sum(axis=0) / (field**2).sum(), atol=1e-13)
    u = np.linalg.qr(keys - keys.mean(axis=0))[0]
    values = np.linalg.svd(field, compute_uv=False)
    stable = (values**2).sum() / values[0] ** 2
    assert result.bound == pytest.approx(70 * (u**2).sum(axis=1).max() / stable)


def test_incoherence_by_loops_from_the_definition():
    rng = np.random.default_rng(2)
    keys = rng.normal(size=(40, 6)) * rng.uniform(1, 3, size=(40, 1)) + 0.5
    mean = sum(keys) / 40

    def mu(vectors, power):
        lengths = [sum(x * x for x in v) ** (power / 2) for v in vectors]
        return len(lengths) * max(lengths) / sum(lengths)

    found = key_incoherence(keys)
    assert found.raw == pytest.approx(mu(keys, 2))
    assert found.centered == pytest.approx(mu(keys - mean, 2))
    assert found.without_first == pytest.approx(mu(keys[1:], 2))
    assert found.norm == pytest.approx(mu(keys, 1))
    assert found.norm_centered == pytest.approx(mu(keys - mean, 1))
    hat = keys @ np.linalg.inv(keys.T @ keys) @ keys.T
    assert found.leverage == pytest.approx(40 / 6 * np.diag(hat).max())


def test_components_add_up_to_the_dense_truncation():
    rng = np.random.default_rng(3)
    queries, keys = rng.normal(size=(30, 6)), rng.normal(size=(25, 6))
    left, values, right = np.linalg.svd(energy_field(queries, keys, 0.4), full_matrices=False)
    parts = energy_components(queries, keys, 0.4)
    for k in (0, 1, 3, 6):
        np.testing.assert_allclose(parts.field(k), (left[:, :k] * values[:k]) @ right[:k], atol=1e-12)
