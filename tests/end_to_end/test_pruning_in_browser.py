"""The page of a pruned model in a real browser: the trade-off, its table, the heads of a size, phone, no network."""

import pytest

pytest.importorskip("transformers")

import browser
import headscape as hs
from pruning_pages import made_up_trial
from report_pages import click, look_at_everything, run, screen, type_into, violations

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruning")
    whole, alone = made_up_trial(), made_up_trial(curve=False)
    return {
        "whole": hs.pruning_report(whole, folder / "whole.html", command="headscape prune model"),
        "alone": hs.pruning_report(alone, folder / "alone.html"),
    }


@pytest.fixture
def opened(driver, pages):
    def open_page(name="whole", width=1440):
        screen(driver, width, 900)
        browser.open_page(driver, pages[name])
        look_at_everything(driver)
        return driver

    yield open_page
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.console_errors(driver) == []


def data_of(page, chart):
    return run(
        page,
        "return document.getElementById(arguments[0]).data.map(t => ({name: t.name, x: t.x, y: t.y, text: t.text}))",
        chart,
    )


def text_of(page, selector):
    return run(page, "return document.querySelector(arguments[0]).textContent", selector)


def test_the_trade_off_shows_every_size_and_names_pareto_choices(opened):
    page = opened()
    units, groups, _ = data_of(page, "tradeoff-chart")
    assert (units["name"], groups["name"]) == ("units", "groups")
    # Against the cache: whole groups make it smaller, and the second unit of heads costs more and saves nothing.
    assert sorted(units["y"]) == [0.01, 0.05]
    assert sorted(text.strip() for text in units["text"]) == ["", "A"]
    assert sorted(text.strip() for text in groups["text"]) == ["B", "D"]
    run(
        page,
        "const s = document.getElementById('against'); s.value = 'heads'; s.dispatchEvent(new Event('change'))",
    )
    units, groups, _ = data_of(page, "tradeoff-chart")
    assert sorted(units["x"]) == [6, 9]
    assert sorted(text.strip() for text in units["text"]) == ["A", "C"]
    assert browser.requested_urls(page) == [run(page, "return location.href")]


def test_a_chosen_size_shows_its_heads_everywhere(opened):
    page = opened()
    assert text_of(page, "#panel-title") == "A: 3 heads in units"
    click(page, "#size-table tbody tr:nth-child(2) button")
    assert text_of(page, "#panel-title") == "B: 2 heads in groups"
    assert text_of(page, "#panel-command") == "--groups --fraction 0.1667"
    assert "2 heads of 12 removed" in text_of(page, "#removed-hint")
    assert text_of(page, "#layer-table tbody tr:nth-child(2)") == "10, 14 of 6"
    grid = run(page, "return document.getElementById('removed-chart').data[0].z")
    assert [sum(row[layer] for row in grid) for layer in (0, 1)] == [0, 2]
    run(page, "document.getElementById('tradeoff-chart').emit('plotly_click', {points: [{customdata: 3}]})")
    assert text_of(page, "#panel-title") == "D: 4 heads in groups"
    click(page, "#previous")
    assert text_of(page, "#panel-title") == "C: 6 heads in units"


def test_the_cost_is_that_of_the_held_out_windows(opened):
    page = opened()
    rows = run(
        page, "return [...document.querySelectorAll('#cost-table tbody tr')].map(r => r.cells[0].textContent)"
    )
    assert rows == ["without repair", "with repair (this model)", "random heads, with repair"]
    assert "more <b>than</b> asked for" in text_of(page, "#warnings")
    type_into(page, "#search", "0.2")
    assert "0.2 removed" in text_of(page, "#search-results")


def test_a_trial_without_sizes_has_no_trade_off(opened):
    page = opened("alone")
    hidden = run(page, "return ['tradeoff', 'sizes', 'panel'].map(i => document.getElementById(i).hidden)")
    assert hidden == [True, True, True]
    assert "3 heads of 12 removed" in text_of(page, "#removed-hint")


@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_is_accessible_and_fits(opened, axe, width):
    page = opened(width=width)
    assert violations(page, axe) == []
    assert run(page, "return document.documentElement.scrollWidth <= innerWidth")
