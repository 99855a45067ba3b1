"""The report in a real browser: headless Chromium, from disk, offline."""

import json

import numpy as np
import pytest

import browser
from headscape.study.analyze import analyze
from report_pages import charts, click, look_at, look_at_everything, run, table_heads, wait
from studies import ODD_NAME, ODD_TOKENS, small_capture, small_study

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")

ROWS = "[...document.querySelectorAll('#head-table tbody tr')]"
LINKED = (
    "map-chart",
    "measure-chart",
    "tree-chart",
    "affinity-chart",
    "entropy-chart",
    "energy-chart",
    "spread-chart",
    "panel",
    "pictures",
    "haar-chart",
    "nearest",
    "head-table",
)


@pytest.fixture(scope="module")
def study():
    return small_study(layers=4, heads=6, length=32, name=ODD_NAME)


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    return study.report(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(driver, report):
    """The page with every chart drawn, as after a look at all of it."""
    browser.open_page(driver, report)
    look_at_everything(driver)
    return driver


@pytest.fixture
def fresh(driver, report):
    """The page as it opens."""
    browser.open_page(driver, report)
    return driver


def drawn(page):
    return set(
        run(page, "return [...document.querySelectorAll('.chart:has(.main-svg)')].map(chart => chart.id)")
    )


def marked(page):
    return {
        name: run(page, "return document.getElementById(arguments[0]).dataset.chosen", name)
        for name in LINKED
    }


def choose_in_table(page, name):
    wanted = (
        "[...document.querySelectorAll('#head-table tbody button')].find(b => b.textContent === arguments[0])"
    )
    run(page, f"{wanted}.click()", name)


def test_it_opens_without_errors_and_without_asking_for_anything(page, report):
    assert browser.console_errors(page) == []
    assert {url.split("#")[0] for url in browser.requested_urls(page)} == {report.resolve().as_uri()}
    assert run(page, "return document.querySelectorAll('.chart .main-svg').length") >= 7


def test_only_charts_near_the_screen_are_drawn_when_it_opens(fresh):
    assert {"map-chart", "measure-chart"} <= drawn(fresh)
    far = run(
        fresh,
        "return [...document.querySelectorAll('main .chart')]"
        ".filter(c => c.getBoundingClientRect().top > innerHeight + 300).map(c => c.id)",
    )
    assert {"energy-chart", "spread-chart"} <= set(far)
    assert drawn(fresh).isdisjoint(far)
    look_at(fresh, "spread-chart")
    assert "spread-chart" in drawn(fresh)
    assert browser.console_errors(fresh) == []


def test_a_chart_drawn_later_marks_the_head_chosen_before(fresh, study):
    choose_in_table(fresh, "2.3")
    assert "energy-chart" not in drawn(fresh)
    assert marked(fresh)["energy-chart"] is None
    look_at_everything(fresh)
    assert marked(fresh) == dict.fromkeys(LINKED, "2.3")
    spectrum = run(fresh, "return document.getElementById('energy-chart').data.at(-1).hovertemplate")
    assert spectrum.startswith("head 2.3")
    cross = run(fresh, "return document.getElementById('affinity-chart').layout.shapes[0].x0")
    assert cross == study.heads.loc[(2, 3), "place"]


def test_a_chart_drawn_later_follows_the_controls_and_the_theme(fresh):
    run(fresh, "document.getElementById('theme').click()")
    run(fresh, "document.getElementById('affinity-layer').click()")
    assert "affinity-chart" not in drawn(fresh)
    look_at(fresh, "affinity-chart")
    assert run(fresh, "return document.getElementById('affinity-chart').dataset.order") == "layer"
    ink = run(fresh, "return document.getElementById('affinity-chart').layout.font.color")
    assert ink == run(
        fresh, "return getComputedStyle(document.documentElement).getPropertyValue('--quiet').trim()"
    )


def test_words_table_and_panel_wait_for_no_chart(driver, report):
    # Charts begin after the first frame: without frames the page stays as it is before them.
    script = {"source": "window.requestAnimationFrame = () => 0"}
    added = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
    try:
        driver.get("about:blank")
        driver.get(report.resolve().as_uri())
        wait(driver, "return document.getElementById('pictures').dataset.drawn !== undefined")
        choose_in_table(driver, "1.4")
        run(driver, "document.getElementById('map-3d').click()")
        wait(driver, "return document.getElementById('pictures').dataset.drawn === '1.4'")
        assert run(driver, "return document.getElementById('panel-title').textContent") == "Head 1.4"
        assert run(driver, "return typeof Plotly") == "undefined"
        assert browser.console_errors(driver) == []
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_printing_draws_what_is_missing(fresh):
    assert drawn(fresh) < set(charts(fresh))
    fresh.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert drawn(fresh) == set(charts(fresh))
    assert browser.console_errors(fresh) == []


def test_rows_far_from_the_screen_are_not_laid_out(fresh):
    seen = "return document.querySelector('#head-table tbody').checkVisibility({contentVisibilityAuto: true})"
    choose_in_table(fresh, "3.5")
    wait(fresh, seen.replace("return ", "return !"))  # the browser decides anew with every frame
    run(fresh, "document.getElementById('heads').scrollIntoView({behavior: 'instant'})")
    wait(fresh, seen)


def test_a_head_chosen_in_the_table_is_marked_everywhere(page, study):
    choose_in_table(page, "2.3")
    assert marked(page) == dict.fromkeys(LINKED, "2.3")
    assert run(page, "return document.getElementById('panel-title').textContent") == "Head 2.3"
    assert run(page, "return document.getElementById('announce').textContent") == "Head 2.3 chosen"
    wait(page, "return document.getElementById('pictures').dataset.drawn === '2.3'")
    ring = run(page, "const t = document.getElementById('map-chart').data[1]; return [t.x[0], t.y[0]]")
    index = study.capture.heads.index((2, 3))
    expected = study["folders"].geometry.diffusion_map()[index, :2]
    assert ring == pytest.approx(expected.tolist(), abs=1e-6)
    outline = run(
        page, "const s = document.getElementById('measure-chart').layout.shapes[0]; return [s.x0, s.y0]"
    )
    assert outline == [1.5, 2.5]
    cross = run(page, "return document.getElementById('affinity-chart').layout.shapes[0].x0")
    assert cross == study.heads.loc[(2, 3), "place"]
    nearest = run(page, "return document.querySelector('#nearest button').textContent")
    assert nearest == study.heads.loc[(2, 3), "nearest"]
    spectrum = run(page, "return document.getElementById('energy-chart').data.at(-1).hovertemplate")
    assert spectrum.startswith("head 2.3")


@pytest.mark.parametrize(
    ("chart", "event", "head"),
    [
        ("map-chart", "{points: [{curveNumber: 0, pointNumber: 7}]}", 7),
        ("measure-chart", "{points: [{x: 3, y: 1}]}", 19),
        ("spread-chart", "{points: [{curveNumber: 0, pointNumber: 11}]}", 11),
        ("affinity-chart", "{points: [{x: 0, y: 4}]}", None),
        ("entropy-chart", "{points: [{x: 2}]}", None),
    ],
)
def test_charts_choose_heads_too(page, study, chart, event, head):
    run(page, f"document.getElementById(arguments[0]).emit('plotly_click', {event})", chart)
    if head is None:
        order = study["folders"].geometry.tree.order
        ranks = study["entropy"].stability.mean_ranks
        head = int(order[4]) if chart == "affinity-chart" else int(np.argsort(ranks, kind="stable")[2])
    layer, number = study.capture.heads[head]
    assert set(marked(page).values()) == {f"{layer}.{number}"}


def test_a_click_on_the_map_reaches_a_point(page):
    from selenium.webdriver.common.action_chains import ActionChains

    before = run(page, "return document.getElementById('map-chart').dataset.chosen")
    points = page.find_elements("css selector", "#map-chart .scatterlayer .trace:first-child path.point")
    target = next(p for i, p in enumerate(points) if i in (0, 9) and str(i) != before)
    ActionChains(page).scroll_to_element(target).move_to_element(target).click().perform()
    wait(page, "return document.getElementById('map-chart').dataset.chosen !== arguments[0]", before)
    assert len(set(marked(page).values())) == 1


def test_the_tree_collapses_and_opens(page, study):
    sectors = "return document.querySelectorAll('#tree-chart .slice').length"
    whole = run(page, sectors)
    assert whole == study["folders"].geometry.tree.n_folders
    run(
        page,
        "const s = document.getElementById('tree-depth'); s.value = '2'; s.dispatchEvent(new Event('change'))",
    )
    wait(page, f"{sectors} < arguments[0]", whole)
    run(page, "document.getElementById('tree-reset').click()")
    wait(page, f"{sectors} === arguments[0]", whole)


def test_a_folder_opens_alone_and_a_leaf_chooses_its_head(page, study):
    folders = study["folders"].geometry.tree.folders
    inner = next(i for i in range(1, len(folders.start)) if folders.size[i] > 1)
    event = "{points: [{id: arguments[0]}], nextLevel: arguments[0]}"
    emit = f"document.getElementById('tree-chart').emit('plotly_icicleclick', {event})"
    run(page, emit, f"f{inner}")
    assert run(page, "return document.getElementById('tree-chart').dataset.open") == f"f{inner}"
    leaf = next(i for i in range(len(folders.start)) if folders.size[i] == 1)
    run(page, emit, f"f{leaf}")
    layer, head = study.capture.heads[int(study["folders"].geometry.tree.order[folders.start[leaf]])]
    assert set(marked(page).values()) == {f"{layer}.{head}"}


def test_organized_order_permutes_the_picture(page, study):
    choose_in_table(page, "1.2")
    wait(page, "return document.getElementById('pictures').dataset.drawn === '1.2'")
    pixels = (
        "const c = document.getElementById('attention');"
        "return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    original = np.array(run(page, pixels)).reshape(32, 32, 4)
    run(page, "document.getElementById('order-organized').click()")
    organized = np.array(run(page, pixels)).reshape(32, 32, 4)
    order = study.organization.order
    np.testing.assert_array_equal(organized, original[np.ix_(order["query"], order["key"])])
    assert (organized != original).any()


def test_dark_and_light(page):
    color = "return getComputedStyle(document.body).backgroundColor"
    before, theme = run(page, color), run(page, "return document.documentElement.dataset.theme")
    run(page, "document.getElementById('theme').click()")
    assert run(page, color) != before
    assert run(page, "return document.documentElement.dataset.theme") != theme
    ink = run(page, "return document.getElementById('map-chart').layout.font.color")
    assert ink == run(
        page, "return getComputedStyle(document.documentElement).getPropertyValue('--quiet').trim()"
    )


def test_the_theme_follows_the_system(driver, report):
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.open_page(driver, report)
    assert run(driver, "return document.documentElement.dataset.theme") == "dark"
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_keyboard_alone_chooses_and_sorts(page):
    from selenium.webdriver.common.keys import Keys

    choose_in_table(page, "0.0")
    run(page, "document.querySelector('#head-table tr[aria-current] button').focus()")
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert set(marked(page).values()) == {"0.2"}
    assert page.switch_to.active_element.text == "0.2"
    page.switch_to.active_element.send_keys(Keys.END)
    assert set(marked(page).values()) == {"3.5"}
    header = page.find_elements("css selector", "#head-table thead .sort")[1]
    header.send_keys(Keys.ENTER)
    assert run(page, "return document.querySelectorAll('#head-table th[aria-sort=ascending]').length") == 1
    shown = run(page, f"return {ROWS}.map(r => JSON.parse(r.cells[1].dataset.value))")
    assert shown == sorted(shown)
    header.send_keys(Keys.SPACE)
    shown = run(page, f"return {ROWS}.map(r => JSON.parse(r.cells[1].dataset.value))")
    assert shown == sorted(shown, reverse=True)


def test_the_filter_finds_a_layer(page):
    box = page.find_element("id", "filter")
    box.send_keys("2.")
    assert table_heads(page) == [f"2.{head}" for head in range(6)]


def test_numbers_in_the_page_equal_table_and_json(page, study, tmp_path):
    study.save(tmp_path)
    rows = {(r["layer"], r["head"]): r for r in json.loads((tmp_path / "heads.json").read_text())["heads"]}
    click(page, "#columns-all")
    keys = run(page, "return [...document.querySelectorAll('.filters input')].map(i => i.dataset.column)")
    assert set(keys) == {"layer", "head", *study.heads}
    cells = run(
        page,
        f"return {ROWS}.map(r => [r.cells[0].textContent, "
        "...[...r.cells].slice(1).map(c => JSON.parse(c.dataset.value))])",
    )
    assert len(cells) == len(study.heads)
    for name, *values in cells:
        layer, head = map(int, name.split("."))
        assert dict(zip(keys, values, strict=True)) == {key: rows[layer, head][key] for key in keys}
    sentences = run(
        page,
        "return [...document.querySelectorAll('.opening, .sentences .sentence')].map(l => l.textContent)",
    )
    assert sorted(sentences) == sorted(study.findings)


def test_tokens_and_names_are_text(page):
    assert run(page, "return document.getElementById('title').textContent") == ODD_NAME
    assert run(page, "return document.querySelectorAll('#tokens script, #tokens b, h1 img').length") == 0
    assert ODD_TOKENS[0] in run(page, "return document.getElementById('tokens').textContent")
    assert run(page, "return document.title") == f"headscape: {ODD_NAME}"
    assert browser.console_errors(page) == []


def test_a_token_shows_where_it_looks(page, study):
    choose_in_table(page, "1.1")
    wait(page, "return document.getElementById('pictures').dataset.drawn === '1.1'")
    run(page, "document.querySelectorAll('#tokens span')[10].click()")
    assert run(page, "return document.getElementById('tokens').dataset.query") == "10"
    titles = run(page, "return [...document.querySelectorAll('#tokens span')].map(s => parseFloat(s.title))")
    attention = study.capture.tensor(0).head(1, 1)[10]
    np.testing.assert_allclose(titles, attention, atol=0.02)


def test_three_dimensions(page):
    run(page, "document.getElementById('map-3d').click()")
    wait(page, "return document.getElementById('map-chart').data[0].type === 'scatter3d'")
    severe = [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []
    run(page, "document.getElementById('map-2d').click()")
    wait(page, "return document.getElementById('map-chart').data[0].type === 'scatter'")


def test_it_prints_on_a_few_pages(page):
    import base64

    printed = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    pdf = base64.b64decode(printed["data"])
    assert 2 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 12


def test_missing_stages_leave_their_sections_out(driver, tmp_path):
    path = small_study(stages=[], windows=1).report(tmp_path / "bare.html")
    browser.open_page(driver, path)
    there = run(
        driver,
        "return ['map', 'entropy', 'energy', 'invariants'].map(i => Boolean(document.getElementById(i)))",
    )
    assert there == [True, False, False, False]
    assert browser.console_errors(driver) == []


@pytest.mark.real
def test_a_thousand_heads_open_and_stay_small(driver, tmp_path):
    study = analyze(
        small_capture(windows=1, layers=32, heads=32, length=64), n_iter=1, stages=["entropy", "energy"]
    )
    path = study.report(tmp_path / "large.html")
    assert path.stat().st_size < 20e6
    browser.open_page(driver, path)
    look_at_everything(driver)
    choose_in_table(driver, "31.31")
    assert set(marked(driver).values()) == {"31.31"}
    assert browser.console_errors(driver) == []
