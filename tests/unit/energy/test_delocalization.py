"""Shares of variance of planted fields."""

import numpy as np
import pytest

from headscape.energy.delocalization import delocalization, field_delocalization
from headscape.errors import InputError


def test_a_uniform_field_takes_part_everywhere():
    field = np.random.default_rng(0).choice([-1.0, 1.0], size=(20, 30))
    result = field_delocalization(field)
    assert result.participation == pytest.approx(1.0)
    assert result.peak == pytest.approx(1.0)
    assert np.isnan(result.bound)


def test_a_planted_sink_key_holds_the_variance():
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(200, 8))
    keys[3] *= 300
    result = delocalization(rng.normal(size=(150, 8)), keys)
    assert result.peak_key == 3
    assert result.participation < 0.01
    assert 190 < result.peak <= result.bound * (1 + 1e-12)


def test_the_scale_of_queries_and_a_shift_of_keys_cancel():
    rng = np.random.default_rng(2)
    queries, keys = rng.normal(size=(2, 40, 6))
    np.testing.assert_allclose(
        delocalization(7 * queries, keys + 2).shares, delocalization(queries, keys).shares, atol=1e-13
    )


def test_a_zero_field_has_no_shares():
    assert np.isnan(delocalization(np.ones((4, 2)), np.ones((5, 2))).participation)
    assert np.isnan(field_delocalization(np.zeros((4, 5))).peak)


def test_a_vector_is_refused():
    with pytest.raises(InputError, match="must be a matrix"):
        field_delocalization(np.ones(4))
