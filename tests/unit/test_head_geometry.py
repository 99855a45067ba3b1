import numpy as np

import headscape as hs
from headscape.geometry.head_geometry import HeadGeometry, head_geometry, mean_emd
from samples import smooth_tensor


def test_one_window_gives_its_own_geometry():
    found = hs.organize(smooth_tensor((16, 14, 12), seed=1), n_iter=2)
    geometry = head_geometry([found.emd["head"]])
    assert geometry.tree == found.trees["head"]
    np.testing.assert_array_equal(geometry.emd, found.emd["head"])
    np.testing.assert_array_equal(geometry.affinity, found.affinities["head"])
    np.testing.assert_array_equal(geometry.diffusion_map(2), found.diffusion_map("head", 2))
    as_it_is = HeadGeometry.of_window(found)
    assert as_it_is.tree is found.trees["head"]
    assert as_it_is.eigenpairs is found.eigenpairs["head"]


def test_windows_count_alike_and_the_order_of_windows_does_not_matter():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3, 20, 2))
    emds = [np.linalg.norm(p[:, None] - p, axis=2) for p in points]
    mean = mean_emd(emds)
    loud = mean_emd([emds[0], 1000 * emds[1], emds[2]])
    np.testing.assert_allclose(loud / np.median(loud), mean / np.median(mean))
    np.testing.assert_allclose(mean_emd(emds[::-1]), mean)
    assert np.isfinite(mean_emd([np.zeros((4, 4)), emds[0][:4, :4]])).all()


def test_permuted_heads_give_the_permuted_geometry():
    rng = np.random.default_rng(3)
    emds = [np.linalg.norm((p := rng.normal(size=(25, 2)))[:, None] - p, axis=2) for _ in range(3)]
    order = rng.permutation(25)
    for kind in ("flexible", "linkage"):
        plain = head_geometry(emds, tree=kind)
        moved = head_geometry([emd[np.ix_(order, order)] for emd in emds], tree=kind)
        np.testing.assert_array_equal(order[moved.tree.order], plain.tree.order)
        np.testing.assert_array_equal(moved.tree.labels, plain.tree.labels[:, order])


def test_arrays_give_the_same_geometry():
    emd = np.abs(np.subtract.outer(np.arange(9.0) ** 2, np.arange(9.0) ** 2))
    geometry = head_geometry([emd])
    again = HeadGeometry.from_arrays(geometry.arrays())
    assert again.tree == geometry.tree
    np.testing.assert_array_equal(again.eigenpairs.vectors, geometry.eigenpairs.vectors)
