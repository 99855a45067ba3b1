"""The program as a user starts it: in a process of its own, or in this one, where torch is loaded already."""

import json
import logging
import os
import re
import subprocess
import sys
from types import SimpleNamespace

from headscape.cli.main import run


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def headscape(*arguments, **options):
    """Run the program in a process of its own."""
    code = "from headscape.cli.main import run; run()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **{"env": environment(), **options})


def headscape_here(monkeypatch, capsys, *arguments):
    """Run the program in this process, up to its exit code."""
    monkeypatch.setattr(sys, "argv", ["headscape", *map(str, arguments)])
    capsys.readouterr()
    code, level = None, logging.getLogger("headscape").level
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    finally:
        logging.getLogger("headscape").setLevel(level)
    out, err = capsys.readouterr()
    return SimpleNamespace(returncode=code or 0, stdout=out, stderr=err)


def without_progress(text):
    """Return what a command said on standard error but its progress and its expected time."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"\[\d+:\d\d\] |Expected time: ", line))


def one_line(done, words):
    """Check that a command ended in one line about bad input."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    said = without_progress(done.stderr)
    assert len(said.strip().splitlines()) == 1, done.stderr
    assert said.startswith("headscape: ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def one_object(done):
    """Return the one JSON object that a command printed."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
