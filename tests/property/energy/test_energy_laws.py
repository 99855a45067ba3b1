"""Laws that hold for every head."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headscape.energy.delocalization import delocalization
from headscape.energy.field import energy_field, log_ratio_energy, zero_sum_error
from headscape.energy.incoherence import incoherence_of
from headscape.energy.spectrum import energy_spectrum

NUMBERS = st.floats(-50, 50, allow_nan=False, width=32)


@st.composite
def heads(draw):
    d = draw(st.integers(1, 6))
    queries = draw(arrays(np.float64, (draw(st.integers(1, 12)), d), elements=NUMBERS))
    keys = draw(arrays(np.float64, (draw(st.integers(2, 12)), d), elements=NUMBERS))
    return queries, keys


@given(heads())
def test_rows_sum_to_zero(head):
    field = energy_field(*head, 0.25)
    # The rounding of one row is that of its own products, which may be far larger than a field that cancels.
    size = 0.25 * np.abs(head[0]).max() * np.abs(head[1]).max() * head[0].shape[1]
    assert np.abs(field.sum(axis=1)).max() <= 1e-13 * (1 + size) * field.shape[1]
    assert zero_sum_error(field) >= 0


@given(heads())
def test_rank_stays_within_its_bound_and_ranks_are_ordered(head):
    spectrum = energy_spectrum(*head, 0.25)
    size = 0.25 * np.linalg.norm(head[0]) * np.linalg.norm(head[1])  # rounding is that of the factors
    assert (spectrum.singular_values[spectrum.rank_bound :] <= 1e-14 * size).all()
    assert spectrum.rank <= spectrum.rank_bound
    if spectrum.rank:
        assert 1 - 1e-9 <= spectrum.stable_rank <= spectrum.effective_rank + 1e-9
        assert (
            1 <= spectrum.k50 <= spectrum.k90 <= spectrum.k95 <= spectrum.k99 <= len(spectrum.singular_values)
        )


@given(heads())
def test_no_key_exceeds_the_delocalization_bound(head):
    result = delocalization(*head)
    if np.isfinite(result.peak):
        assert result.peak <= result.bound * (1 + 1e-6)
        assert 1 - 1e-9 <= result.peak <= len(result.shares) + 1e-9
        assert 1 / len(result.shares) - 1e-9 <= result.participation <= 1 + 1e-9


@given(heads(), st.integers(0, 2**32 - 1))
def test_nothing_depends_on_the_order_of_queries_and_keys(head, seed):
    rng = np.random.default_rng(seed)
    queries, keys = head
    other = rng.permutation(queries), rng.permutation(keys)
    first, second = energy_spectrum(*head, 1.0), energy_spectrum(*other, 1.0)
    np.testing.assert_allclose(
        first.singular_values, second.singular_values, atol=1e-9 * (1 + first.singular_values[0])
    )
    a, b = incoherence_of(keys), incoherence_of(other[1])
    np.testing.assert_allclose([a.raw, a.norm], [b.raw, b.norm], rtol=1e-9)


@given(arrays(np.float64, (12, 4), elements=NUMBERS))
def test_incoherence_lies_between_one_and_the_number_of_keys(keys):
    found = incoherence_of(keys)
    for value in (found.raw, found.norm, found.centered, found.leverage):
        assert np.isnan(value) or 1 - 1e-9 <= value <= 12 + 1e-9


@given(heads())
def test_both_routes_to_the_field_agree(head):
    queries, keys = head[0] / 10, head[1] / 10
    logits = 0.25 * queries @ keys.T
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    field = energy_field(queries, keys, 0.25)
    np.testing.assert_allclose(
        log_ratio_energy(weights / weights.sum(axis=1, keepdims=True)), field, atol=1e-10
    )
