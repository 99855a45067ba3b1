"""The report of heads with names, in a real browser: colors, search, selections, filters, folders, the map."""

import csv
import io
import json
import time

import pytest

import browser
from report_pages import (
    FOLLOWS,
    KINDS,
    click,
    kinds_of,
    look_at,
    look_at_everything,
    named_report,
    names_of,
    run,
    table_heads,
    type_into,
    wait,
)
from studies import small_study

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")

CHART = "const chart = document.getElementById(arguments[0]);"
BOX = "const box = document.querySelector('#heads .scroll');"
LEFT = "document.querySelector('{}').getBoundingClientRect().left"
FADED = "return JSON.parse(JSON.stringify(document.getElementById('tree-chart').data[0].marker.colors))"


@pytest.fixture(scope="module")
def study():
    return small_study(layers=4, heads=6, length=32)


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    return named_report(study, tmp_path_factory.mktemp("named") / "report.html")


@pytest.fixture
def page(driver, report):
    browser.open_page(driver, report)
    for chart in ("measure-chart", "map-chart", "tree-chart"):
        look_at(driver, chart)
    yield driver
    assert browser.console_errors(driver) == []


def heads_of(study, kind):
    pairs = zip(study.data.heads, kinds_of(study), strict=True)
    return [f"{layer}.{head}" for (layer, head), own in pairs if own == kind]


def selected_on_the_map(page):
    names = "JSON.parse(document.getElementById('data').textContent).heads.names"
    points = "document.getElementById('map-chart').data[0].selectedpoints"
    return run(page, f"return {points} ? {points}.map(i => {names}[i]) : null")


def test_names_color_the_map_and_stand_in_the_hover(page, study):
    assert run(page, "return document.getElementById('map-color').value") == "family"
    colors = run(page, f"{CHART} return chart.data[0].marker.color", "map-chart")
    kinds = kinds_of(study)
    assert len(set(zip(kinds, colors, strict=True))) == len(set(colors)) == len(KINDS)
    symbols = run(page, f"{CHART} return chart.data[0].marker.symbol", "map-chart")
    assert len(set(symbols)) == len(KINDS) - 1  # mixed heads are gray circles
    texts = run(page, f"{CHART} return chart.data[0].text", "map-chart")
    assert texts[1].startswith(f"head 0.1<br>{names_of(study)[1]}")
    assert "&lt;b&gt;odd" in texts[3]


@pytest.mark.parametrize("control", ["map", "tree", "measure"])
def test_every_view_takes_a_measure_or_the_name(page, study, control):
    select = "#measure" if control == "measure" else f"#{control}-color"
    before = set()
    for value in ("family", "haar_entropy", "mu_K"):
        type_into(page, select, value)
        chart = f"document.getElementById('{control}-chart')"
        key = {"map": "marker.color", "tree": "marker.colors", "measure": "z"}[control]
        before.add(json.dumps(run(page, f"return {chart}.data[0].{key}")))
        legend = run(page, f"return document.getElementById('{control}-legend').hidden")
        assert legend == (value != "family")
    assert len(before) == 3


def test_the_name_is_the_first_column_after_the_head(page, study):
    titles = run(page, "return [...document.querySelectorAll('#head-table .sort')].map(b => b.textContent)")
    assert titles[:2] == ["head", "name"]
    cells = run(
        page, "return [...document.querySelectorAll('#head-table tbody tr')].map(r => r.cells[1].textContent)"
    )
    assert cells == names_of(study)


def test_the_search_finds_a_head_by_number_and_by_words(page, study):
    from selenium.webdriver.common.keys import Keys

    box = page.find_element("id", "search")
    box.send_keys("2.3", Keys.ENTER)
    assert run(page, "return document.getElementById('panel-title').textContent").startswith("Head 2.3")
    assert names_of(study)[15] in run(page, "return document.getElementById('panel').textContent")
    box.clear()
    box.send_keys("previous")
    offered = run(
        page, "return [...document.querySelectorAll('#search-results button')].map(b => b.textContent)"
    )
    previous = heads_of(study, "previous token")
    assert [text.split()[0] for text in offered[:-1]] == previous[:8]
    page.find_elements("css selector", "#search-results button")[-1].click()
    assert selected_on_the_map(page) == previous
    box.clear()
    box.send_keys("nothing of the kind")
    assert "No head" in run(page, "return document.getElementById('search-results').textContent")
    box.send_keys(Keys.ESCAPE)
    assert run(page, "return document.getElementById('search-results').hidden")


def test_a_family_of_the_legend_is_selected_in_all_views(page, study):
    click(page, "#map-legend [data-family='previous token']")
    wanted = heads_of(study, "previous token")
    assert selected_on_the_map(page) == wanted
    assert table_heads(page) == wanted
    veiled = run(
        page, "return document.getElementById('measure-chart').data[1].z.flat().filter(v => v === 1).length"
    )
    assert veiled == 24 - len(wanted)
    assert "8 heads selected" in run(page, "return document.getElementById('selection').textContent")
    pressed = run(
        page,
        "return [...document.querySelectorAll('[aria-pressed=true][data-family]')].map(b => b.dataset.family)",
    )
    assert pressed == ["previous token"] * 3
    click(page, "#tree-legend [data-family='mixed']")
    assert len(table_heads(page)) == len(wanted) + len(heads_of(study, "mixed"))
    click(page, "#only-selected")
    assert len(table_heads(page)) == 24
    click(page, "#selection-clear")
    assert selected_on_the_map(page) is None
    assert run(page, "return document.getElementById('selection').hidden")
    assert len(run(page, "return document.getElementById('measure-chart').data")) == 1


def test_a_lasso_selects_in_all_views(page):
    from selenium.webdriver.common.action_chains import ActionChains

    click(page, "#map-lasso")
    run(page, "document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    plot = page.find_element("css selector", "#map-chart .nsewdrag")
    width, height = plot.size["width"], plot.size["height"]
    moves = ActionChains(page).move_to_element_with_offset(plot, -width // 2 + 3, -height // 2 + 3)
    moves = moves.click_and_hold()
    for x, y in ((width // 2 - 6, 0), (0, height - 6), (6 - width // 2, 0)):
        moves = moves.move_by_offset(x, y)
    moves.release().perform()
    wait(page, "return !document.getElementById('selection').hidden")
    xs = run(page, "return document.getElementById('map-chart').data[0].x")
    middle = run(
        page,
        "const r = document.getElementById('map-chart')._fullLayout.xaxis.range; return (r[0] + r[1]) / 2",
    )
    chosen = selected_on_the_map(page)
    assert abs(len(chosen) - sum(x < middle for x in xs)) <= 1
    assert sorted(table_heads(page)) == sorted(chosen)
    click(page, "#selection-clear")
    assert selected_on_the_map(page) is None
    assert len(table_heads(page)) == 24


def test_what_the_table_shows_can_be_selected_without_a_mouse(page):
    type_into(page, "#filter", "layer >= 2, name contains previous")
    click(page, "#select-shown")
    assert selected_on_the_map(page) == ["2.1", "2.5", "3.1", "3.5"]


def test_axes_say_what_they_follow_and_the_sinks_can_go(page):
    title = f"{CHART} return chart.layout.xaxis.title.text.replaceAll('<br>', ' ')"
    assert run(page, title, "map-chart") == f"coordinate 1: {FOLLOWS[0]}"
    before = run(page, f"{CHART} return chart.data[0].x", "map-chart")
    click(page, "#sinks-without")
    assert run(page, f"{CHART} return chart.data[0].x", "map-chart") == [-x for x in before]
    assert run(page, f"{CHART} return chart.dataset.sinks", "map-chart") == "without"
    assert FOLLOWS[0] not in run(page, title, "map-chart")
    assert "sink in 7 heads" in run(page, "return document.getElementById('map').textContent")
    click(page, "#map-3d")
    wait(page, "return document.getElementById('map-chart').data[0].type === 'scatter3d'")
    click(page, "#map-2d")
    page.get_log("browser")  # WebGL complains about its performance


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("haar_entropy < {median}", lambda row, median: row["haar_entropy"] < median),
        ("layer >= 2 and head != 3", lambda row, median: row["layer"] >= 2 and row["head"] != 3),
        (
            "haar_entropy >= {median}; name contains FIRST",
            lambda row, median: row["haar_entropy"] >= median and row["head"] % 4 == 0,
        ),
        ("layer = 1", lambda row, median: row["layer"] == 1),
    ],
)
def test_conditions_filter_the_table(page, study, text, keep):
    median = float(study.heads["haar_entropy"].median())
    type_into(page, "#filter", text.format(median=median))
    rows = study.heads.reset_index().to_dict("records")
    assert table_heads(page) == [f"{r['layer']}.{r['head']}" for r in rows if keep(r, median)]
    assert run(page, "return document.getElementById('filter-error').textContent") == ""


def test_a_condition_that_cannot_be_read_says_so(page):
    type_into(page, "#filter", "entropie < 3")
    assert "no column “entropie”" in run(page, "return document.getElementById('filter-error').textContent")
    assert len(table_heads(page)) == 24


def test_boxes_under_the_titles_filter_together(page, study):
    value = float(study.heads["haar_entropy"].median())
    type_into(page, ".filters [data-column=haar_entropy]", f"> {value}")
    type_into(page, ".filters [data-column=name]", "token")
    kinds = dict(zip(study.heads.index, kinds_of(study), strict=True))
    wanted = [
        f"{layer}.{head}"
        for (layer, head), entropy in study.heads["haar_entropy"].items()
        if entropy > value and "token" in kinds[layer, head]
    ]
    assert table_heads(page) == wanted
    assert run(page, "return document.getElementById('count').textContent") == f"{len(wanted)} of 24"


def test_columns_can_be_chosen(page, study):
    shown = "return [...document.querySelectorAll('.filters input')].map(i => i.dataset.column)"
    assert "haar_entropy_low" not in run(page, shown)
    click(page, "#columns summary")
    click(page, "#columns [data-column=haar_entropy_low]")
    click(page, "#columns [data-column=haar_entropy]")
    assert "haar_entropy_low" in run(page, shown)
    assert "haar_entropy" not in run(page, shown)
    click(page, "#columns-all")
    assert set(run(page, shown)) == {"layer", "head", "pattern", "name", *study.heads}
    run(page, "document.getElementById('heads').scrollIntoView({behavior: 'instant'})")
    wait(page, f"{BOX} return box.scrollWidth > box.clientWidth")
    assert run(page, "return document.documentElement.scrollWidth <= innerWidth")
    run(page, f"{BOX} box.scrollLeft = 400")
    shift = run(page, f"{BOX} return {LEFT.format('#head-table tbody th')} - {LEFT.format('#heads .scroll')}")
    assert abs(shift) <= 2
    cut = "[...document.querySelectorAll('#head-table tbody :is(th, td)')].filter(e => e.scrollWidth > e.clientWidth)"
    assert run(page, f"return {cut}.map(e => e.textContent)") == []


def downloaded(page, folder, name, button):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    click(page, button)
    for _ in range(100):
        if (folder / name).exists():
            return (folder / name).read_text(encoding="utf-8")
        time.sleep(0.1)
    raise AssertionError(f"{name} was not downloaded")


def test_what_is_shown_can_be_downloaded(page, study, tmp_path):
    type_into(page, "#filter", "layer = 1")
    click(page, "#columns-all")
    rows = list(csv.DictReader(io.StringIO(downloaded(page, tmp_path, "heads.csv", "#table-csv"))))
    assert [row["head"] for row in rows] == list("012345")
    assert [float(row["mu_K"]) for row in rows] == study.heads.loc[1, "mu_K"].tolist()
    assert [row["name"] for row in rows] == names_of(study)[6:12]
    found = json.loads(downloaded(page, tmp_path, "heads.json", "#table-json"))
    assert found["format"] == "headscape/head-table/1"
    assert [row["mu_K"] for row in found["heads"]] == study.heads.loc[1, "mu_K"].tolist()
    assert list(found["heads"][0]) == list(rows[0])


def test_folders_have_names_and_fade_without_support(page, study):
    texts = run(page, "return document.getElementById('tree-chart').data[0].hovertext")
    ids = run(page, "return document.getElementById('tree-chart').data[0].ids")
    folders = study["folders"].geometry.tree.folders
    wide = next(i for i in range(1, len(folders.size), 2) if folders.size[i] > 1)
    assert f"layers 0-{wide}" in texts[ids.index(f"f{wide}")]
    type_into(page, "#tree-color", "layer")
    labels = run(page, "return document.getElementById('tree-chart').data[0].labels")
    assert any("first token" in label for label in labels)
    assert all("median" not in label for label in labels)
    weak = [i for i in range(1, len(folders.size)) if folders.size[i] > 1 and i % 3 == 1]
    assert f"{len(weak)} folder" in run(page, "return document.getElementById('tree-support').textContent")
    assert "support 0.2: little" in texts[ids.index(f"f{weak[0]}")]


def test_labels_stand_only_where_they_fit(page):
    too_wide = """
      const boxes = [...document.querySelectorAll('#tree-chart .slice')];
      return boxes.filter(s => { const t = s.querySelector('text'); if (!t || !t.textContent) return false;
        const a = t.getBoundingClientRect(), b = s.querySelector('path.surface').getBoundingClientRect();
        const shown = getComputedStyle(t).display !== 'none' && a.width > 0;
        return shown && (a.right > b.right + 2 || a.bottom > b.bottom + 2); }).length"""
    wait(page, f"{too_wide} === 0")
    assert run(page, "return document.getElementById('tree-chart').data[0].labels.filter(Boolean).length") > 3


def test_an_open_folder_keeps_the_way_back(page, study):
    folders = study["folders"].geometry.tree.folders
    inner = max(i for i in range(len(folders.size)) if folders.size[i] > 1 and folders.parent[i] > 0)
    chain = [inner]
    while chain[-1] > 0:
        chain.append(int(folders.parent[chain[-1]]))
    for folder in chain[-2::-1]:
        inside = run(
            page, "return [...document.querySelectorAll('#tree-inside button')].map(b => b.dataset.folder)"
        )
        if str(folder) in inside:
            click(page, f"#tree-inside [data-folder='{folder}']")
        else:  # only the largest are listed
            event = "{points: [{id: arguments[0]}]}"
            run(
                page,
                f"document.getElementById('tree-chart').emit('plotly_icicleclick', {event})",
                f"f{folder}",
            )
    opened = "return document.getElementById('tree-chart').dataset.open"
    assert run(page, opened) == f"f{inner}"
    path = run(
        page, "return [...document.querySelectorAll('#tree-path button')].map(b => Number(b.dataset.folder))"
    )
    assert path == chain[::-1]
    click(page, "#tree-back")
    assert run(page, opened) == f"f{chain[1]}"
    click(page, "#tree-path [data-folder='0']")
    assert run(page, opened) == "f0"
    assert run(page, "return document.getElementById('tree-back').disabled")


def test_one_layer_has_a_color_too(driver, tmp_path):
    path = small_study(layers=1, windows=1, stages=["geometry"]).report(tmp_path / "one.html")
    browser.open_page(driver, path)
    look_at_everything(driver)
    for chart, trace in (("map-chart", 0), ("tree-chart", 1)):
        bounds = run(driver, f"{CHART} const m = chart.data[{trace}].marker; return [m.cmin, m.cmax]", chart)
        assert bounds == [-0.5, 0.5]
    assert "NaN" not in json.dumps(run(driver, FADED))
    assert browser.console_errors(driver) == []
