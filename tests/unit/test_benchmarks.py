"""The table of benchmarks: how memory is measured, and that the page shows every part with what was saved."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from benchmarks import bench_geometry, harness
from benchmarks.__main__ import PARTS
from benchmarks.harness import RESULTS, Measure, Row, compare, extra_memory, print_table, saved

ROOT = Path(__file__).parents[2]


def results_hook():
    """Load the hook of the documentation, which is no package."""
    spec = importlib.util.spec_from_file_location("docs_results", ROOT / "docs" / "hooks" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process")
def test_memory_of_a_run_is_what_it_takes_beyond_what_was_there():
    kept = np.ones(4 << 20)
    assert extra_memory(lambda: np.ones(8 << 20).sum()) == pytest.approx(64, abs=8)
    assert extra_memory(lambda: kept[:8].sum()) < 8


def test_both_sides_of_a_row_have_a_time_and_a_memory(monkeypatch):
    monkeypatch.setattr(harness, "SHORTEST", 0.001)
    row = compare("sum", lambda: np.ones(1 << 21).sum(), lambda: sum([1.0] * 1000), "a list", wanted="> 0x")
    assert row.low <= row.ratio <= row.high
    assert (row.baseline, row.unit, row.wanted) == ("a list", "s", "> 0x")
    if sys.platform == "linux":
        assert row.memory > row.their_memory


def test_the_baseline_of_the_questionnaire_is_computed_without_our_emd(monkeypatch):
    axes = []

    def dense(x, trees, axis, *arguments, **options):
        axes.append(axis)
        return dense_emd(x, trees, axis, *arguments, **options)

    dense_emd = bench_geometry.dense_emd
    monkeypatch.setattr(bench_geometry, "dense_emd", dense)
    x = np.random.default_rng(0).random((12, 10, 8))
    ours, theirs = hs.Questionnaire(n_iter=3).fit(x), bench_geometry.baseline_questionnaire(x)
    assert len(axes) == 9
    for axis, emd in ours.emd_.items():
        np.testing.assert_allclose(theirs.emd_[axis], emd, rtol=1e-10, atol=1e-12)


def test_the_page_shows_every_part_once(capsys):
    hook, page = results_hook(), (ROOT / "docs" / "benchmarks.md").read_text()
    assert list(hook.BENCHMARKS) == list(PARTS)
    shown = hook.on_page_markdown(page)
    for part, title in hook.BENCHMARKS.items():
        rows = saved(part)
        assert shown.count(f"| **{title}** |") == bool(rows)
        for row in rows:
            assert isinstance(row, Row | Measure)
            assert f"| {row.name} |" in shown
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(PARTS)
    lines = [line for line in shown.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    print_table({part: saved(part) for part in PARTS})
    assert "capture" in capsys.readouterr().out


def test_rooms_measured_on_different_machines_are_told_apart():
    rows = [{"name": "transform", "value": 2.0, "unit": "s", "note": "", "memory": 3.0}]
    machine = {"processor": "any", "cores": 2, "python": "3.11"}
    one = {"Haar": {"machine": machine, "rows": rows}, "Energy": {"machine": machine, "rows": rows}}
    other = json.loads(json.dumps(one))
    other["Energy"]["machine"] |= {"processor": "other", "date": "2026-01-02"}
    same, told = (results_hook()._benchmarks(parts) for parts in (one, other))
    assert same.startswith("Measured on any, 2 cores, Python 3.11, day not recorded.")
    assert (
        "- Haar: any, 2 cores, Python 3.11, day not recorded\n- Energy: other, 2 cores, Python 3.11, 2026-01-02"
        in told
    )
    for part, day in (("Haar", "2026-01-03"), ("Energy", "2026-01-02")):
        one[part]["machine"] = machine | {"date": day}
    told = results_hook()._benchmarks(one)
    assert told.startswith("Measured on any, 2 cores, Python 3.11, 2026-01-02 to 2026-01-03.")
    assert "| transform | 2 s |  |  | 3 MiB |" in told


def test_the_guide_of_the_monitor_shows_what_it_costs():
    shown = results_hook().on_page_markdown((ROOT / "docs" / "guides" / "monitor.md").read_text())
    for part in ("monitor", "monitor-memory"):
        for row in saved(part):
            assert f"| {row.name} | {row.value:.3g} {row.unit} | {row.note} |" in shown
    assert "Measured on " in shown
