import numpy as np

from comparison_pages import made_up_comparison
from headscape.report.comparison_figures import comparison_figures, spectra_figure

FOUR = ("step 0", "step 100", "step 200", "step 400")


def test_two_networks_have_no_map():
    assert set(comparison_figures(made_up_comparison())) == {"distances", "spectra"}
    assert set(comparison_figures(made_up_comparison(FOUR))) == {"distances", "spectra", "networks"}


def test_distances_inside_the_noise_are_marked():
    data = made_up_comparison(FOUR)
    axes = comparison_figures(data)["distances"].axes[0]
    texts = [text.get_text() for text in axes.texts if "noise" not in text.get_text()]
    assert sum(text.startswith("≈") for text in texts) == 2 * sum(pair.inside for pair in data.pairs)
    shown = np.asarray(axes.images[0].get_array())
    assert shown[0, 3] == shown[3, 0] == data.pairs[2].distance


def test_the_path_of_checkpoints_is_drawn_in_their_order():
    data = made_up_comparison(FOUR)
    line = comparison_figures(data)["networks"].axes[0].lines[0]
    np.testing.assert_array_equal(line.get_xydata(), data.places)


def test_spectra_are_those_of_the_data():
    data = made_up_comparison()
    axes = spectra_figure(data, "size").axes[0]
    assert [line.get_label() for line in axes.lines] == ["intact", "pruned"]
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), data.sources[1].spectrum["size"]["median"])
