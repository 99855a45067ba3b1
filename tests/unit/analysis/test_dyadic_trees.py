import numpy as np
import pytest

import headscape as hs


def test_powers_of_two_give_the_dyadic_grid():
    tree = hs.dyadic_trees((8, 2))["query"]
    assert tree.depth == 4
    assert tree.levels()[1] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert tree.levels()[2] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 48, 197, 255])
def test_any_length_is_halved_as_evenly_as_possible(n):
    tree = hs.dyadic_trees((n, 1))["query"]
    np.testing.assert_array_equal(tree.order, np.arange(n))
    for level, folders in enumerate(tree.levels()[:-1]):
        sizes = [len(folder) for folder in folders]
        assert len(folders) == 2**level
        assert max(sizes) - min(sizes) <= 1


def test_axes_are_named():
    assert list(hs.dyadic_trees((4, 3, 2))) == ["query", "key", "head"]


@pytest.mark.parametrize("shape", [8, (8,), (0, 4), (2.5, 4), "ab"])
def test_bad_shapes_are_refused(shape):
    with pytest.raises(hs.HeadscapeError, match="shape must"):
        hs.dyadic_trees(shape)
