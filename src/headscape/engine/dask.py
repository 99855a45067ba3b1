"""The engine of a cluster: tasks run on the workers of a Dask scheduler.

What a function holds is scattered to all workers once; a task is a few bytes. Workers write nothing to disk: results
come back to the caller, who keeps them, so a worker that is lost costs its unfinished tasks alone. They run again
elsewhere; functions that went down with the last worker that held them are sent again.
"""

import contextlib
import itertools
import logging
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import dask
from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.client import FutureCancelledError

from headscape._version import __version__
from headscape.engine.local import LocalEngine
from headscape.engine.protocol import Result, Task
from headscape.engine.sent import packed
from headscape.errors import EngineError, InputError

logger = logging.getLogger(__name__)

POLL = 1.0
"""Seconds after which an engine that waits for a result looks whether there is still somebody to give it."""
CONNECT = 10.0
"""Seconds in which a scheduler must answer, at the start or when the connection is lost."""
PATIENCE = 60.0
"""Seconds without a single worker after which a run gives up."""
LOSSES = 3
"""How often the workers may be lost over the same task."""
_RESUME = "What was finished is kept; the same command resumes from there."
# Spilling to disk would let a full disk of a worker spoil a run; results are small and leave at once.
_CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.comm.retry.count": 3,
    "distributed.admin.large-graph-warning-threshold": "1GiB",
}
# A terminal sends Ctrl-C to all processes; workers are ended by the one that started them.
_IGNORE_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"


class DaskEngine:
    """Runs tasks on the workers of a Dask scheduler.

    Parameters
    ----------
    scheduler
        Address of a running scheduler, "tcp://host:8786" or "tls://host:8786" (certificates come from Dask's
        configuration). Without one, a cluster is started on this machine, and ends with the engine.
    workers
        How many processes a cluster of this machine has; by default one per core.
    memory
        Bytes that each of them may use, None for no limit.
    client
        A client that is connected already, in place of all of these; it stays open.

    Notes
    -----
    Use it as a context manager. The results do not depend on the number of workers: blocks of work are the same, and
    come back in order.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        workers: int | None = None,
        memory: int | None = None,
        client: Client | None = None,
    ) -> None:
        if sum(given is not None for given in (scheduler, workers, client)) > 1:
            raise InputError(
                "specify one of scheduler, workers and client: a running cluster has its workers."
            )
        if workers is not None and workers < 1:
            raise InputError(f"workers must be at least 1, but is {workers}.")
        self._open = contextlib.ExitStack()
        self._open.enter_context(dask.config.set(_CONFIG))
        try:
            if client is None:
                client = self._connected(scheduler, workers, memory)
            self.client = client
            self._require_workers()
            self._require_same_version()
        except BaseException:
            self.close()
            raise

    def _connected(self, scheduler: str | None, workers: int | None, memory: int | None) -> Client:
        target: Any = scheduler
        if scheduler is None:
            target = self._open.enter_context(
                LocalCluster(
                    n_workers=workers or LocalEngine().threads,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=memory,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    preload=[_IGNORE_INTERRUPTS],
                )
            )
        try:
            client = Client(target, timeout=CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise EngineError(
                f"no Dask scheduler answers at {scheduler}: start one (dask scheduler) and its workers (dask worker "
                f"{scheduler}), or let headscape start them (--workers 2)."
            ) from error
        except TypeError as error:  # what Dask raises without certificates
            raise EngineError(
                f"{scheduler} needs TLS certificates in Dask's configuration (distributed.comm.tls): {error}."
            ) from error
        return self._open.enter_context(client)

    @property
    def workers(self) -> int:
        """How many tasks run at once: the threads of all workers that are there now."""
        return max(1, int(sum(self.client.nthreads().values())))

    @property
    def remote(self) -> bool:
        """True: workers are processes, here or on other machines."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End what was started: the connection, and the cluster if it is our own."""
        with contextlib.suppress(
            OSError, TimeoutError, RuntimeError
        ):  # what is lost already need not be closed
            self._open.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """In a worker, the engine is that worker alone."""
        return LocalEngine, (1,)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` in the order of the tasks; at most one task per worker waits ahead."""
        sent = _Sent(self.client, function)
        waiting: deque[tuple[bytes, Future]] = deque()
        ahead = 2 * self.workers
        try:
            for task in tasks:
                data = packed(task)
                waiting.append((data, sent.submit(data)))
                if len(waiting) > ahead:
                    yield self._first(waiting, sent)
            while waiting:
                yield self._first(waiting, sent)
        finally:
            sent.release(future for _, future in waiting)

    def _first(self, waiting: "deque[tuple[bytes, Future]]", sent: "_Sent") -> Any:
        """Return the result that is due, sending everything again if its workers lost it."""
        for losses in itertools.count(1):
            future = waiting[0][1]
            try:
                result = self._result(future)
            except (FutureCancelledError, KeyError) as error:
                if isinstance(error, KeyError) and future.status == "error":
                    raise  # of the function itself
                if losses > LOSSES:
                    raise self._too_large() from error
                self._require_workers()
                sent.again()
                for place, (other, old) in enumerate(waiting):
                    if old.status != "finished" or place == 0:
                        waiting[place] = (other, sent.submit(other))
                continue
            waiting.popleft()
            return result
        raise AssertionError  # the count has no end

    def _result(self, future: Future) -> Any:
        """Wait for a result as long as there is a scheduler, and now and then a worker."""
        lonely: float | None = None
        while True:
            try:
                return future.result(timeout=POLL)
            except KilledWorker as error:
                raise self._too_large() from error
            except TimeoutError:
                if future.status == "error":
                    raise  # of the function itself
            if self.client.status not in ("running", "connecting"):
                raise self._lost()
            try:
                there = self.client.status == "running" and bool(self.client.nthreads())
            except (OSError, TimeoutError) as error:
                raise self._lost() from error
            lonely = None if there else (lonely or time.monotonic())
            if lonely is not None and time.monotonic() - lonely > PATIENCE:
                raise self._lost()

    def _too_large(self) -> EngineError:
        return EngineError(
            "workers were lost again and again while they ran the same task, most likely for want of memory. Give "
            f"workers more memory, run fewer per machine, or lower --memory. {_RESUME}"
        )

    def _lost(self) -> EngineError:
        return EngineError(
            f"the connection to the Dask scheduler was lost, or all workers are gone. {_RESUME}"
        )

    def _require_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except (OSError, TimeoutError, RuntimeError, FutureCancelledError) as error:
            if self.client.status != "running":
                raise self._lost() from error
            raise EngineError(
                f"the Dask scheduler has no workers: start some (dask worker ADDRESS). {_RESUME}"
            ) from error

    def _require_same_version(self) -> None:
        """Raise unless all workers have this version of headscape, which decides what they compute."""
        try:
            found = set(self.client.run(_version).values())
        except ModuleNotFoundError as error:
            raise EngineError(
                f"headscape {__version__} must be installed on all workers: {error}."
            ) from error
        if found != {__version__}:
            others = ", ".join(sorted(found - {__version__}))
            raise EngineError(f"all workers must have headscape {__version__}, but some have {others}.")


class _Sent:
    """A function on its workers, and the tasks that it is applied to there."""

    def __init__(self, client: Client, function: Callable[[Any], Any]) -> None:
        self._client, self._function = client, _Packed(function)
        self._shared = self._scatter()

    def submit(self, task: bytes) -> Future:
        return self._client.submit(_call, self._shared, task, pure=False)

    def again(self) -> None:
        logger.warning("workers were lost; what they were given is sent again")
        self._shared = self._scatter()

    def release(self, futures: Iterable[Future]) -> None:
        """Cancel what nobody waits for any more, and free the memory of the workers."""
        if self._client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):
                self._client.cancel([*futures, self._shared], force=True)

    def _scatter(self) -> Future:
        try:
            return self._client.scatter([self._function], broadcast=True, hash=False)[0]
        except (OSError, TimeoutError) as error:
            raise EngineError(f"the workers cannot be reached: {error}. {_RESUME}") from error


class _Packed:
    """A function on its way: packed when it is sent, unpacked when it arrives."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (pickle.PickleBuffer(packed(self.function)),)


def _unpacked(data: Any) -> _Packed:
    return _Packed(pickle.loads(data))


def _call(function: _Packed, task: bytes) -> Any:
    return function.function(pickle.loads(task))


def _version() -> str:
    return __version__
