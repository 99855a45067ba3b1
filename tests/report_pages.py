"""What tests of the report in a browser share: scripts, waiting, and a page whose heads and folders have names."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscape.report.page import PageData, write_page
from headscape.report.section import Section
from headscape.study.display import page_data
from headscape.study.study import Study

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
KINDS = ("first token", "previous token", "mixed", "<b>odd</b> & kind")
FOLLOWS = ("attention to the first token, r = -0.90", "attention to itself, r = 0.55", "layer, r = 0.40")


def run(page: Any, script: str, *arguments: Any) -> Any:
    """Run a script in the page and return what it returns."""
    return page.execute_script(script, *arguments)


def wait(page: Any, script: str, *arguments: Any) -> None:
    """Wait until a script returns something true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 20).until(lambda driver: driver.execute_script(script, *arguments))


def click(page: Any, selector: str) -> None:
    """Click on the first element that a selector finds."""
    run(page, "document.querySelector(arguments[0]).click()", selector)


def type_into(page: Any, selector: str, text: str) -> None:
    """Give a field a text, as typing does; a select its value."""
    script = (
        "const box = document.querySelector(arguments[0]); box.value = arguments[1];"
        "for (const name of ['input', 'change']) box.dispatchEvent(new Event(name, {bubbles: true}))"
    )
    run(page, script, selector, text)


def look_at(page: Any, name: str) -> None:
    """Scroll to a chart and wait until it is drawn."""
    run(page, "document.getElementById(arguments[0]).scrollIntoView({behavior: 'instant'})", name)
    wait(page, "return document.querySelector(`#${arguments[0]} .main-svg`) !== null", name)


def look_at_everything(page: Any) -> None:
    """Let every chart be drawn."""
    for name in charts(page):
        look_at(page, name)
    run(page, "scrollTo({top: 0, behavior: 'instant'})")


def charts(page: Any) -> list[str]:
    """Return the charts of all sections that are there; on a phone the panel is closed at first."""
    return run(
        page,
        "return [...document.querySelectorAll('.chart')].filter(c => "
        "c.checkVisibility({visibilityProperty: true})).map(c => c.id)",
    )


def table_heads(page: Any) -> list[str]:
    """Return the heads that the table shows, in its order."""
    return run(
        page, "return [...document.querySelectorAll('#head-table tbody button')].map(b => b.textContent)"
    )


def screen(page: Any, width: int, height: int) -> None:
    """Give the page a screen of another size; a narrow one is a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def violations(page: Any, axe: str) -> list[Any]:
    """Return what axe-core finds against the accessibility rules of WCAG 2.1, level AA."""
    page.set_script_timeout(120)
    run(page, axe)
    script = (
        "const done = arguments[1];"
        "axe.run(document, {resultTypes: ['violations'], runOnly: {type: 'tag', values: arguments[0]}})"
        ".then(found => done(found.violations.map(v => [v.id, v.nodes.map(n => n.target.join(' '))])))"
    )
    return page.execute_async_script(script, RULES)


def downloaded(folder: Path, ending: str) -> Path:
    """Wait for a download and return its path."""
    for _ in range(150):
        found = [path for path in folder.glob(f"*.{ending}") if path.stat().st_size]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"no {ending} was downloaded")


def kinds_of(study: Study) -> list[str]:
    """Return a made-up kind per head: head n of a layer has kind n modulo 4."""
    return [KINDS[head % len(KINDS)] for _, head in study.data.heads]


def names_of(study: Study) -> list[str]:
    """Return a made-up name per head, with a number."""
    return ["mixed" if kind == "mixed" else f"{kind} (0.{70 + i})" for i, kind in enumerate(kinds_of(study))]


def named_page_data(study: Study) -> PageData:
    """Return the page of a study with names, folder names, support and a second map, all made up."""
    data = page_data(study)
    columns = [
        {
            "key": key,
            "title": key,
            "meaning": f"The {key} of the head.",
            "stage": "patterns",
            "panel": key == "name",
            "table": key == "name",
            "numeric": False,
            "values": values,
        }
        for key, values in (("pattern", kinds_of(study)), ("name", names_of(study)))
    ]
    others = [measure for measure in data.measures if measure["key"] not in ("pattern", "name")]
    sections = [_with_names(section) if section.key == "geometry" else section for section in data.sections]
    geometry = next(section.data for section in sections if section.key == "geometry")
    sinks = {
        "coordinates": [[-x, 2 * y, z] for x, y, z in geometry["coordinates"]],
        "keys": [0],
        "sentence": "Key 0 is a sink in 7 heads.",
    }
    return replace(
        data,
        measures=[*others[:2], *columns, *others[2:]],
        sections=(*(section for section in sections if section.key != "sinks"), Section("sinks", data=sinks)),
    )


def _with_names(section: Section) -> Section:
    n = len(section.data["folders"]["start"])
    more = {
        "folder_names": [f"first token, layers 0-{i} (median 0.81)" if i % 2 else "mixed" for i in range(n)],
        "support": [0.2 if i % 3 == 1 else 0.9 for i in range(n)],
        "coordinates_follow": list(FOLLOWS),
    }
    return replace(section, data={**section.data, **more})


def named_report(study: Study, path: Path) -> Path:
    """Write the page of :func:`named_page_data`."""
    return write_page(named_page_data(study), path)
