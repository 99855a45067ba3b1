import numpy as np
import pytest

import headscape as hs
from headscape.tensor.checks import as_float_array

X = np.arange(24.0).reshape(2, 3, 4)


def test_labels_and_views():
    t = hs.NetworkTensor(
        X,
        heads=[(0, 0), (0, 1), (1, 0), (1, 1)],
        tokens=["a", "b"],
        key_tokens=["x", "y", "z"],
        field="probs",
    )
    assert t.shape == (2, 3, 4)
    np.testing.assert_array_equal(t.head(1, 0), X[:, :, 2])
    array = t.to_xarray()
    assert array.dims == ("query", "key", "head")
    assert array.sel(head=2).layer == 1
    assert "probs" in repr(t)


def test_dtypes():
    assert as_float_array(np.ones(2, np.float16)).dtype == np.float32
    assert as_float_array(np.ones(2, ">f4")).dtype == np.float32
    assert as_float_array([1, 2]).dtype == np.float64
    assert as_float_array(np.ones(2, np.float32)).dtype == np.float32


def test_layers_become_layer_major_heads():
    x = np.random.default_rng(0).random((2, 3, 5, 4))
    t = hs.NetworkTensor.from_layers(x, field="probs")
    assert t.shape == (5, 4, 6)
    np.testing.assert_array_equal(t.head(1, 2), x[1, 2])
    with pytest.raises(hs.HeadscapeError, match="must have 4 axes"):
        hs.NetworkTensor.from_layers(X)


@pytest.mark.parametrize(
    ("data", "labels", "words"),
    [
        (
            np.where(X == 7, np.nan, X),
            {},
            r"1 entries are NaN and 0 are infinite .of 24.; the first is at index \(0, 1, 3\)",
        ),
        (np.where(X > 21, -np.inf, X), {}, r"0 entries are NaN and 2 are infinite.*Masked logits"),
        (np.ones(3), {}, r"2 or 3 axes .*shape is \(3,\)"),
        (np.ones((2, 2, 2, 2)), {}, "layer,head,query,key"),
        (np.ones((2, 0, 3)), {}, "empty axis"),
        (np.array([["a"]]), {}, "real numbers"),
        (X.astype(object), {}, "dtype is object"),
        (X, {"heads": [(0, 0)]}, "one entry per head .4., but has 1"),
        (X, {"heads": [(0, 0)] * 4}, "comes twice"),
        (X, {"tokens": ["a"]}, "one entry per query .2., but has 1"),
        (X, {"key_tokens": ["a"]}, "one entry per key .3., but has 1"),
    ],
)
def test_what_is_refused(data, labels, words):
    with pytest.raises(hs.HeadscapeError, match=words):
        hs.NetworkTensor(data, **labels)


def test_unknown_head():
    with pytest.raises(hs.HeadscapeError, match=r"no head 3\.0 .* the last is 0\.3"):
        hs.NetworkTensor(X).head(3, 0)


def test_unknown_groups_of_the_planted_tensor():
    with pytest.raises(hs.HeadscapeError, match="groups must be between 1 and"):
        hs.planted_tensor(groups=0)
