"""What is read off singular values, and which weights are refused."""

import numpy as np
import pytest

from headscape.energy.spectrum import Spectrum, energy_spectrum, interaction_spectrum
from headscape.errors import InputError


def test_components_count_the_variance():
    spectrum = Spectrum(np.sqrt([0.5, 0.4, 0.06, 0.04]), rank_bound=4, subject="planted")
    assert (spectrum.k50, spectrum.k90, spectrum.k95, spectrum.k99) == (1, 2, 3, 4)
    assert spectrum.stable_rank == pytest.approx(2.0)


def test_equal_singular_values_have_full_effective_rank():
    spectrum = Spectrum(np.full(7, 3.0), rank_bound=7, subject="planted")
    assert spectrum.effective_rank == pytest.approx(7)
    assert spectrum.stable_rank == pytest.approx(7)
    assert spectrum.k90 == 7


def test_planted_rank_is_found():
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 16))
    spectrum = energy_spectrum(queries, rng.normal(size=(90, 16)), 0.25)
    assert (spectrum.rank, spectrum.rank_bound) == (3, 16)


def test_the_bound_is_one_less_than_the_keys_on_short_contexts():
    rng = np.random.default_rng(1)
    spectrum = energy_spectrum(rng.normal(size=(50, 32)), rng.normal(size=(10, 32)), 1.0)
    assert spectrum.rank == spectrum.rank_bound == 9


def test_equal_keys_have_a_zero_field():
    spectrum = energy_spectrum(np.random.default_rng(2).normal(size=(5, 3)), np.full((6, 3), 0.1), 1.0)
    assert spectrum.rank == 0
    assert spectrum.k90 == 0
    assert np.isnan(spectrum.effective_rank)
    assert np.isnan(spectrum.stable_rank)


@pytest.mark.parametrize("share", [0, -1, 1.1])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(InputError, match="share must lie in"):
        Spectrum(np.ones(2), 2, "x").components(share)


@pytest.mark.parametrize(
    ("w_q", "w_k", "message"),
    [
        (np.ones((2, 4)), np.ones((3, 4)), "two matrices"),
        (np.ones(4), np.ones((3, 4)), "two matrices"),
        (np.full((2, 4), np.nan), np.ones((2, 4)), "finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(w_q, w_k, message):
    with pytest.raises(InputError, match=message):
        interaction_spectrum(w_q, w_k)
