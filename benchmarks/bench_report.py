"""Report: how long a page of 270 heads takes to open, in a Chromium that has just started and in one that runs."""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import headscape as hs
from benchmarks.harness import Measure, Row

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import browser

LAYERS, HEADS, LENGTH, WINDOWS = 30, 9, 256, 2
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
    if browser.missing():
        print(f"report: left out, {browser.missing()}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = synthetic_report(Path(folder))
        cold, running = [], []
        for _ in range(REPEATS):
            with browser.browser() as driver:
                driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
                cold.append(opening(driver, path))
                running.append(opening(driver, path))
        size = path.stat().st_size / 1e6
    what = f"report of {LAYERS * HEADS} heads"
    return [
        Measure(f"{what}, size", size, "MB", "wanted: < 10"),
        *measures(f"{what}, Chromium just started, empty profile", cold),
        *measures(f"{what}, opened again in the same Chromium", running),
    ]


def synthetic_report(folder: Path) -> Path:
    """Analyze random queries and keys and write their report."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(WINDOWS, LAYERS, HEADS, LENGTH, 16)).astype(np.float32)
    keys = rng.normal(size=(WINDOWS, LAYERS, HEADS // 3, LENGTH, 16)).astype(np.float32)
    tokens = [f"token{i}" for i in range(LENGTH)]
    capture = hs.Capture.from_arrays(queries, keys, tokens=tokens)
    return hs.analyze(capture, n_iter=1, stages=["entropy", "energy"]).report(folder / "report.html")


def opening(driver: Any, path: Path) -> list[float]:
    """Open the page and return the seconds from the start of the navigation to each step."""
    browser.open_page(driver, path)
    return [float(value) for value in driver.execute_script(TIMES)]


def measures(name: str, runs: list[list[float]]) -> list[Measure]:
    made = []
    for step, times in zip(STEPS, zip(*runs, strict=True), strict=True):
        wanted = "; wanted: < 2" if step == STEPS[-1] else ""
        note = f"median of {len(times)}, {min(times):.2f}-{max(times):.2f} s{wanted}"
        made.append(Measure(f"{name}: {step}", statistics.median(times), "s", note))
    return made
