"""The report for everyone, in a real browser: phones, paper, keyboard, screen readers; and what can be taken away."""

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest

import browser
from headscape.report.html_page import Answer
from headscape.report.page import write_page
from headscape.study.display import page_data
from headscape.study.stages.finding import Question
from report_pages import (
    KINDS,
    charts,
    click,
    downloaded,
    look_at,
    look_at_everything,
    named_report,
    run,
    screen,
    type_into,
    violations,
    wait,
)
from studies import small_study

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")

ROOT = Path(__file__).parents[2]
WIDE = "return [...document.querySelectorAll('main *, header *, aside *')].filter(e => !e.closest('.scroll, svg, .sr') \
&& e.getBoundingClientRect().right > innerWidth + 1 && e.getClientRects().length).map(e => e.id || e.className)"
OVERLAPS = """
  const kinds = ['section h2', 'section .hint', '.chart', 'table', 'dl', 'li'].map(kind => `main ${kind}`);
  const boxes = [...document.querySelectorAll(kinds.join(', '))].filter(e => e.checkVisibility() && e.textContent)
    .map(e => [e, e.getBoundingClientRect()]).filter(([, r]) => r.height > 0);
  const before = (p, q) => p.bottom - 2 <= q.top || p.right - 2 <= q.left;
  const apart = (p, q) => before(p, q) || before(q, p);
  const found = [];
  for (const [a, p] of boxes) for (const [b, q] of boxes)
    if (a !== b && !a.contains(b) && !b.contains(a) && !apart(p, q)) found.push([a, b].map(e => e.id || e.textContent));
  return found"""


@pytest.fixture(scope="module")
def study():
    return small_study(layers=4, heads=6, length=32)


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    return named_report(study, tmp_path_factory.mktemp("access") / "report.html")


@pytest.fixture
def page(driver, report):
    browser.open_page(driver, report)
    yield driver
    assert browser.console_errors(driver) == []


@pytest.fixture
def phone(driver, report):
    screen(driver, 400, 800)
    browser.open_page(driver, report)
    look_at_everything(driver)
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.console_errors(driver) == []


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(driver, report, axe, width, theme):
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    try:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        screen(driver, width, 900)
        browser.open_page(driver, report)
        look_at_everything(driver)
        assert run(driver, "return document.documentElement.dataset.theme") == theme
        assert violations(driver, axe) == []
        # Again with what opens: a selection, the menus, a help, the results of a search.
        click(driver, "#map-legend button")
        click(driver, "#map-h .help")
        type_into(driver, "#search", "first")
        type_into(driver, "#filter", "entropie < 3")
        for menu in ("#columns", "#map .menu", "#menu"):
            run(driver, "const m = document.querySelector(arguments[0]); m.open = true", menu)
        assert violations(driver, axe) == []
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_nothing_leaves_a_narrow_screen(phone):
    assert run(phone, "return document.documentElement.scrollWidth") <= 400
    assert run(phone, WIDE) == []
    for menu in ("#columns summary", "#map .menu summary", "#heads-h .help", "#head-table .help"):
        click(phone, menu)
        wait(phone, "return document.documentElement.scrollWidth <= 400")


def test_a_phone_reaches_every_section(phone):
    links = (
        "return [...document.querySelectorAll('#nav a')].filter(a => a.checkVisibility()).map(a => a.hash)"
    )
    assert run(phone, links) == []
    phone.find_element("id", "menu").click()
    assert run(phone, "return document.getElementById('menu').getAttribute('aria-expanded')") == "true"
    assert {"#findings", "#measures", "#map", "#tree", "#heads", "#about"} <= set(run(phone, links))
    phone.find_element("css selector", "#nav a[href='#heads']").click()
    assert run(phone, links) == []
    wait(
        phone,
        "const top = document.getElementById('heads').getBoundingClientRect().top; return top > -5 && top < 120",
    )


def test_a_phone_finds_a_head(phone):
    from selenium.webdriver.common.keys import Keys

    phone.find_element("id", "search").send_keys("3.2", Keys.ENTER)
    assert run(phone, "return document.getElementById('panel').dataset.chosen") == "3.2"


def printed(page):
    paper = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
    return base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", paper)["data"])


def test_charts_fit_the_paper_and_come_back(page):
    seen = """
      window.printed = [];
      const old = Plotly.relayout;
      Plotly.relayout = (box, change) => { printed.push([box.id, change.width]); return old(box, change); };
    """
    look_at(page, "map-chart")
    before = run(page, "return document.querySelector('#map-chart .main-svg').clientWidth")
    run(page, seen)
    assert len(printed(page)) > 50_000
    calls = run(page, "return window.printed")
    on_paper = {name: width for name, width in calls if width}
    assert set(on_paper) == set(charts(page))
    assert max(on_paper.values()) <= 680  # A4 with its margins has 688 pixels
    assert not run(page, "return document.documentElement.classList.contains('printing')")
    wait(page, "return document.querySelector('#map-chart .main-svg').clientWidth === arguments[0]", before)


def test_nothing_overlaps_on_paper(page):
    look_at_everything(page)
    screen(page, 688, 1000)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        run(page, "dispatchEvent(new Event('beforeprint'))")
        assert run(page, OVERLAPS) == []
        right = "[...document.querySelectorAll('main .chart .main-svg')].map(s => s.getBoundingClientRect().right)"
        assert max(run(page, f"return {right}")) <= 690
        run(page, "dispatchEvent(new Event('afterprint'))")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_every_chart_has_a_menu_to_save_it(page):
    saved = run(
        page, "return [...document.querySelectorAll('details.menu[data-chart]')].map(m => m.dataset.chart)"
    )
    assert sorted(saved) == sorted(charts(page))
    labels = run(
        page,
        "return [...document.querySelectorAll('.menu[data-chart] summary')].map(m => m.getAttribute('aria-label'))",
    )
    assert len(set(labels)) == len(labels)
    assert not any("?" in label for label in labels)


@pytest.mark.parametrize("chart", ["map-chart", "tree-chart", "entropy-chart"])
def test_the_keyboard_saves_a_chart(page, tmp_path, chart):
    from selenium.webdriver.common.keys import Keys

    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for presses, ending in ((1, "png"), (2, "svg")):
        run(page, "document.querySelector(arguments[0]).focus()", f"[data-chart={chart}] summary")
        page.switch_to.active_element.send_keys(Keys.ENTER)
        for _ in range(presses):
            page.switch_to.active_element.send_keys(Keys.TAB)
        page.switch_to.active_element.send_keys(Keys.ENTER)
        path = downloaded(tmp_path, ending)
        assert path.name.startswith("headscape-")
        content = path.read_bytes()
        if ending == "png":
            assert content[:8] == b"\x89PNG\r\n\x1a\n"
            assert int.from_bytes(content[16:20], "big") >= 1280
        else:
            words = content.decode("utf-8")
            assert (
                run(page, f"return document.getElementById('{chart.split('-')[0]}-h').firstChild.textContent")
                in words
            )
            if chart != "entropy-chart":  # what the colors mean travels with the picture
                assert "previous token" in words


def test_help_opens_by_keyboard_and_closes(page, study):
    from selenium.webdriver.common.keys import Keys

    run(page, "document.querySelector('#map-h .help').focus()")
    button = page.switch_to.active_element
    assert button.get_attribute("aria-label") == "What is Map of the heads?"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-expanded") == "true"
    assert "tree EMDs" in run(page, "return document.getElementById('help').textContent")
    button.send_keys(Keys.ESCAPE)
    assert button.get_attribute("aria-expanded") == "false"
    assert run(page, "return document.getElementById('help').hidden")


def test_help_works_by_touch_for_every_column(phone, study):
    titles = run(phone, "return document.querySelectorAll('#head-table thead .sort').length")
    assert run(phone, "return document.querySelectorAll('#head-table thead .help').length") == titles
    run(phone, "document.getElementById('heads').scrollIntoView({behavior: 'instant'})")
    button = phone.find_elements("css selector", "#head-table thead .help")[1]
    button.click()
    box = run(
        phone, "const r = document.getElementById('help').getBoundingClientRect(); return [r.left, r.right]"
    )
    assert box[0] >= 0
    assert box[1] <= 400
    assert "The name of the head." in run(phone, "return document.getElementById('help').textContent")
    click(phone, "#about-h")
    assert run(phone, "return document.getElementById('help').hidden")


def test_help_explains_the_numbers_of_the_panel(page, study):
    shown = "[...document.querySelectorAll('#panel-measures > div')]"
    assert run(page, f"return {shown}.every(e => e.querySelector('dt .help'))")
    run(page, "document.querySelector('#panel-measures .help').focus()")
    page.switch_to.active_element.send_keys("\n")
    words = run(page, "return document.getElementById('help').textContent")
    first = next(column for column in study.columns.values() if column.panel)
    assert first.meaning in words
    assert "rank" in words


def test_help_stands_above_the_sheet_of_a_phone(phone):
    click(phone, "#sheet-open")
    wait(phone, "return document.getElementById('panel').getBoundingClientRect().bottom <= innerHeight + 1")
    click(phone, "#panel-measures .help")
    over = (
        "const r = document.getElementById('help').getBoundingClientRect();"
        "return document.elementFromPoint(r.left + r.width / 2, r.top + 8).closest('#help') !== null"
    )
    assert run(phone, over)
    phone.switch_to.active_element.send_keys("\ue00c")  # escape closes the help first, then the sheet
    assert run(phone, "return document.getElementById('help').hidden")
    assert run(phone, "return document.getElementById('panel').classList.contains('open')")


def test_every_page_that_help_names_exists(page):
    docs = run(page, "return [...document.querySelectorAll('[data-docs]')].map(e => e.dataset.docs)")
    script = (ROOT / "src/headscape/report/page_files/help.js").read_text(encoding="utf-8")
    named = {*docs, *re.findall(r"docs/[\w/]+\.md", script)}
    assert len(named) > 4
    assert all((ROOT / path).exists() for path in named)


def test_every_heading_of_a_chart_has_help(page):
    heads = "[...document.querySelectorAll('main .chart')].map(c => c.closest('section'))"
    assert (
        run(page, f"return {heads}.filter(s => !s.querySelector('h2 .help, h3 .help')).map(s => s.id)") == []
    )


def test_the_first_screen_opens_with_the_first_finding(page, study):
    opening = run(page, "return document.getElementById('opening').textContent")
    assert opening == study.findings[0]
    words = "[...document.querySelectorAll('#opening, #sentences .sentence')]"
    sizes = run(page, f"return {words}.map(e => parseFloat(getComputedStyle(e).fontSize))")
    assert sizes[0] > sizes[1]
    order = run(
        page, "return [...document.querySelectorAll('#opening, #warnings, #sentences')].map(e => e.id)"
    )
    assert order == ["opening", "warnings", "sentences"]
    assert run(page, "return document.getElementById('opening').getBoundingClientRect().bottom < innerHeight")


# As long as the answers about a model with 270 heads are.
ANSWERS = {
    Question.kinds: (480, 270, 250),
    Question.alike: (370, 190),
    Question.unusual: (230,),
    Question.little: (370, 400),
    Question.sure: (290, 110),
    Question.after: (190,),
}


def test_all_questions_are_answered_on_the_first_screen(driver, study, tmp_path):
    words = "a head attends to the first token, " * 20
    answers = [
        Answer(
            question,
            words[:length],
            "numbers" if place else "",
            place < (1 if question in (Question.little, Question.sure) else 2),
        )
        for question, lengths in ANSWERS.items()
        for place, length in enumerate(lengths)
    ]
    path = write_page(replace(page_data(study), answers=answers), tmp_path / "long.html")
    driver.set_window_size(1440, 900)
    browser.open_page(driver, path)
    shown = run(
        driver,
        "return [...document.querySelectorAll('#findings h3')].filter(e => !e.closest('#more')).map(e => "
        "[e.textContent, e.nextElementSibling.getBoundingClientRect().bottom <= innerHeight])",
    )
    assert {text for text, inside in shown if inside} >= set(ANSWERS) - {Question.after}
    kinds = "[...document.querySelectorAll('#opening, #findings > .sentences .sentence')]"
    assert run(driver, f"return {kinds}.map(e => e.textContent.length)") == [480, 270]


@pytest.mark.parametrize("typed", ["1.1", "L1H1"])
def test_one_search_says_where_a_head_is_and_what_it_does(page, typed):
    name = "1.1"
    type_into(page, "#search", typed)
    page.find_element("id", "search").send_keys("\n")
    wait(page, "return document.getElementById('panel').dataset.chosen === arguments[0]", name)
    words = run(page, "return document.getElementById('panel-words').textContent")
    assert any(kind in words for kind in KINDS)
    box = "const b = document.getElementById('panel-words').getBoundingClientRect();"
    assert run(page, f"{box} return b.top >= 0 && b.bottom <= innerHeight")
