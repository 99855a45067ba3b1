import numpy as np
import pytest

import headscape as hs
from headscape.report.softmax_figures import (
    claim_figure,
    experiment_figure,
    levels_figure,
    orders_figure,
    softmax_figures,
)
from headscape.report.style import save_figures
from headscape.tensor.synthetic import planted_tensor


@pytest.fixture(scope="module")
def tensor():
    return planted_tensor(18, 14, layers=2, heads_per_layer=3, noise=0.2)


@pytest.fixture(scope="module")
def study(tensor):
    return hs.softmax_invariance(tensor, n_iter=1)


@pytest.fixture(scope="module")
def experiment(tensor):
    return hs.softmax_experiment(tensor.head(1, 2), n_iter=1)


def test_all_figures_are_written(study, experiment, tmp_path):
    figures = softmax_figures(study, {(1, 2): experiment})
    assert set(figures) == {"claim", "orders", "residual_map", "head_1_2", "levels_1_2"}
    assert all(path.stat().st_size > 5000 for path in save_figures(figures, tmp_path, ["png"]))


def test_head_is_drawn_as_it_came_organized_and_against_its_softmax(experiment):
    figure = experiment_figure(experiment, "Head 1.2")
    images = [np.asarray(axes.images[0].get_array()) for axes in figure.axes[:4]]
    rows, columns = experiment.trees["query"].order, experiment.trees["key"].order
    np.testing.assert_array_equal(images[0], experiment.logits)
    np.testing.assert_array_equal(images[1], experiment.logits[rows][:, columns])
    np.testing.assert_array_equal(images[2], experiment.complete.approximation[rows][:, columns])
    np.testing.assert_array_equal(images[3], experiment.softmax[rows][:, columns])
    assert "18 queries x 14 keys" in figure.get_suptitle()


def test_masked_entries_stay_white():
    f = np.random.default_rng(0).normal(size=(10, 10))
    figure = experiment_figure(hs.softmax_experiment(f, visible="causal", n_iter=1))
    image = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(image), ~np.tri(10, dtype=bool))


def test_claim_shows_every_head(study):
    points = claim_figure(study).axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], study.of_heads("mixed_size"))
    np.testing.assert_allclose(points[:, 1], 100 * study.of_heads("share_explained"))


def test_orders_count_the_better_ones(study):
    better = int((study.of_heads("residual") < study.of_heads("residual_shuffled")).sum())
    texts = [text.get_text() for text in orders_figure(study).axes[0].texts]
    assert f"below the line: organized is better ({better} of 6 heads)" in texts


def test_levels_have_one_cell_per_pair(experiment):
    figure = levels_figure(experiment.complete, "Head 1.2")
    found = np.asarray(figure.axes[0].images[0].get_array())
    shown = experiment.complete.contributions > experiment.complete.contributions.max() / 1000
    np.testing.assert_allclose(found[shown], np.log10(experiment.complete.contributions)[shown])
    assert not levels_figure(hs.paraproduct(np.ones((1, 4)), hs.dyadic_trees((1, 4)))).axes[0].images
