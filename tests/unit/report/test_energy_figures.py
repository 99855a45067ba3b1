"""The pictures show the numbers they are given."""

import numpy as np
import pytest

from headscape.energy.delocalization import delocalization
from headscape.energy.low_rank import low_rank_softmax
from headscape.energy.spectrum import energy_spectrum
from headscape.energy.table import energy_tables
from headscape.errors import InputError
from headscape.report.energy_figures import (
    ModelIncoherence,
    energy_field_figure,
    energy_figures,
    incoherence_figure,
    incoherence_models_figure,
    key_share_figure,
    low_rank_figure,
    singular_value_figure,
    typical_head,
)
from headscape.report.style import save_figures
from headscape.tensor.capture import Capture

TOKENS = [f"t{i}$_\n" for i in range(48)]


@pytest.fixture(scope="module")
def capture():
    rng = np.random.default_rng(0)
    return Capture.from_arrays(
        rng.normal(size=(2, 3, 4, 48, 8)), rng.normal(size=(2, 3, 2, 48, 8)), tokens=TOKENS
    )


@pytest.fixture(scope="module")
def tables(capture):
    return energy_tables(capture, [48])


def test_all_figures_are_drawn_and_saved(capture, tables, tmp_path):
    learned = {pair: energy_spectrum(np.eye(8), np.eye(8), 1.0) for pair in capture.heads}
    figures = energy_figures(capture, tables, head=(2, 1), interaction=learned)
    assert set(figures) == {
        "energy_field",
        "incoherence_heads",
        "singular_values",
        "key_shares",
        "low_rank",
        "power_spectrum",
    }
    paths = save_figures(figures, tmp_path, ("png",))
    assert all(path.stat().st_size > 5000 for path in paths)
    assert "head 2.1" in figures["key_shares"].axes[0].get_title(loc="left")


def test_an_unknown_head_is_refused(capture, tables):
    with pytest.raises(InputError, match=r"there is no head 7\.0"):
        energy_figures(capture, tables, head=(7, 0))


def test_the_typical_head_has_the_median_spread(tables):
    layer, head = typical_head(tables)
    row = tables.heads.query(f"layer == {layer} and head == {head}").iloc[0]
    spread = tables.heads["participation"]
    assert abs(row["participation"] - spread.median()) == np.abs(spread - spread.median()).min()


def test_the_field_is_masked_and_labelled(capture):
    field = capture.tensor(0, "energy", heads=[(0, 0)]).data[:, :, 0]
    figure = energy_field_figure(field, np.tri(48, dtype=bool), TOKENS, "head 0.0")
    surface, contour = figure.axes[:2]
    assert surface.name == "3d"
    assert contour.get_xticklabels()[3].get_text() == r"t3\$_⏎"
    # The first query is at the top, as in a matrix.
    assert contour.get_ylim()[0] > contour.get_ylim()[1]


def test_incoherence_is_shown_by_layer_and_head(tables):
    image = incoherence_figure(tables.kv_heads).axes[0].images[0].get_array()
    assert image.shape == (2, 3)
    assert image[1, 2] == tables.kv_heads.query("layer == 2 and kv_head == 1")["mu_K"].iloc[0]


def test_models_are_placed_by_size_with_their_quartiles(tables):
    mine = ModelIncoherence.of_tables(tables, "mine", 1e8, "llama")
    assert mine.q25 <= mine.median <= mine.q75
    figure = incoherence_models_figure([mine, ModelIncoherence("other", 1e9, 1.4, 1.3, 1.6, "gpt2")])
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert {text.get_text() for text in axes.texts} >= {"mine", "other"}
    with pytest.raises(InputError, match="at least one model"):
        incoherence_models_figure([])
    with pytest.raises(InputError, match="length must be one of"):
        ModelIncoherence.of_tables(tables, "mine", 1e8, length=7)


def test_shares_decay_and_divergence_are_the_given_numbers():
    rng = np.random.default_rng(1)
    queries, keys = rng.normal(size=(2, 40, 6))
    shares = delocalization(queries, keys).shares
    bars = [bar.get_height() for bar in key_share_figure(shares).axes[0].patches]
    np.testing.assert_allclose(bars, shares * 40)
    spectrum = energy_spectrum(queries, keys, 1.0)
    line = singular_value_figure(spectrum).axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(line, spectrum.singular_values / spectrum.singular_values[0])
    moved = low_rank_softmax(queries, keys, 1.0, [1, 2, 4])
    middle = low_rank_figure(moved).axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(middle, np.median(moved.divergence, axis=1))
