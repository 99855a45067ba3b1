"""Runs cases in processes of their own: one that dies or hangs costs its case only."""

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

from fuzz.cases import Bench, Outcome

SPARE = 60.0
"""Seconds beyond the limit of a case after which a silent process is killed: it may be building artefacts."""


def scratch() -> Path:
    """Return where small files are quick: the memory, if it can be had."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def _serve(connection: Connection, folder: str, cases: list[tuple[str, int]], seconds: float) -> None:
    """Run cases, and send each outcome."""
    bench = Bench(Path(folder), seconds)
    for name, seed in cases:
        connection.send(bench.run(name, seed))
    connection.close()


class _Worker:
    """A process with cases to run; it is started anew when it died, hung or cannot be trusted any more."""

    def __init__(self, cases: list[tuple[str, int]], seconds: float) -> None:
        self.cases, self.seconds = cases, seconds
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.folder = tempfile.mkdtemp(dir=scratch(), prefix="headscape-fuzz-")
        self.connection, other = context.Pipe(duplex=False)
        arguments = (other, self.folder, self.cases, self.seconds)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        other.close()
        self.heard = time.monotonic()

    def next(self, ready: bool) -> Outcome | None:
        """Return the outcome that is ready, or that of a case that is lost; None while there is none."""
        if not ready and time.monotonic() - self.heard < self.seconds + SPARE:
            return None
        self.heard = time.monotonic()
        (name, seed), self.cases = self.cases[0], self.cases[1:]
        try:
            outcome: Outcome = self.connection.recv() if ready else _lost(name, seed, "hung")
        except EOFError:
            self.process.join(10)
            outcome = _lost(name, seed, f"the process died with {self.process.exitcode}")
        if outcome.spoiled or not self.cases:
            self.end()
            if self.cases:
                self.start()
        return outcome

    def end(self) -> None:
        if not self.cases:
            self.process.join(10)
        self.process.kill()
        self.process.join()
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _lost(name: str, seed: int, problem: str) -> Outcome:
    return Outcome(name, seed, "(see the replay)", "failed", problem, spoiled=True)


def outcomes(cases: list[tuple[str, int]], processes: int, seconds: float) -> Iterator[Outcome]:
    """Yield the outcome of every case, as they come."""
    workers = [_Worker(cases[number::processes], seconds) for number in range(min(processes, len(cases)))]
    try:
        while workers:
            ready = wait([worker.connection for worker in workers], timeout=1.0)
            for worker in list(workers):
                if (outcome := worker.next(worker.connection in ready)) is not None:
                    yield outcome
            workers = [worker for worker in workers if worker.cases]
    finally:
        for worker in workers:
            worker.end()
