"""Spectral signatures with their controls."""

import numpy as np
import pytest

from headscape.energy.field import energy_field
from headscape.energy.signatures import spectral_signatures
from headscape.errors import InputError


@pytest.fixture
def head():
    """A field with a strong column (a sink) and logits whose row means drift."""
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(96, 8)), rng.normal(size=(96, 8))
    queries[:, 0] += 2
    keys[:, 1] += 5
    queries[:, 1] += np.linspace(-3, 3, 96)
    keys[0, 0] += 8
    return energy_field(queries, keys, 0.35), 0.35 * queries @ keys.T


def test_zero_sum_rows_leave_little_power_below_an_eighth_of_the_row_frequency(head):
    field, logits = head
    result = spectral_signatures(field, logits)
    assert result.low_band < 0.5
    assert result.low_band_logits > 10
    assert result.low_band_ratio < 0.01
    assert 0.3 < result.low_band_shuffled < 3


def test_the_comb_is_the_share_of_the_column_means(head):
    field, _ = head
    power = np.abs(np.fft.fft(field.ravel())) ** 2
    comb = power[np.arange(96) * 96].sum() / power.sum()
    result = spectral_signatures(field)
    assert result.comb_share == pytest.approx(comb)
    assert result.comb_share > 0.2
    assert result.comb_share_shuffled == pytest.approx(1 / 96, rel=0.5)


def test_permuting_rows_is_no_control(head):
    field, _ = head
    permuted = field[np.random.default_rng(1).permutation(96)]
    assert spectral_signatures(permuted).comb_share == pytest.approx(spectral_signatures(field).comb_share)


def test_the_seed_decides_the_controls(head):
    field, _ = head
    first, again, other = (spectral_signatures(field, seed=seed) for seed in (1, 1, 2))
    assert first.low_band_shuffled == again.low_band_shuffled != other.low_band_shuffled
    assert first.low_band == other.low_band


@pytest.mark.parametrize(
    ("field", "logits", "message"),
    [
        (np.zeros((16, 16)), None, "zero everywhere"),
        (np.ones((4, 16)), None, "more than 8 queries, but the field has 4"),
        (np.ones(5), None, "must be a matrix"),
        (np.full((16, 16), np.nan), None, "finite"),
        (np.ones((16, 16)), np.ones((8, 16)), "shape of the field"),
    ],
)
def test_bad_input_is_refused(field, logits, message):
    with pytest.raises(InputError, match=message):
        spectral_signatures(field, logits)
