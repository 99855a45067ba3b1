import numpy as np
import pytest

import headscape as hs
from headscape.analysis.entropy import coefficients_by_support
from headscape.report.haar_figures import (
    basis_figure,
    coefficient_figure,
    entropy_figure,
    entropy_figures,
    entropy_map_figure,
    sparsity_figure,
)
from headscape.report.style import save_figures
from headscape.tensor.synthetic import planted_tensor
from tree_shapes import uneven_tree


@pytest.fixture(scope="module")
def tensor():
    return planted_tensor(16, 16, layers=2, heads_per_layer=3, groups=2)


@pytest.fixture(scope="module")
def study(tensor):
    return hs.entropy_study([tensor, tensor], k=60, n_iter=1)


def test_all_figures_are_written(study, tensor, tmp_path):
    figures = entropy_figures(study, tensor)
    assert set(figures) == {
        "coefficients",
        "coefficients_network",
        "entropies",
        "entropy_map",
        "basis_head",
        "sparsity",
    }
    paths = save_figures(figures, tmp_path, ["png"])
    assert all(path.stat().st_size > 5000 for path in paths)


def test_entropies_are_drawn_window_by_window(study):
    figure = entropy_figure(study)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left").startswith("Window")]
    assert len(panels) == 2
    np.testing.assert_allclose(panels[1].collections[0].get_offsets()[:, 1], study.entropies[1])


def test_map_puts_every_head_in_its_place():
    heads = [(0, 0), (0, 1), (2, 1)]
    image = entropy_map_figure(np.array([1.0, 2.0, 3.0]), heads, "title").axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.ma.filled(image, np.nan), [[1.0, 2.0], [np.nan, 3.0]])


def test_coefficients_come_in_order_of_support(study, tensor):
    pair = {axis: study.trees[0][axis] for axis in ("query", "key")}
    listed = coefficients_by_support(tensor.data[:, :, :1], pair, 60)
    axes = coefficient_figure(listed, ["head"]).axes[0]
    heights = [segment[1][1] for segment in axes.collections[-1].get_segments()]
    np.testing.assert_allclose(heights, listed.values[:, 0])
    with pytest.raises(hs.HeadscapeError, match=r"one entry per column \(1\), but has 2"):
        coefficient_figure(listed, ["a", "b"])


def test_basis_is_drawn_in_tree_order():
    tree = uneven_tree(9, np.random.default_rng(0))
    image = basis_figure(tree, [f"p{i}" for i in range(9)]).axes[0].images[0].get_array()
    drawn = np.sign(np.asarray(image)).T
    basis = hs.haar_basis(tree)[tree.order]
    np.testing.assert_array_equal(drawn, np.sign(basis))


def test_sparsity_names_the_number_for_99_percent(study, tensor):
    pair = {axis: study.trees[0][axis] for axis in ("query", "key")}
    curves = hs.sparsity_curves(tensor.data[:, :, 0], pair)
    labels = [line.get_label() for line in sparsity_figure(curves).axes[0].lines]
    assert labels[0] == f"organized: {curves.needed((0.99,))['organized'][0]} for 99 %"
    assert len(labels) == 3
