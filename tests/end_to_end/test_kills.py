"""Long commands that are stopped at a random moment end, after a rerun, as if nothing had happened.

``make fuzz`` tries 50 moments over all long commands; these are four of them.
"""

import signal
import time

import pytest

pytest.importorskip("transformers")

from fuzz.commands import results, words
from fuzz.kills import PATIENCE, kill_problem, undisturbed
from fuzz.program import started


@pytest.mark.parametrize(
    ("command", "number", "share"),
    [
        pytest.param("capture", signal.SIGKILL, 0.8, marks=pytest.mark.real),
        ("analyze", signal.SIGTERM, 0.7),
        pytest.param("ablate", signal.SIGKILL, 0.9, marks=pytest.mark.real),
        ("prune", signal.SIGTERM, 0.8),
    ],
)
def test_a_stopped_run_resumes_and_gives_the_results_of_an_undisturbed_one(command, number, share, tmp_path):
    whole = undisturbed(command, tmp_path)
    assert kill_problem(command, number, share, whole, tmp_path / "out") == ""


def test_a_killed_prune_goes_on_after_its_finished_parts(tmp_path):
    whole, out = undisturbed("prune", tmp_path), tmp_path / "out"
    parts = tmp_path / ".work-out" / "parts"

    def finished():
        return {path.name: path.stat().st_ino for path in parts.glob("[!.]*")} if parts.is_dir() else {}

    def until(wanted, process):
        end = time.monotonic() + PATIENCE
        while not wanted() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert wanted()

    process = started(words("prune", out))
    until(lambda: len(finished()) >= 4, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    before = finished()
    assert not out.exists()
    again = started(words("prune", out))
    until(lambda: len(finished()) > len(before), again)
    kept = finished()
    _, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, err
    assert {name: kept.get(name) for name in before} == before
    assert results("prune", out) == whole.results
    assert not parts.parent.exists()
