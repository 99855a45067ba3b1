import numpy as np
import pytest

import headscape as hs
from headscape.report.geometry_figures import (
    diffusion_figure,
    matrix_figure,
    organization_figures,
    tree_figure,
)
from headscape.report.style import save_figures


@pytest.fixture(scope="module")
def sample():
    t = hs.planted_tensor(12, 10, 2, 4)
    return t, hs.organize(t, n_iter=1)


def test_all_figures_are_drawn(sample, tmp_path):
    figures = organization_figures(*sample)
    assert {"affinity_head", "tree_head", "diffusion_map_head_2d", "diffusion_map_head_3d"} <= set(figures)
    paths = save_figures(figures, tmp_path, ("png", "svg"))
    assert len(paths) == 2 * len(figures)


def test_affinity_is_shown_in_tree_order(sample):
    _, result = sample
    shown = organization_figures(*sample)["affinity_head"].axes[0].images[0].get_array()
    order = result.order["head"]
    np.testing.assert_array_equal(shown, result.affinities["head"][np.ix_(order, order)])


def test_matrix_shows_both_orders(sample):
    t, result = sample
    left, right = (axes.images[0].get_array() for axes in matrix_figure(t, result, head=3).axes[:2])
    np.testing.assert_array_equal(left, t.data[:, :, 3])
    np.testing.assert_array_equal(right, t.data[:, :, 3][np.ix_(result.order["query"], result.order["key"])])


def test_tree_has_one_mark_per_folder(sample):
    _, result = sample
    axes = tree_figure(result, "query").axes[0]
    assert len(axes.collections[1].get_offsets()) == result.trees["query"].n_folders


def test_a_constant_matrix_and_odd_tokens_can_be_drawn(tmp_path):
    t = hs.NetworkTensor(np.ones((4, 4)), tokens=["$x$", "\n", "", "<script>"])
    result = hs.organize(t, n_iter=1)
    assert save_figures(organization_figures(t, result), tmp_path, ("svg",))


def test_wrong_requests(sample, tmp_path):
    with pytest.raises(hs.HeadscapeError, match="dimensions must be 2 or 3"):
        diffusion_figure(sample[1], dimensions=4)
    with pytest.raises(hs.HeadscapeError, match="figure formats are"):
        save_figures({}, tmp_path, ("gif",))
