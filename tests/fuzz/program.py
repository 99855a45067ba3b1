"""The program in this process or in one of its own, and what its last line must be like."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from cli_runs import without_progress
from fuzz.limits import BYTES, SECONDS, TimeIsUpError, listening, memory_limit, time_limit
from headscape.cli.main import run

WARNING = "Warning: "
"""How a line begins that says something about a result; such lines may stand before it."""

LATE = "took longer than"
LONGEST_MESSAGE = 1000
# What differs from run to run.
VOLATILE = {"seconds", "total_seconds", "out", "report", "figures", "about", "sources", "subject", "name"}
CODE = "from headscape.cli.main import run; run()"


@dataclass(frozen=True)
class Ended:
    """How the program ended: exit code, what it wrote, and what went wrong beside that."""

    code: int
    out: str
    err: str
    problem: str = ""

    @property
    def facts(self) -> Any:
        """Exit code and JSON summary, without what differs from run to run."""
        return self.code, _lasting(json.loads(self.out))

    @property
    def line_problem(self) -> str:
        """What is wrong with an end in exit code 2 and one line; empty if nothing is."""
        lines = [line for line in self.err.strip().splitlines() if not line.startswith(WARNING)]
        if self.problem or self.code != 2:
            return self.problem or f"exit code {self.code}, not 2: {self.err[-300:]!r}"
        if self.out or len(lines) != 1 or not lines[0].startswith("headscape: "):
            return f"not one line: {self.out[:100]!r} {self.err[:300]!r}"
        return unclear(lines[0].removeprefix("headscape: "))


def headscape_here(words: Sequence[Any], seconds: float = SECONDS) -> Ended:
    """Run the program in this process, within the limits of a case."""
    code, problem = 0, ""
    with (
        listening() as said,
        memory_limit(),
        mock.patch.object(sys, "argv", ["headscape", *map(str, words)]),
    ):
        try:
            with time_limit(seconds):
                run()
        except SystemExit as end:
            code = int(end.code or 0)
        except TimeIsUpError:
            problem = f"the command {LATE} {seconds:.0f} s"
    if not problem and said.warnings:
        problem = f"the command warned: {said.warnings[0][:200]}"
    return Ended(code, said.out, without_progress(said.err), problem)


def started(words: Sequence[Any], memory: int | None = None) -> "subprocess.Popen[str]":
    """Start the program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=memory and (lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))),
    )


def headscape_apart(words: Sequence[Any], seconds: float = SECONDS) -> Ended:
    """Run the program in a process of its own, within the limits of a case."""
    # What Python and torch take for themselves comes on top.
    process = started(words, BYTES + (1 << 30))
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Ended(-9, "", "", f"the command {LATE} {seconds:.0f} s")
    return Ended(process.returncode, out, without_progress(err))


def unclear(message: str) -> str:
    """Return what makes a message unclear; empty if nothing does."""
    if len(message) > LONGEST_MESSAGE or "\n" in message or "Traceback" in message:
        return f"not one clear line: {message[:300]!r} ... ({len(message)} characters)"
    return f"ran out of memory: {message}" if "out of memory" in message else ""


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(inner) for name, inner in value.items() if name not in VOLATILE}
    return [_lasting(inner) for inner in value] if isinstance(value, list) else value
