"""Long commands that are stopped at a random moment end, after a rerun, as if nothing had happened.

``make fuzz`` tries 50 moments over all long commands; these are four of them.
"""

import signal

import pytest

pytest.importorskip("transformers")

from fuzz.kills import kill_problem, undisturbed


@pytest.mark.parametrize(
    ("command", "number", "share"),
    [
        ("capture", signal.SIGKILL, 0.8),
        ("analyze", signal.SIGTERM, 0.7),
        ("ablate", signal.SIGKILL, 0.9),
        ("prune", signal.SIGTERM, 0.8),
    ],
)
def test_a_stopped_run_resumes_and_gives_the_results_of_an_undisturbed_one(command, number, share, tmp_path):
    whole = undisturbed(command, tmp_path)
    assert kill_problem(command, number, share, whole, tmp_path / "out") == ""
