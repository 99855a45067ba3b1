"""The panel of a head in a real browser: fields computed in the page, the larger view, pins, the sheet on a phone."""

import dataclasses
import re
from urllib.parse import unquote

import numpy as np
import pytest

import browser
import headscape as hs
from headscape.report.page import write_page
from headscape.report.section import Section
from headscape.study.display import page_data
from headscape.tensor.attention_record import AttentionRecord
from headscape.tensor.fields import energy, probs
from studies import small_study

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")

LENGTH = 160
NOTE = "<b>odd, note</b>: a&b=c #1"


@pytest.fixture(scope="module")
def study():
    return small_study(layers=2, heads=4, windows=2, length=LENGTH, stages=["geometry"], picture_windows=2)


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    return study.report(tmp_path_factory.mktemp("panel") / "report.html")


@pytest.fixture
def page(driver, report):
    browser.open_page(driver, report, "#head=1.2")
    wait_for(driver, "1.2")
    yield driver
    assert browser.console_errors(driver) == []


@pytest.fixture
def phone(driver, report):
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.open_page(driver, report, "#head=1.2")
    wait_for(driver, "1.2")
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.console_errors(driver) == []


def run(page, script, *arguments):
    return page.execute_script(script, *arguments)


def wait(page, script, *arguments):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 20).until(lambda driver: driver.execute_script(script, *arguments))


def wait_for(page, head, other=""):
    drawn = "const d = document.getElementById('pictures').dataset;"
    wait(page, f"{drawn} return d.drawn === arguments[0] && d.other === arguments[1]", head, other)


def click(page, name):
    run(page, "document.getElementById(arguments[0]).click()", name)


def text(page, name):
    return run(page, "return document.getElementById(arguments[0]).textContent", name)


def data_of(page, name):
    return run(page, "return {...document.getElementById(arguments[0]).dataset}", name)


def choose(page, head):
    find = (
        "[...document.querySelectorAll('#head-table tbody button')].find(b => b.textContent === arguments[0])"
    )
    run(page, f"{find}.click()", head)


def row_in_page(page, query):
    """Return the attention of one query, as the titles of the tokens say it."""
    run(page, "document.querySelectorAll('#tokens span')[arguments[0]].click()", query)
    return np.array(
        run(page, "return [...document.querySelectorAll('#tokens span')].map(s => parseFloat(s.title))")
    )


def read_cell(page, canvas, y, x, cells):
    """Point at a cell of a picture of the panel and return its readout."""
    script = """
    const c = document.getElementById(arguments[0]), b = c.getBoundingClientRect(), n = arguments[3];
    const at = (i, start, size) => start + ((i + 0.5) * size) / n;
    const clientX = at(arguments[2], b.left, b.width), clientY = at(arguments[1], b.top, b.height);
    c.dispatchEvent(new MouseEvent('mousemove', { clientX, clientY }));
    return document.getElementById('readout').textContent"""
    return run(page, script, canvas, y, x, cells)


def cell_of(readout):
    """Return query and key that a readout names: pixels of the screen are whole numbers, cells need not be."""
    return tuple(int(n) for n in re.search(r"query (\d+) .*? → key (\d+)", readout).groups())


def number(words, readout):
    return float(re.search(rf"{words} (-?[\d.e-]+)", readout).group(1))


def largest_difference(page):
    return float(re.search(r"at most ([\d.e-]+)", text(page, "window-note")).group(1))


def test_the_panel_computes_all_tokens_of_the_window(page, study):
    assert run(page, "return document.getElementById('attention').width") == LENGTH
    assert f"all {LENGTH} tokens" in text(page, "window-note")
    exact = study.attention(1, 2)
    tolerance = largest_difference(page)
    assert 0 < tolerance <= 0.051
    for query in (0, 1, 77, 128, LENGTH - 1):
        found = row_in_page(page, query)
        np.testing.assert_allclose(found, exact[query], atol=1.1 * tolerance + 1e-4)
        np.testing.assert_allclose(np.abs(found - exact[query]).mean(), 0, atol=0.003)


def test_readouts_tell_attention_and_energy(page, study):
    exact, field = study.attention(1, 2), study.attention(1, 2, field="energy")
    for query, key in ((LENGTH - 1, 3), (140, 130), (50, 50)):
        for canvas in ("attention", "energy-picture"):
            readout = read_cell(page, canvas, query, key, LENGTH)
            cell = cell_of(readout)
            assert np.abs(np.subtract(cell, (query, key))).max() <= 1
            assert number("attention", readout) == pytest.approx(exact[cell], abs=0.02)
            assert number("energy", readout) == pytest.approx(field[cell], abs=0.3)
    assert "hidden by the mask" in read_cell(page, "attention", 3, 100, LENGTH)


def test_another_window_can_be_chosen(page, study):
    first = row_in_page(page, 100)
    run(
        page,
        "const s = document.getElementById('window-choice'); s.value = '1'; s.dispatchEvent(new Event('change'))",
    )
    wait(page, "return document.getElementById('window-note').textContent.startsWith('Window 2 of 2')")
    exact = study.attention(1, 2, window=1)[100]
    wait(page, "return parseFloat(document.querySelector('#tokens span').title) !== arguments[0]", first[0])
    np.testing.assert_allclose(row_in_page(page, 100), exact, atol=0.052)


def record_with(kind, rng, n=24):
    """Return a layer of four heads that share two keys, with one further term."""
    queries = rng.normal(size=(4, n, 8)).astype(np.float32) * 2
    keys = rng.normal(size=(2, n, 8)).astype(np.float32) + 1
    distance = np.arange(n)[None, :] - np.arange(n)[:, None]
    slopes = np.array([0.1, 0.2, 0.4, 0.8], np.float32)[:, None, None]
    visible = np.tri(n, dtype=bool)
    return AttentionRecord(
        0,
        queries,
        keys,
        8**-0.5,
        visible & (distance > -6)
        if kind == "local mask"
        else np.ones((n, n), bool)
        if kind == "full"
        else visible,
        softcap=1.5 if kind == "soft cap" else None,
        bias=(slopes * distance).astype(np.float32)
        if kind == "bias"
        else rng.normal(size=(4, n, n)).astype(np.float32)
        if kind == "any bias"
        else None,
        sinks=np.linspace(-1, 2, 4).astype(np.float32) if kind == "sinks" else None,
    )


@pytest.mark.parametrize("kind", ["full", "local mask", "soft cap", "bias", "sinks", "any bias"])
def test_every_term_of_the_logits_is_in_the_probabilities(driver, tmp_path, kind):
    record = record_with(kind, np.random.default_rng(0))
    tokens = [{"self": {"query": [f"t{i}" for i in range(24)]}}]
    capture = hs.Capture.from_records([[record]], tokens=tokens)
    path = hs.analyze(capture, stages=["geometry"], n_iter=1).report(tmp_path / "report.html")
    browser.open_page(driver, path, "#head=0.3")
    wait_for(driver, "0.3")
    assert ("Computed here" in text(driver, "window-note")) == (kind != "any bias")
    found = np.array([row_in_page(driver, query) for query in range(24)])
    np.testing.assert_allclose(found, probs(record, 3), atol=0.052)
    readout = read_cell(driver, "energy-picture", 20, 18, 24)
    assert number("energy", readout) == pytest.approx(energy(record, 3)[cell_of(readout)], abs=0.3)
    assert browser.console_errors(driver) == []


def test_the_larger_view_opens_in_three_ways_and_gives_the_focus_back(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    is_open = "return document.getElementById('larger').open"
    canvas = page.find_element("id", "attention")
    for way in (
        lambda: click(page, "enlarge"),
        lambda: canvas.send_keys(Keys.ENTER),
        lambda: ActionChains(page).double_click(canvas).perform(),
    ):
        way()
        assert run(page, is_open)
        assert run(page, "return document.activeElement.id") == "larger-one"
        page.switch_to.active_element.send_keys(Keys.ESCAPE)
        assert not run(page, is_open)
        wait(page, "return ['enlarge', 'attention'].includes(document.activeElement.id)")


def test_the_larger_view_zooms_scrolls_and_reads(page, study):
    from selenium.webdriver.common.keys import Keys

    click(page, "enlarge")
    fit = float(data_of(page, "larger")["scale"])
    canvas = page.find_element("id", "larger-one")
    click(page, "zoom-in")
    by_button = float(data_of(page, "larger")["scale"])
    canvas.send_keys("+")
    by_key = float(data_of(page, "larger")["scale"])
    assert by_button == pytest.approx(1.5 * fit)
    assert by_key == pytest.approx(2.25 * fit)
    wheel = """
    const canvas = document.getElementById('larger-one'), box = canvas.getBoundingClientRect();
    const at = { clientX: box.left + 500, clientY: box.top + 300 };
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -300, cancelable: true, ...at }))"""
    run(page, wheel)
    assert float(data_of(page, "larger")["scale"]) > by_key
    x = float(data_of(page, "larger")["x"])
    canvas.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert float(data_of(page, "larger")["x"]) > x
    canvas.send_keys("0")
    assert float(data_of(page, "larger")["scale"]) == pytest.approx(fit)
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT):
        canvas.send_keys(key)
    readout = text(page, "larger-readout")
    assert "query 2 " in readout
    assert "key 1 " in readout
    assert number("attention", readout) == pytest.approx(study.attention(1, 2)[2, 1], abs=0.051)
    click(page, "larger-organized")
    click(page, "larger-energy")
    shown = data_of(page, "larger")
    assert (shown["kind"], shown["order"]) == ("energy", "organized")
    order = study.organization.order
    assert f"query {order['query'][2]} " in text(page, "larger-readout")
    assert data_of(page, "attention")["order"] == "organized"
    click(page, "larger-close")


def touch(page, kind, *places):
    """Put fingers on the screen, move or lift them, as the system reports it."""
    points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@pytest.mark.parametrize("screen", ["page", "phone"])
def test_two_fingers_zoom_the_larger_view_where_they_are(request, screen):
    page = request.getfixturevalue(screen)
    if screen == "phone":
        click(page, "sheet-open")
    click(page, "enlarge")
    fit = float(data_of(page, "larger")["scale"])
    # Moves of fingers are reported once a frame.
    near = (
        "return Math.abs(Number(document.getElementById('larger').dataset.scale) / arguments[0] - 1) < 0.02"
    )
    box = "const b = document.getElementById('larger-one').getBoundingClientRect(); return [b.left, b.top]"
    left, top = run(page, box)

    def under(px, py):
        shown = {name: float(data_of(page, "larger")[name]) for name in ("left", "top", "x", "y", "scale")}
        across, down = px - left - shown["left"], py - top - shown["top"]
        return shown["x"] + across / shown["scale"], shown["y"] + down / shown["scale"]

    shown = data_of(page, "larger")
    half = LENGTH * fit / 2
    x, y = left + float(shown["left"]) + half, top + float(shown["top"]) + half

    before = under(x, y)
    touch(page, "touchStart", (x - 20, y), (x + 20, y))
    touch(page, "touchMove", (x - 60, y), (x + 60, y))
    wait(page, near, 3 * fit)
    assert under(x, y) == pytest.approx(before, abs=0.5)
    touch(page, "touchMove", (x - 30, y), (x + 30, y))
    wait(page, near, 1.5 * fit)
    touch(page, "touchEnd")
    was = sum(float(data_of(page, "larger")[name]) for name in "xy")
    touch(page, "touchStart", (x, y))
    touch(page, "touchMove", (x - 40, y - 40))
    moved = "const {x, y} = document.getElementById('larger').dataset; return Number(x) + Number(y) > arguments[0]"
    wait(page, moved, was + 1)
    assert run(page, near, 1.5 * fit)  # one finger moves, it does not zoom
    touch(page, "touchEnd")
    click(page, "larger-close")


def test_the_larger_view_has_ticks_and_tokens(page):
    record = """
    window.told = []; const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      window.told.push(text); return draw.call(this, text, ...rest);
    };"""
    run(page, record)
    click(page, "enlarge")
    ticks = run(page, "return window.told")
    assert "token20 20" in ticks
    assert "token21 21" not in ticks
    for _ in range(5):
        click(page, "zoom-in")
    run(page, "window.told.length = 0")
    click(page, "zoom-in")
    near = [tick for tick in run(page, "return window.told") if tick.startswith("token")]
    places = sorted({int(tick.split()[-1]) for tick in near})
    assert places == list(range(places[0], places[-1] + 1))
    click(page, "larger-close")


def test_two_heads_stand_side_by_side(page, study):
    run(
        page,
        "const s = document.getElementById('compare'); s.value = '1'; s.dispatchEvent(new Event('change'))",
    )
    wait_for(page, "1.2", "0.1")
    shown = run(
        page,
        "return [...document.querySelectorAll('.pictures figure:not([hidden]) figcaption')].map(c => c.textContent)",
    )
    assert shown == ["attention, head 1.2", "attention, head 0.1", "energy, head 1.2", "energy, head 0.1"]
    readout = read_cell(page, "attention-other", 90, 40, LENGTH)
    cell = cell_of(readout)
    assert number("head 1.2 attention", readout) == pytest.approx(study.attention(1, 2)[cell], abs=0.01)
    assert number("head 0.1 attention", readout) == pytest.approx(study.attention(0, 1)[cell], abs=0.01)
    click(page, "enlarge")
    widths = run(page, "return ['larger-one', 'larger-two'].map(i => document.getElementById(i).clientWidth)")
    assert widths[0] == widths[1] > 300
    assert text(page, "larger-title") == "Head 1.2 and Head 0.1"
    click(page, "larger-close")
    assert "&with=0.1" in page.current_url


def test_pins_with_notes_are_kept_in_the_link(page, report):
    click(page, "pin")
    choose(page, "0.3")
    click(page, "pin")
    field = page.find_element("css selector", "#pins li[data-head='0.3'] input")
    field.send_keys(NOTE)
    url = page.current_url
    assert url.split("#")[1].startswith("head=0.3&pins=1.2:,0.3:")
    assert unquote(url.rpartition(":")[2]) == NOTE
    assert not set("<>&, #") & set(url.rpartition(":")[2])
    browser.open_page(page, report, "#" + url.split("#", 1)[1])
    wait_for(page, "0.3")
    notes = run(
        page,
        "return [...document.querySelectorAll('#pins li')].map(l => [l.dataset.head, l.querySelector('input').value])",
    )
    assert notes == [["1.2", ""], ["0.3", NOTE]]
    assert run(page, "return document.querySelectorAll('#pins b').length") == 0
    assert run(page, "return document.getElementById('pin').getAttribute('aria-pressed')") == "true"
    run(page, "document.querySelector('#pins li[data-head=\"1.2\"] [aria-label^=Compare]').click()")
    wait_for(page, "0.3", "1.2")
    run(page, "document.querySelector('#pins li [aria-label^=Remove]').click()")
    assert "1.2:" not in page.current_url
    click(page, "pin")
    assert "pins" not in page.current_url
    assert run(page, "return document.getElementById('pins').hidden")


def test_a_broken_link_is_read_as_far_as_it_goes(driver, report):
    browser.open_page(driver, report, "#head=9.9&with=x&pins=0.1:%E0%A4%A,7.7:a,<img src=x>,1.3:b:c")
    pins = run(
        driver,
        "return [...document.querySelectorAll('#pins li')].map(l => [l.dataset.head, l.querySelector('input').value])",
    )
    assert pins == [["0.1", "%E0%A4%A"], ["1.3", "b:c"]]
    assert browser.console_errors(driver) == []


def test_name_folder_and_verdict_stand_at_the_top(driver, study, tmp_path):
    page = page_data(study)
    names = page.heads["names"]
    named = {"key": "name", "title": "name", "meaning": "", "panel": True, "table": True, "numeric": False}
    named["values"] = [f"previous <i>token</i> ({n})" for n in names]
    sections = []
    for section in page.sections:
        data = dict(section.data)
        if section.key == "geometry":
            folders = data["folders"]
            sizes = np.subtract(folders["stop"], folders["start"])
            data["folder_names"] = [
                "everything" if i == 0 else "mixed" if n > 1 else "" for i, n in enumerate(sizes)
            ]
        sections.append(dataclasses.replace(section, data=data))
    curve = {"random": False, "repaired": False, "order": names, "low": [], "high": []}
    worse = {**curve, "method": "haar", "verdict": "no better than random", "increase": [0.0, 0.5, 2.0]}
    best = {**curve, "method": "gradient", "verdict": "better than random", "increase": [0.0, 0.1, 1.0]}
    ablation = {"counts": [0, 4, 8], "heads": 8, "intact": 2.0, "curves": [worse, best]}
    sections.append(Section("ablation", data=ablation))
    page = dataclasses.replace(page, measures=[*page.measures, named], sections=tuple(sections))
    path = write_page(page, tmp_path / "named.html")
    browser.open_page(driver, path, "#head=0.2")
    words = run(driver, "return [...document.querySelectorAll('#panel-words dd')].map(d => d.textContent)")
    assert words[0] == "Layer 0, head 2 (counted from 0)"
    assert words[1].startswith("previous <i>token</i> (0.2)")
    assert words[2] == "everything (8 heads)"
    assert words[3].startswith("number 3 of 8 to go by gradient (better than random)")
    assert words[3].endswith("with the first 4 off, the loss is 5 % higher")
    top = run(
        driver,
        "return ['panel-title', 'panel-words', 'panel-measures']"
        ".map(i => document.getElementById(i).getBoundingClientRect().top)",
    )
    assert top == sorted(top)


def sheet(page):
    """Return whether the sheet is open: over the page, within the screen."""
    panel = "const p = document.getElementById('panel');"
    return run(
        page,
        f"{panel} return p.classList.contains('open') && p.checkVisibility({{visibilityProperty: true}})",
    )


def test_on_a_phone_choosing_a_head_opens_a_sheet(phone):
    from selenium.webdriver.common.keys import Keys

    assert not sheet(phone)
    choose(phone, "0.1")
    wait_for(phone, "0.1")
    assert sheet(phone)
    wait(phone, "return document.getElementById('panel').getBoundingClientRect().bottom <= innerHeight + 1")
    box = run(
        phone,
        "const b = document.getElementById('panel').getBoundingClientRect(); return [b.left, b.width, b.top]",
    )
    assert box[0] == 0
    assert box[1] == 400
    assert box[2] > 40
    assert run(phone, "return document.documentElement.scrollWidth <= innerWidth")
    assert run(phone, "return document.getElementById('panel').contains(document.activeElement)")
    assert run(phone, "return document.querySelector('main').inert")
    phone.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not sheet(phone)
    assert not run(phone, "return document.querySelector('main').inert")


def test_on_a_phone_a_search_and_enter_open_the_sheet(phone):
    from selenium.webdriver.common.keys import Keys

    assert not sheet(phone)
    phone.find_element("id", "search").send_keys("L0H1", Keys.ENTER)
    wait_for(phone, "0.1")
    assert sheet(phone)


def test_the_sheet_closes_by_button_backdrop_and_drag(phone):
    from selenium.webdriver.common.action_chains import ActionChains

    run(phone, "document.getElementById('sheet-open').focus()")
    for way in ("button", "backdrop", "drag"):
        click(phone, "sheet-open")
        assert sheet(phone)
        wait(
            phone, "return document.getElementById('panel').getBoundingClientRect().bottom <= innerHeight + 1"
        )
        if way == "drag":
            grip = phone.find_element("id", "sheet-close")
            ActionChains(phone).click_and_hold(grip).move_by_offset(0, 150).release().perform()
        else:
            click(phone, {"button": "sheet-close", "backdrop": "backdrop"}[way])
        assert not sheet(phone), way
        assert run(phone, "return document.activeElement.id") == "sheet-open"


def test_the_larger_view_fits_a_phone(phone):
    from selenium.webdriver.common.keys import Keys

    click(phone, "sheet-open")
    click(phone, "enlarge")
    width = run(phone, "return document.getElementById('larger').getBoundingClientRect().width")
    assert width <= 400
    phone.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert sheet(phone)  # Escape closes one thing after the other


def test_what_would_be_too_large_is_shown_coarse(driver, tmp_path, monkeypatch):
    monkeypatch.setattr("headscape.study.stages.pictures.PACKED_BYTES", 100)
    monkeypatch.setattr("headscape.study.stages.pictures.CELLS", 8 * 3 * 20**2)
    study = small_study(layers=2, heads=4, windows=1, length=LENGTH, stages=["geometry"])
    browser.open_page(driver, study.report(tmp_path / "coarse.html"), "#head=1.2")
    wait_for(driver, "1.2")
    assert "8 x 8 tokens" in text(driver, "window-note")
    assert run(driver, "return document.getElementById('attention').width") == 20
    exact = study.attention(1, 2)
    readout = read_cell(driver, "attention", 12, 5, 20)
    assert "query 96–103 → key 40–47: mean attention" in readout
    block = exact[96:104, 40:48].mean()
    assert number("mean attention", readout) == pytest.approx(float(block), abs=0.005)
    click(driver, "order-organized")
    order = study.organization.order
    organized = exact[np.ix_(order["query"], order["key"])]
    readout = read_cell(driver, "attention", 12, 5, 20)
    assert number("mean attention", readout) == pytest.approx(
        float(organized[96:104, 40:48].mean()), abs=0.005
    )
    assert run(driver, "return document.getElementById('energy-picture').closest('figure').hidden")
    click(driver, "enlarge")
    click(driver, "larger-energy")
    click(driver, "larger-close")
    assert browser.console_errors(driver) == []
