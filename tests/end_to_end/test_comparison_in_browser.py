"""The page of a comparison in a real browser: linked views, keyboard, phone, paper, several networks."""

import json

import pytest

import browser
from comparison_pages import CHANGED_LAYER, made_up_comparison
from headscape.report.comparison_page import write_comparison_page
from report_pages import (
    charts,
    click,
    downloaded,
    look_at_everything,
    run,
    screen,
    table_heads,
    type_into,
    violations,
    wait,
)

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")

CHOSEN = "return [...document.querySelectorAll('[data-chosen]')].map(e => e.dataset.chosen)"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    made = {
        "exact": made_up_comparison(),
        "soft": made_up_comparison(("small", "other"), exact=False),
        "four": made_up_comparison(("step 0", "step 100", "step 200", "step 400")),
    }
    return {name: write_comparison_page(data, folder / f"{name}.html") for name, data in made.items()}


@pytest.fixture
def opened(driver, reports):
    """A function that opens a page and lets every chart be drawn; afterwards its console must be silent."""

    def open_page(name, fragment="", width=1440):
        screen(driver, width, 900)
        browser.open_page(driver, reports[name], fragment)
        look_at_everything(driver)
        return driver

    yield open_page
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.console_errors(driver) == []


def rings(page, chart):
    return run(page, "return document.getElementById(arguments[0]).data.at(-1).text", chart)


def choose_on_map(page, chart, head):
    event = {"points": [{"curveNumber": 0, "pointNumber": head}]}
    run(page, "document.getElementById(arguments[0]).emit('plotly_click', arguments[1])", chart, event)


def test_a_head_chosen_on_either_side_shows_its_partner_on_the_other(opened):
    page = opened("exact")
    assert set(run(page, CHOSEN)) == {f"intact {CHANGED_LAYER}.0"}  # it opens with the largest change
    choose_on_map(page, "map-first-chart", 2)
    assert (rings(page, "map-first-chart"), rings(page, "map-second-chart")) == (["0.2"], ["0.2"])
    choose_on_map(page, "map-second-chart", 0)
    assert set(run(page, CHOSEN)) == {"pruned 0.0"}
    assert rings(page, "map-first-chart") == ["0.0"]
    click(page, "#partners button")
    assert set(run(page, CHOSEN)) == {"intact 0.0"}
    assert run(page, "return location.hash") == "#pair=0-1&head=0:0.0"


def test_a_removed_head_has_no_partner(opened):
    page = opened("exact", "#pair=0-1&head=0:0.1")
    assert rings(page, "map-second-chart") == []
    assert "no partner in pruned" in run(
        page, "return document.getElementById('partners-sentence').textContent"
    )


def test_shares_of_a_soft_correspondence_are_shown_in_words_and_in_the_panel(opened):
    page = opened("soft", "#pair=0-1&head=0:1.0")
    sentence = run(page, "return document.getElementById('partners-sentence').textContent")
    assert "50 %" in sentence
    assert "30 %" in sentence
    assert len(rings(page, "map-second-chart")) == 3
    assert run(page, "return document.querySelectorAll('#partners li').length") == 3
    assert run(page, "return document.getElementById('not-compared').checkVisibility()")
    assert not run(page, "return document.getElementById('layers').checkVisibility()")


def test_the_table_filters_sorts_is_walked_by_keys_and_saved(opened, tmp_path):
    from selenium.webdriver.common.keys import Keys

    page = opened("exact")
    assert table_heads(page)[0].startswith(f"{CHANGED_LAYER}.")
    type_into(page, "#filter", "times > 2, layer = 2")
    assert table_heads(page) == [f"{CHANGED_LAYER}.{head}" for head in range(6)]
    run(page, "document.querySelector('#head-table tbody button[tabindex=\"0\"]').focus()")
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert set(run(page, CHOSEN)) == {"intact 2.1"}
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    click(page, "#table-json")
    saved = json.loads(downloaded(tmp_path, "json").read_text())
    assert [row["second"] for row in saved["changes"]] == table_heads(page)
    assert {row["verdict"] for row in saved["changes"]} == {"changed"}


def test_a_layer_above_the_noise_leads_to_its_heads(opened):
    page = opened("exact")
    times = run(page, "return document.getElementById('layers-chart').data[0].y")
    assert [t > 1 for t in times] == [layer == CHANGED_LAYER for layer in range(len(times))]
    band = run(page, "return document.getElementById('layers-chart').layout.shapes[0].y1")
    assert band == 1
    run(page, "document.getElementById('layers-chart').emit('plotly_click', {points: [{x: 2}]})")
    assert {head.split(".")[0] for head in table_heads(page)} == {"2"}


def test_search_finds_heads_of_both_networks(opened):
    page = opened("soft")
    type_into(page, "#search", "2.1")
    found = run(
        page, "return [...document.querySelectorAll('#search-results button')].map(b => b.textContent)"
    )
    assert [("small" in text, "other" in text) for text in found] == [(True, False), (False, True)]
    run(page, "document.querySelectorAll('#search-results button')[1].click()")
    assert set(run(page, CHOSEN)) == {"other 2.1"}


def test_several_networks_have_a_matrix_a_path_and_a_choice_of_two(opened):
    page = opened("four")
    cells = run(page, "return document.getElementById('distances-chart').layout.annotations.map(a => a.text)")
    assert sum(text.startswith("≈") for text in cells) == 6  # three neighbors, in both halves
    assert run(page, "return document.getElementById('network-map-chart').data[0].x") == [0, 1, 2, 3]
    run(page, "document.getElementById('distances-chart').emit('plotly_click', {points: [{x: 3, y: 1}]})")
    assert run(page, "return document.getElementById('pair-first').value") == "1"
    assert "step 400" in run(page, "return document.getElementById('map-second-h').textContent")
    type_into(page, "#pair-second", "2")
    assert run(page, "return location.hash").startswith("#pair=1-2")
    click(page, "#pair-table tbody tr:nth-child(3) button")
    assert run(
        page, "return [...document.querySelectorAll('.legend.sources')[0].children].map(e => e.textContent)"
    ) == [
        "step 0",
        "step 400",
    ]


@pytest.mark.parametrize("name", ["soft", "four"])
def test_nothing_leaves_a_narrow_screen(opened, name):
    page = opened(name, width=400)
    assert run(page, "return document.documentElement.scrollWidth") <= 400
    choose_on_map(page, "map-first-chart", 1)
    wait(page, "return document.getElementById('panel').classList.contains('open')")


def test_it_prints_with_charts_that_fit(opened):
    page = opened("exact")
    run(page, "dispatchEvent(new Event('beforeprint'))")
    right = (
        "[...document.querySelectorAll('main .chart .main-svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert max(run(page, f"return {right}")) <= 680
    run(page, "dispatchEvent(new Event('afterprint'))")


def test_every_chart_has_a_menu_to_save_it_and_help(opened):
    page = opened("exact")
    saved = run(
        page, "return [...document.querySelectorAll('details.menu[data-chart]')].map(m => m.dataset.chart)"
    )
    assert set(charts(page)) <= set(saved)
    lacking = "[...document.querySelectorAll('main .chart')].filter(c => !c.closest('section').querySelector('.help'))"
    assert run(page, f"return {lacking}.map(c => c.id)") == []


@pytest.mark.parametrize(("name", "width", "theme"), [("four", 1440, "light"), ("soft", 400, "dark")])
def test_axe_finds_no_violation(opened, driver, axe, name, width, theme):
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    )
    try:
        page = opened(name, width=width)
        assert violations(page, axe) == []
        type_into(page, "#search", "1")
        click(page, "#maps-h .help")
        assert violations(page, axe) == []
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
