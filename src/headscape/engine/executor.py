"""An engine from any executor of :mod:`concurrent.futures`: process pools, loky, ``mpi4py.futures``."""

import os
import pickle
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from headscape.engine.local import LocalEngine, default_threads
from headscape.engine.protocol import Result, Task
from headscape.engine.sent import packed
from headscape.errors import EngineError, InputError

_inside = threading.local()


@dataclass(frozen=True)
class ExecutorEngine:
    """Runs tasks on an executor; the executor stays open, it belongs to the caller.

    Parameters
    ----------
    executor
        Any ``concurrent.futures.Executor``.
    workers
        How many tasks run at once; by default what the executor says, else one per core.
    folder
        Where functions are put down for the workers, which read each of them once; by default the temporary folder
        of this machine. Workers on other machines need one that they see too.

    Examples
    --------
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(ExecutorEngine(pool).map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    executor: Executor
    workers: int = 0
    folder: Path | None = field(default=None)

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise InputError(f"workers must be at least 1, but is {self.workers}.")
        if self.workers == 0:
            own = getattr(self.executor, "_max_workers", None)
            object.__setattr__(
                self, "workers", own if isinstance(own, int) and own > 0 else default_threads()
            )

    @property
    def remote(self) -> bool:
        """Whether the executor has processes of its own."""
        return not isinstance(self.executor, ThreadPoolExecutor)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` in the order of the tasks; at most one task per worker waits ahead.

        A task that maps again does so in its own worker: all of them are busy already.
        """
        if getattr(_inside, "task", False):
            yield from map(function, tasks)
            return
        waiting: deque[Future[Result]] = deque()
        with self._submit(function) as submit:
            try:
                for task in tasks:
                    waiting.append(submit(task))
                    if len(waiting) > 2 * self.workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenExecutor as error:
                raise EngineError(
                    "a worker process ended unexpectedly: it was killed, or ran out of memory. What was finished is "
                    "kept; the same command resumes from there, with fewer workers if memory was short."
                ) from error
            finally:
                for future in waiting:
                    future.cancel()

    @contextmanager
    def _submit(self, function: Callable[[Task], Result]) -> Iterator[Callable[[Task], "Future[Result]"]]:
        """Yield what submits a task; a function for other processes lies in a file as long as they may read it."""
        if not self.remote:
            yield lambda task: self.executor.submit(_call_here, function, task)
            return
        path = Path(self.folder or tempfile.gettempdir()) / f"headscape-{uuid.uuid4().hex}.task"
        try:
            # Only the user may read it, and nobody else can have put a file or link there: it is executed.
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(packed(function))
            yield lambda task: self.executor.submit(_call_there, str(path), packed(task))
        finally:
            with suppress(OSError):
                path.unlink()

    def __reduce__(self) -> tuple[Any, ...]:
        """In a worker, the engine is that worker alone."""
        return LocalEngine, (1,)


def _call_here(function: Callable[[Task], Result], task: Task) -> Result:
    _inside.task = True
    try:
        return function(task)
    finally:
        _inside.task = False


@lru_cache(maxsize=1)
def _function(path: str) -> Callable[[Any], Any]:
    """Return a function that another process put down; the last one is kept, with all that it holds."""
    with open(path, "rb") as file:
        function: Callable[[Any], Any] = pickle.load(file)
    return function


def _call_there(path: str, task: bytes) -> Any:
    return _call_here(_function(path), pickle.loads(task))
