"""SIGTERM and Ctrl-C end every command alike: one line, exit code 130, and what was finished is kept."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import headscape as hs
from cli_runs import environment, headscape, headscape_here, one_object, without_progress
from headscape.cli.main import run

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
COMMANDS = ("analyze", "capture", "organize", "entropy", "softmax", "energy", "check", "ablate", "prune")

WAITING = """
import builtins, sys, time
def wait(*arguments, **options):
    print("ready", flush=True)
    time.sleep(60)
"""
WHILE_OPENING = WAITING + "import headscape.study.source as place\nplace.open_source = wait\n"
WHILE_TORCH_LOADS = (
    WAITING
    + """
class Slow:
    # An import of compiled code answers an interrupt with an error of its own.
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            try:
                wait()
            except KeyboardInterrupt:
                raise ImportError("failed to import") from None
sys.meta_path.insert(0, Slow())
"""
)


def started(code, *arguments):
    command = [
        sys.executable,
        "-c",
        f"{code}\nfrom headscape.cli.main import run; run()",
        *map(str, arguments),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def ended_by_interrupt(process):
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    said = without_progress(err)
    assert said.startswith("headscape: interrupted. What was finished is kept; the same command resumes")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "number"), [*((name, signal.SIGTERM) for name in COMMANDS), ("analyze", signal.SIGINT)]
)
def test_every_long_command(tmp_path, command, number):
    process = started(WHILE_OPENING, command, MODEL, "-o", tmp_path / "out")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    ended_by_interrupt(process)


def test_while_torch_is_loading(tmp_path):
    process = started(WHILE_TORCH_LOADS, "capture", MODEL, "-o", tmp_path / "out")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    ended_by_interrupt(process)


def test_at_any_moment_and_the_rerun_equals_an_undisturbed_run(tmp_path):
    arguments = ("--length", 64, "--windows", 6, "--json")
    whole = one_object(headscape("capture", MODEL, "-o", tmp_path / "whole", *arguments))
    for moment in (1.0, 2.0, 3.0):
        process = started("", "capture", MODEL, "-o", tmp_path / "out", *arguments)
        time.sleep(moment)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode in (0, 130)
    again = one_object(headscape("capture", MODEL, "-o", tmp_path / "out", *arguments))
    assert again["input_hash"] == whole["input_hash"]
    kept, expected = (hs.Capture.load(tmp_path / name).tensor(5).data for name in ("out", "whole"))
    assert (kept == expected).all()


def test_handlers_are_given_back(monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert headscape_here(monkeypatch, capsys, "--version").returncode == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_the_program_runs_in_other_threads_too(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["headscape", "--version"])
    codes = []

    def call():
        try:
            run()
        except SystemExit as ended:
            codes.append(ended.code)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert codes == [0]


def test_an_output_that_cannot_be_kept(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from headscape.cli.main import run; run()", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
    assert done.returncode == 2
    assert done.stderr == "headscape: the disk is full. Free some space and run the same command again.\n"
