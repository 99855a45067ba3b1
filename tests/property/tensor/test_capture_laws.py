"""Laws of captures: saving loses nothing; permuting heads permutes the tensor; energy rows sum to zero."""

import tempfile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headscape.tensor.capture import Capture

sizes = st.tuples(
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 9), st.integers(1, 4)
)


def arrays(size, seed):
    layers, kv_heads, groups, length, d = size
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(layers, kv_heads * groups, length, d)).astype(np.float32)
    return queries, rng.normal(size=(layers, kv_heads, length, d)).astype(np.float32)


@given(sizes, st.integers(0, 2**16), st.booleans())
@settings(deadline=None, max_examples=15)
def test_save_and_load_are_the_identity(size, seed, causal):
    capture = Capture.from_arrays(*arrays(size, seed), causal=causal)
    with tempfile.TemporaryDirectory() as folder:
        stored = capture.save(folder)
        for field in ("probs", "logits", "energy"):
            np.testing.assert_array_equal(stored.tensor(0, field).data, capture.tensor(0, field).data)


@given(sizes, st.integers(0, 2**16), st.booleans())
@settings(deadline=None, max_examples=30)
def test_probabilities_are_probabilities_and_energy_sums_to_zero(size, seed, causal):
    capture = Capture.from_arrays(*arrays(size, seed), causal=causal)
    probs, energy = capture.tensor(0).data, capture.tensor(0, "energy").data
    visible = capture.record(0, 0).visible[..., None]
    assert (probs >= 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-5)
    assert not (probs * ~visible).any()
    assert not (energy * ~visible).any()
    np.testing.assert_allclose(energy.sum(axis=1), 0.0, atol=1e-5 * max(1.0, float(np.abs(energy).max())))


@given(sizes, st.integers(0, 2**16))
@settings(deadline=None, max_examples=30)
def test_permuting_tokens_permutes_full_attention(size, seed):
    queries, keys = arrays(size, seed)
    order = np.random.default_rng(seed).permutation(queries.shape[2])
    plain = Capture.from_arrays(queries, keys, causal=False)
    moved = Capture.from_arrays(queries[:, :, order], keys[:, :, order], causal=False)
    for field in ("probs", "logits", "energy"):
        np.testing.assert_allclose(
            moved.tensor(0, field).data, plain.tensor(0, field).data[order][:, order], atol=1e-5
        )
