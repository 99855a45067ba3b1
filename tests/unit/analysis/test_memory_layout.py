"""Results depend on values, bit for bit, and not on how an array lies in memory."""

import numpy as np
import pytest

import headscape as hs

RNG = np.random.default_rng(0)
X = RNG.random((20, 24, 6))
F = RNG.normal(size=(33, 40))


def strided(x):
    wide = np.zeros([2 * n for n in x.shape], x.dtype)
    view = wide[tuple([slice(None, None, 2)] * x.ndim)]
    view[...] = x
    return view


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "last axis slowest": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, -1, 0)), 0, -1),
    "strided": strided,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=str)
def tensor(request):
    x = X.astype(request.param)
    return x, hs.organize(x, n_iter=2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("visible", [None, "causal"])
@pytest.mark.parametrize("nonlinearity", ["log-softmax", "exp"])
def test_paraproduct(layout, visible, nonlinearity):
    trees = hs.dyadic_trees(F.shape)
    one, other = (hs.paraproduct(f, trees, nonlinearity, visible=visible) for f in (F, LAYOUTS[layout](F)))
    for name in ("approximation", "residual", "contributions", "local_residuals"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_organize(layout, tensor):
    x, wanted = tensor
    found = hs.organize(LAYOUTS[layout](x), n_iter=2)
    for axis in ("query", "key", "head"):
        np.testing.assert_array_equal(found.trees[axis].labels, wanted.trees[axis].labels)
        np.testing.assert_array_equal(found.emd[axis], wanted.emd[axis], strict=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_haar_emd_and_entropy(layout, tensor):
    x, organization = tensor
    y, trees = LAYOUTS[layout](x), organization.trees
    for axis in ("query", "key", "head"):
        np.testing.assert_array_equal(hs.haar(y, trees[axis], axis), hs.haar(x, trees[axis], axis))
        np.testing.assert_array_equal(hs.tree_emd(y, trees, axis), hs.tree_emd(x, trees, axis), strict=True)
    np.testing.assert_array_equal(hs.head_entropy(y, trees), hs.head_entropy(x, trees), strict=True)
