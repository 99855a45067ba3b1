"""On the balanced binary tree the transform is the classical Haar transform of PyWavelets."""

import numpy as np
import pytest
import pywt

import headscape as hs
from tree_shapes import balanced_tree


@pytest.mark.parametrize("n", [2, 8, 64])
def test_one_axis_equals_wavedec(n):
    x = np.random.default_rng(n).standard_normal((n, 3))
    # Both go coarse to fine, left to right, and both take left minus right.
    expected = np.concatenate(pywt.wavedec(x, "haar", axis=0))
    np.testing.assert_allclose(hs.haar(x, balanced_tree(n)), expected, atol=1e-12)


def test_two_axes_equal_the_separable_transform():
    x = np.random.default_rng(0).standard_normal((16, 32))
    rows = np.concatenate(pywt.wavedec(x, "haar", axis=0))
    expected = np.concatenate(pywt.wavedec(rows, "haar", axis=1), axis=1)
    trees = {"query": balanced_tree(16), "key": balanced_tree(32)}
    np.testing.assert_allclose(hs.tensor_haar(x, trees), expected, atol=1e-12)
