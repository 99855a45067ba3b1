"""The engine of one machine: a pool of threads.

Threads suffice because the heavy work (numba kernels, numpy, LAPACK) releases the interpreter lock.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache

from headscape.engine.protocol import Result, Task
from headscape.errors import InputError

_WORKER = "headscape-worker"


def default_threads() -> int:
    """Return ``HEADSCAPE_THREADS`` if it is set, else the number of cores this process may use."""
    wish = os.environ.get("HEADSCAPE_THREADS")
    if wish is not None:
        if not wish.isdigit() or int(wish) < 1:
            raise InputError(f"HEADSCAPE_THREADS must be a whole number from 1 up, but is {wish!r}.")
        return int(wish)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class LocalEngine:
    """Runs tasks on threads of this process.

    Parameters
    ----------
    threads
        How many tasks run at once; by default one per core.

    Examples
    --------
    >>> list(LocalEngine(threads=2).map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    threads: int = field(default_factory=default_threads)

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise InputError(f"threads must be at least 1, but is {self.threads}.")

    @property
    def workers(self) -> int:
        """How many tasks run at once."""
        return self.threads

    @property
    def remote(self) -> bool:
        """False: tasks see the objects of this process."""
        return False

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` in the order of the tasks; at most one task per thread waits ahead.

        A task that maps again does so in its own thread: all threads are busy already.
        """
        if self.threads == 1 or threading.current_thread().name.startswith(_WORKER):
            yield from map(function, tasks)
            return
        waiting: deque[Future[Result]] = deque()
        pool = _pool(self.threads)
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)

    def begin(self, function: Callable[[], Result]) -> Callable[[], Result]:
        """Begin a task beside what the caller goes on with, and return a function that waits for its result.

        Where no thread is free for it, it runs when it is waited for. The task may map.
        """
        if self.threads == 1 or threading.current_thread().name.startswith(_WORKER):
            return function
        return _ahead().submit(function).result


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of so many threads; it is kept, because starting threads takes longer than small tasks."""
    return ThreadPoolExecutor(threads, thread_name_prefix=_WORKER)


@cache
def _ahead() -> ThreadPoolExecutor:
    """Return the threads of tasks that were begun; they are no workers, so that their own tasks have these."""
    return ThreadPoolExecutor(thread_name_prefix="headscape-ahead")


def _forget_threads() -> None:
    _pool.cache_clear()
    _ahead.cache_clear()


if hasattr(os, "register_at_fork"):
    # A forked process inherits the pools without their threads: tasks would wait for ever.
    os.register_at_fork(after_in_child=_forget_threads)
