"""Report: how long a page takes to write and to open, in a Chromium that has just started and in one that runs.

The default is 270 heads and 256 tokens; the long one 1,024 heads and 2,048 tokens, whose pictures are coarse.
"""

import dataclasses
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import headscape as hs
from benchmarks.harness import Measure, Row, timed
from headscape.study.stages.context import Context
from headscape.study.stages.pictures import Pictures
from headscape.study.stages.result import Result

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import browser

LAYERS, HEADS, WINDOWS, WIDTH = 30, 9, 2, 64
LONG_LAYERS, LONG_HEADS, LONG_LENGTH, SHORT_LENGTH = 32, 32, 2048, 48
REPEATS = 7
# The page itself takes no times: this watches from outside for what it says about its state.
WATCH = """
new MutationObserver(() => {
  const seen = (name) => performance.getEntriesByName(name).length;
  const panel = document.getElementById("panel");
  if (panel && panel.dataset.chosen && !seen("answers")) performance.mark("answers");
  if (document.documentElement.dataset.ready && !seen("ready")) performance.mark("ready");
}).observe(document, { subtree: true, attributeFilter: ["data-ready", "data-chosen"] });
"""
TIMES = """
const at = (name) => performance.getEntriesByName(name)[0].startTime / 1000;
return [at("first-contentful-paint"), at("answers"), at("ready")];
"""
STEPS = ("first words painted", "table and panel answer", "charts on the screen painted")


def rows() -> list[Row | Measure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = [_written(layers, length, folder) for layers, length in ((4, 64), (10, 128), (30, 256))]
        found: list[Row | Measure] = [row for row, _ in written]
        if browser.missing():
            print(f"report: opening left out, {browser.missing()}", file=sys.stderr)
            return found
        what = f"report of {LONG_LAYERS * LONG_HEADS} heads, {LONG_LENGTH} tokens"
        return [
            *found,
            *_rows(written[-1][1], f"report of {LAYERS * HEADS} heads", "< 12", "< 2"),
            *_rows(long_report(folder), what, "< 15", "< 3"),
        ]


def _rows(path: Path, what: str, size: str, seconds: str) -> list[Measure]:
    cold, running = [], []
    for _ in range(REPEATS):
        with browser.browser() as driver:
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            cold.append(opening(driver, path))
            running.append(opening(driver, path))
    return [
        Measure(f"{what}, size", path.stat().st_size / 1e6, "MB", f"wanted: {size}"),
        *measures(f"{what}, Chromium just started, empty profile", cold, seconds),
        *measures(f"{what}, opened again in the same Chromium", running, seconds),
    ]


def _written(layers: int, length: int, folder: Path) -> tuple[Measure, Path]:
    """Analyze random queries and keys, and time how long their report takes to write."""
    capture = random_capture(WINDOWS, layers, HEADS, HEADS // 3, length, WIDTH)
    study = hs.analyze(capture, n_iter=1, stages=["entropy", "energy"])
    path = folder / f"report{layers}.html"
    name = f"writing the report of {layers * HEADS} heads, {length} tokens"
    return timed(name, lambda: study.report(path)), path


def long_report(folder: Path) -> Path:
    """Write the report of a long window: its pictures are measured, its numbers are those of short ones."""
    short = hs.analyze(
        random_capture(1, LONG_LAYERS, LONG_HEADS, LONG_HEADS // 4, SHORT_LENGTH, 8),
        n_iter=1,
        stages=["entropy", "energy"],
    )
    capture = random_capture(1, LONG_LAYERS, LONG_HEADS, LONG_HEADS // 4, LONG_LENGTH, 8)
    tree = hs.dyadic_trees((LONG_LENGTH, LONG_LENGTH))["query"]
    trees = {**short.organization.trees, "query": tree, "key": tree}
    organization = dataclasses.replace(short.organization, trees=trees)
    context = Context(capture, short.parameters, short.options, (organization,))
    geometry = Result(organization.arrays(), {"organization": organization.attributes()})
    results = {**short.results, "geometry": (geometry,), "pictures": (Pictures().measure(context, 0),)}
    return hs.Study(capture, results, short.parameters, short.about).report(folder / "long.html")


def random_capture(
    windows: int, layers: int, heads: int, kv_heads: int, length: int, width: int, seed: int = 0
) -> hs.Capture:
    """Return a capture of random queries and keys."""
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(windows, layers, heads, length, width)).astype(np.float32)
    keys = rng.normal(size=(windows, layers, kv_heads, length, width)).astype(np.float32)
    return hs.Capture.from_arrays(queries, keys, tokens=[f"token{i}" for i in range(length)])


def opening(driver: Any, path: Path) -> list[float]:
    """Open the page and return the seconds from the start of the navigation to each step."""
    browser.open_page(driver, path)
    return [float(value) for value in driver.execute_script(TIMES)]


def measures(name: str, runs: list[list[float]], seconds: str) -> list[Measure]:
    made = []
    for step, times in zip(STEPS, zip(*runs, strict=True), strict=True):
        wanted = f"; wanted: {seconds}" if step == STEPS[-1] else ""
        note = f"median of {len(times)}, {min(times):.2f}-{max(times):.2f} s{wanted}"
        made.append(Measure(f"{name}: {step}", statistics.median(times), "s", note))
    return made
