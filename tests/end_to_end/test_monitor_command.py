"""``headscape monitor``: the view of a run, its page in a browser, and bad input."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import browser
from cli_runs import environment, headscape_here, one_line, one_object
from headscape.cli import progress
from monitor_runs import write_run
from report_pages import click, look_at_everything, run, screen, type_into, wait

TINY = Path(__file__).parents[2] / "examples" / "tiny_model"
needs_browser = pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is there")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "faulty", name="<img src=x onerror=alert(1)>")


def test_the_view_names_state_and_alerts(monkeypatch, capsys, faulty):
    done = headscape_here(monkeypatch, capsys, "monitor", faulty.parent)
    assert done.returncode == 0, done.stderr
    assert "layer 2 head 3" in done.stdout
    assert "QK-norm" in done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines() if line.split()[:1] == ["2"]] == ["alert"]


def test_json_is_one_object(monkeypatch, capsys, faulty):
    found = one_object(headscape_here(monkeypatch, capsys, "monitor", faulty, "--json"))
    assert (found["state"], found["step"], found["samples"]) == ("alert", 2450, 50)
    assert [alert["in_force"] for alert in found["alerts"]] == [False, True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-run",), "no monitored run"),
        (("other.jsonl",), "not a monitored run"),
        (("damaged.jsonl",), "damaged"),
        ((), "specify a run"),
        (("faulty", "--metric", "charm"), "metric must be one of"),
        (("faulty", "--follow", "--json"), "leave --follow out"),
        (("faulty", "--html", "nowhere/page.html"), "does not exist"),
        (("empty", "--html", "page.html"), "no sample yet"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, capsys, tmp_path, faulty, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text("a text\n")
    (tmp_path / "damaged.jsonl").write_text('{"format": "headscape/monitor/1", "layers": 3}\n')
    write_run(tmp_path / "empty", samples=0)
    (tmp_path / "faulty").symlink_to(faulty.parent)
    one_line(headscape_here(monkeypatch, capsys, "monitor", *arguments), words)


def test_checkpoints_say_first_how_long_they_take(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(progress, "LONG", 0.0)
    text = tmp_path / "text.txt"
    text.write_text("Heads attend to tokens. " * 60)
    for step in (5, 10):
        shutil.copytree(TINY, tmp_path / "run" / f"checkpoint-{step}")
    out = tmp_path / "measured"
    done = headscape_here(
        monkeypatch,
        capsys,
        *("monitor", "--checkpoints", tmp_path / "run", "--text", text, "--length", "16", "-o", out),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Expected time: about ")
    assert "step 10" in done.stdout


def test_follow_tells_new_alerts_and_ends_well_on_an_interrupt(tmp_path):
    short = write_run(tmp_path / "short", samples=30).read_bytes()
    path, page = tmp_path / "run.jsonl", tmp_path / "page.html"
    path.write_bytes(short)
    code = "from headscape.cli.main import run; run()"
    command = [sys.executable, "-c", code, "monitor", path, "--follow", "--interval", "0.1", "--html", page]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment())
    try:
        _wait_for(page.exists)
        first = page.stat().st_mtime_ns
        longer = tmp_path / "longer.jsonl"
        longer.write_bytes(write_run(tmp_path / "long", samples=50).read_bytes())
        os.replace(longer, path)
        _wait_for(lambda: page.stat().st_mtime_ns > first)
        # The page is written before the alerts are told: wait for them too, but not for ever.
        limit = threading.Timer(60, process.kill)
        limit.start()
        out = ""
        while "exploding" not in out and (line := process.stdout.readline()):
            out += line
        limit.cancel()
        process.send_signal(signal.SIGINT)
        out += process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == 0
    assert out.count("exploding attention logits since step 2000") == 1


def _wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_browser
@pytest.mark.parametrize("width", [1440, 400])
def test_the_page_shows_heads_steps_and_alerts(monkeypatch, capsys, tmp_path, driver, faulty, width):
    path = tmp_path / "page.html"
    assert headscape_here(monkeypatch, capsys, "monitor", faulty, "--html", path, "-q").returncode == 0
    try:
        screen(driver, width, 900)
        browser.open_page(driver, path)
        look_at_everything(driver)
        assert run(driver, "return document.documentElement.scrollWidth") <= width
        chart = "return document.getElementById('layers-chart').dataset"
        assert run(driver, chart)["measure"] == "logit_max"
        type_into(driver, "#step", "10")
        wait(driver, f"{chart}.step === '500'")
        type_into(driver, "#measure", "mu_K")
        wait(driver, "return document.getElementById('curves-chart').dataset.measure === 'mu_K'")
        click(driver, "#alert-list [data-head='3.4']")
        assert run(driver, "return document.getElementById('panel-title').textContent") == "Head 3.4"
        assert "3.4" in run(driver, "return document.getElementById('curves-chart').dataset.heads").split()
        assert run(driver, "return document.querySelectorAll('#alert-list .entry').length") == 2
        assert browser.console_errors(driver) == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
