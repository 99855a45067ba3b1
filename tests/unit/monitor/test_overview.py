"""A run at a glance, and as display data of its page."""

import numpy as np
import pytest

from headscape.cli.monitor_view import sparkline
from headscape.errors import InputError
from headscape.monitor.monitor_run import MonitorRun
from headscape.monitor.overview import overview, thinned
from headscape.study.monitor_display import monitor_page_data
from monitor_runs import EVERY, HEADS, LAYERS, write_run


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    return MonitorRun.load(write_run(tmp_path_factory.mktemp("faulty")))


def test_a_healthy_run_is_said_to_be_healthy(tmp_path):
    seen = overview(MonitorRun.load(write_run(tmp_path, faulty=False)))
    assert seen.state == "healthy"
    assert "healthy" in seen.sentence
    assert {layer.state for layer in seen.layers} == {"healthy"}
    assert {layer.curve_of for layer in seen.layers} == {"median"}
    assert not seen.alerts


def test_the_sentence_names_what_is_in_force_and_not_what_is_over(faulty):
    seen = overview(faulty)
    assert [alert.kind for alert in seen.in_force] == ["exploding-logits"]
    assert len(seen.alerts) == 2
    assert "layer 2 head 3" in seen.sentence
    assert "1 of 24 heads" in seen.sentence
    assert [layer.state for layer in seen.layers] == ["healthy", "healthy", "alert", "healthy"]


def test_a_layer_in_trouble_shows_its_worst_head(faulty):
    struck = overview(faulty).layers[2]
    assert struck.curve_of == "head 3"
    expected = [sample.values["logit_max"][2 * HEADS + 3] for sample in faulty.samples]
    np.testing.assert_allclose(struck.curve, expected)


def test_an_alert_that_is_over_is_told_as_past(tmp_path):
    seen = overview(MonitorRun.load(write_run(tmp_path, samples=30)))
    assert seen.state == "healthy"
    assert not seen.in_force
    assert "no longer in force" in seen.sentence


def test_an_odd_value_is_named_before_it_is_certain(tmp_path):
    seen = overview(MonitorRun.load(write_run(tmp_path, faulty=False, odd=True)))
    assert (seen.state, seen.metric) == ("watch", "logit_max")
    assert "1 of 24 heads looks odd: layer 1 head 2 (logit_max 120)" in seen.sentence
    page = monitor_page_data(MonitorRun.load(tmp_path), "llama", str(tmp_path))
    assert (page.first, page.metric) == (8, "logit_max")


def test_a_run_without_samples_has_a_sentence(tmp_path):
    assert "No training step" in overview(MonitorRun.load(write_run(tmp_path, samples=0))).sentence


def test_an_unknown_metric_is_refused(faulty):
    with pytest.raises(InputError, match="metric must be one of"):
        overview(faulty, "charm")


def test_thinning_keeps_alerts_and_the_last_sample(faulty):
    kept = thinned(faulty, 5)
    assert kept[-1] == len(faulty.samples) - 1
    assert {8, 10, 40, 42} <= set(kept)
    assert len(kept) < 12


def test_sparklines_keep_their_width_and_show_gaps():
    assert len(sparkline(range(1000), 20)) == 20
    assert sparkline([float("nan")] * 3) == "···"
    assert sparkline([], 10) == ""


def test_the_page_holds_what_was_measured(faulty):
    data = monitor_page_data(faulty, "llama", "run")
    assert list(data.steps) == [EVERY * i for i in range(50)]
    assert data.heads["state"].count("alert") == 1
    assert data.metric == "logit_max"
    assert data.first == 2 * HEADS + 3
    for name, values in data.values.items():
        assert values.shape == (50, LAYERS * HEADS), name
    np.testing.assert_array_equal(data.values["mu_K"][7], faulty.samples[7].values["mu_K"])
    band = next(metric["band"] for metric in data.metrics if metric["key"] == "logit_max")
    assert band[1][9] == pytest.approx(np.median(faulty.samples[9].values["logit_max"]))
    assert [alert["over"] for alert in data.alerts] == [True, False]
