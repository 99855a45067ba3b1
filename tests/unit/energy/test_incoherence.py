"""Key incoherence on planted keys."""

import warnings

import numpy as np
import pytest

from headscape.energy.incoherence import key_incoherence
from headscape.errors import InputError


def test_equal_norms_give_one():
    angles = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    found = key_incoherence(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    for value in (
        found.raw,
        found.centered,
        found.without_first,
        found.norm,
        found.norm_centered,
        found.leverage,
    ):
        assert value == pytest.approx(1.0)


def test_one_large_key_takes_everything():
    keys = np.random.default_rng(0).normal(size=(128, 16))
    keys[7] *= 1e4
    assert key_incoherence(keys).raw == pytest.approx(128, rel=1e-3)


def test_a_large_first_key_is_left_out_by_its_variant():
    keys = np.random.default_rng(1).normal(size=(128, 16))
    plain = key_incoherence(keys[1:]).raw
    keys[0] *= 100
    found = key_incoherence(keys)
    assert found.raw > 100
    assert found.without_first == pytest.approx(plain)


def test_equal_keys_have_no_centered_version_and_say_so():
    with pytest.warns(UserWarning, match="centered, norm_centered undefined .NaN.: all keys are equal"):
        found = key_incoherence(np.full((10, 4), 0.3))
    assert found.raw == pytest.approx(1.0)
    assert np.isnan(found.centered)
    assert set(found.undefined) == {"centered", "norm_centered"}


def test_zero_keys_have_none_at_all():
    with pytest.warns(UserWarning, match="undefined") as told:
        found = key_incoherence(np.zeros((10, 4)))
    assert any("leverage undefined (NaN): all keys are zero" in str(warning.message) for warning in told)
    assert np.isnan([found.raw, found.centered, found.leverage, found.norm]).all()


def test_fewer_keys_than_dimensions_have_even_leverage():
    assert key_incoherence(np.random.default_rng(2).normal(size=(5, 16))).leverage == pytest.approx(1.0)


def test_ordinary_keys_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert key_incoherence(np.random.default_rng(3).normal(size=(50, 8))).undefined == {}


def test_a_single_key_is_refused():
    with pytest.raises(InputError, match="at least 2 keys"):
        key_incoherence(np.ones((1, 4)))
