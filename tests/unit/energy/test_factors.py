"""Factors of all heads at once, and of longer prefixes from shorter ones, are those of each head alone."""

import numpy as np
import pytest

import headscape as hs
from headscape.energy.delocalization import delocalization
from headscape.energy.factors import module_factors
from headscape.tensor.attention_record import AttentionRecord

RNG = np.random.default_rng(0)


def _record(queries=40, keys=40):
    q = RNG.normal(size=(4, queries, 8)).astype(np.float32)
    k = RNG.normal(size=(2, keys, 8)).astype(np.float32)
    return AttentionRecord(0, q, k, 0.3, np.ones((queries, keys), dtype=bool))


@pytest.mark.parametrize(("queries", "keys"), [(40, 40), (50, 30), (5, 40), (40, 6)])
def test_batches_equal_single_heads(queries, keys):
    record = _record(queries, keys)
    factors = module_factors(record)
    for head in range(4):
        alone = record.queries[head], record.keys[record.kv_head(head)]
        spectrum, spread = hs.energy_spectrum(*alone, record.scale), delocalization(*alone)
        found = factors.spectrum(head)
        np.testing.assert_allclose(found.singular_values, spectrum.singular_values, rtol=1e-10, atol=1e-12)
        assert (found.rank, found.rank_bound, found.eps) == (spectrum.rank, spectrum.rank_bound, spectrum.eps)
        np.testing.assert_allclose(factors.delocalization(head).shares, spread.shares, rtol=1e-10)
        np.testing.assert_allclose(factors.delocalization(head).bound, spread.bound, rtol=1e-10)


def test_longer_prefixes_start_from_shorter_ones():
    record = _record()
    short = module_factors(record, 20, 20)
    grown, fresh = module_factors(record, 32, 32, short, 20), module_factors(record, 32, 32)
    np.testing.assert_allclose(grown.singular_values, fresh.singular_values, rtol=1e-12)


def test_factors_of_a_whole_window_are_kept_with_its_record():
    record = _record()
    assert module_factors(record) is module_factors(record)
    assert module_factors(record, 20, 20) is not module_factors(record, 20, 20)
