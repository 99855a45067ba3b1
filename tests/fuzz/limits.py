"""Limits of one case: its time, its memory, and everything that it says."""

import os
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 60.0
BYTES = 2 << 30


class TimeIsUpError(BaseException):
    """A case took too long; not an Exception, so that no handler of the code under test takes it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeIsUpError` in the main thread after some seconds, also out of a blocked system call."""

    def ring(*_: Any) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGALRM, ring)
    # Again and again: an exception that is raised in a destructor gets lost.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def memory_limit(more: int = BYTES) -> Iterator[None]:
    """Let the process allocate some bytes more than it has now; what asks for more gets a MemoryError."""
    status = Path("/proc/self/status")
    if not status.exists():  # only Linux counts it so
        yield
        return
    now = int(re.search(r"VmData:\s+(\d+)", status.read_text())[1]) << 10  # type: ignore[index]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@dataclass
class Said:
    """What a block wrote to standard output and standard error, and which warnings it gave."""

    out: str = ""
    err: str = ""
    warnings: list[str] = field(default_factory=list)


@contextmanager
def listening() -> Iterator[Said]:
    """Catch what a block says, down to the file descriptors: native code and other threads included."""
    said = Said()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("always")
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        kept = [(number, os.dup(number)) for number in (1, 2)]
        streams = (sys.stdout, sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        try:
            yield said
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            sys.stdout, sys.stderr = streams
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)
            for name, file in (("out", out), ("err", err)):
                file.seek(0)
                setattr(said, name, file.read().decode("utf-8", "replace"))
            said.warnings = [f"{one.category.__name__}: {one.message}" for one in seen]
