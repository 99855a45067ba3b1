import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscape as hs
from headscape.geometry.affinity import cosine_affinity, emd_affinity, gaussian_affinity
from headscape.geometry.arranged import Arrangements
from headscape.geometry.diffusion import fix_signs, markov_eigenpairs
from headscape.geometry.median import median


def test_median_counts_the_diagonal():
    emd = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 2.0], [4.0, 2.0, 0.0]])
    np.testing.assert_allclose(emd_affinity(emd, 2.0), np.exp(-emd / 2.0))
    np.testing.assert_array_equal(emd_affinity(np.zeros((2, 2))), np.ones((2, 2)))


def test_cosine_of_zero_slices_and_opposite_slices():
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [3.0, 3.0]])
    found = cosine_affinity(x, 0)
    assert found[0, 1] == 0.0
    assert found[2, 3] == found[2, 2] == 1.0
    assert found[0, 2] == 0.0
    assert found[0, 4] == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("affinity", [cosine_affinity, gaussian_affinity])
def test_initial_affinities_do_not_depend_on_the_scale(affinity, scale):
    x = np.random.default_rng(0).standard_normal((7, 5, 3))
    np.testing.assert_allclose(affinity(x * scale, 1), affinity(x, 1), rtol=1e-9)


def test_gaussian_scale_is_the_median_distance_to_the_neighbor():
    x = np.array([[0.0], [1.0], [3.0]])
    # Distances to the second neighbor: 3, 2, 3.
    np.testing.assert_allclose(gaussian_affinity(x, 0, neighbors=2)[0], np.exp(-np.array([0, 1, 9]) / 9))
    np.testing.assert_array_equal(gaussian_affinity(np.ones((4, 3)), 0), np.ones((4, 4)))


def test_initial_affinity_in_blocks_equals_one_product(monkeypatch):
    x = np.random.default_rng(1).standard_normal((6, 50, 4))
    whole = cosine_affinity(x, 0)
    monkeypatch.setattr("headscape.geometry.affinity._BLOCK_BYTES", 1)
    np.testing.assert_allclose(cosine_affinity(x, 0), whole, rtol=1e-12)


def test_disconnected_affinity_has_finite_eigenvectors():
    affinity = np.eye(8) * 0.5 + 0.5
    affinity[0, 1:] = affinity[1:, 0] = 1e-40
    pairs = markov_eigenpairs(affinity)
    assert np.isfinite(pairs.vectors).all()
    assert pairs.values[1] == pytest.approx(1.0)
    # The pair that belongs to the second piece tells the lone point from the others.
    assert abs(pairs.vectors[0, 1]) > abs(pairs.vectors[1:, 1]).max()


def test_large_affinities_go_through_the_iterative_solver(monkeypatch):
    points = np.random.default_rng(2).random((150, 2))
    affinity = np.exp(-np.linalg.norm(points[:, None] - points[None], axis=2))
    dense = markov_eigenpairs(affinity, 8)
    monkeypatch.setattr("headscape.geometry.diffusion._DENSE_LIMIT", 100)
    sparse = markov_eigenpairs(affinity, 8)
    np.testing.assert_allclose(sparse.values, dense.values, atol=1e-9)
    np.testing.assert_allclose(sparse.vectors, dense.vectors, atol=1e-5)


def test_signs_without_skewness():
    np.testing.assert_array_equal(fix_signs(np.array([[-1.0, 0.0], [1.0, 0.0]])), [[1, 0], [-1, 0]])


def test_diffusion_map_of_a_line_follows_it():
    points = np.linspace(0, 1, 9)
    affinity = np.exp(-((points[:, None] - points[None]) ** 2) / 0.1)
    first = hs.diffusion_map(affinity, 1)[:, 0]
    assert (np.diff(first) > 0).all() or (np.diff(first) < 0).all()
    later = hs.diffusion_map(affinity, 1, t=3)[:, 0]
    assert np.abs(later).max() < np.abs(first).max()


def test_diffusion_map_of_few_points_is_padded_with_zeros():
    assert (hs.diffusion_map(np.ones((2, 2)), 3)[:, 1:] == 0).all()


@pytest.mark.parametrize(
    ("affinity", "options", "words"),
    [
        (np.ones((2, 3)), {}, "square"),
        (-np.ones((2, 2)), {}, "nonnegative"),
        (np.zeros((2, 2)), {}, "row of the affinity is zero"),
        (np.ones((2, 2)), {"n_components": 0}, "n_components must be positive"),
        (np.full((2, 2), np.nan), {}, "nonnegative"),
    ],
)
def test_bad_affinities(affinity, options, words):
    with pytest.raises(hs.HeadscapeError, match=words):
        hs.diffusion_map(affinity, **options)


def test_iterative_and_full_decompositions_agree(monkeypatch):
    place = np.random.default_rng(0).random((60, 2))
    affinity = np.exp(-10 * np.linalg.norm(place[:, None] - place, axis=2))
    full = markov_eigenpairs(affinity, n_eigs=5)
    monkeypatch.setattr("headscape.geometry.diffusion._DENSE_LIMIT", 10)
    iterative = markov_eigenpairs(affinity, n_eigs=5)
    np.testing.assert_allclose(iterative.values, full.values, atol=1e-12)
    np.testing.assert_allclose(iterative.vectors, full.vectors, atol=1e-9)


def test_eigenvalues_that_are_large_and_negative_are_not_missed():
    # Two groups that see only each other: after the trivial pair, -1 is the largest in magnitude.
    affinity = np.full((8, 8), 1e-3)
    affinity[:4, 4:] = affinity[4:, :4] = 1.0
    np.fill_diagonal(affinity, 0.01)
    pairs = markov_eigenpairs(affinity, n_eigs=3)
    r = affinity.sum(axis=1)
    p = affinity / np.multiply.outer(r, r)
    d = np.sqrt(p.sum(axis=1))
    values = np.linalg.eigvalsh(p / np.multiply.outer(d, d))
    assert values[0] < -0.9
    np.testing.assert_allclose(pairs.values, np.sort(np.abs(values))[::-1][:3], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("hidden", ["nothing", "later keys", "some points"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_inner_products_of_arranged_slices_are_those_of_numpy(axis, hidden, dtype):
    x = np.random.default_rng(0).standard_normal((34, 21, 50)).astype(dtype)
    if hidden == "later keys":
        x *= np.tri(34, 21, dtype=dtype)[:, :, None]
    elif hidden == "some points":  # so that points are arranged in another order
        x[:, :, ::3] = 0
        x[3:, 2:, 1::4] = 0
    others = [number for number in range(3) if number != axis]
    expected = np.tensordot(x.astype(np.float64), x.astype(np.float64), axes=(others, others))
    found = Arrangements(x, 1 << 30, (float(x.min()), float(x.max()))).inner_products(axis)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())
    assert (found == found.T).all()


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40))
def test_the_median_is_that_of_numpy(values):
    assert median(np.array(values)) == np.median(values)
