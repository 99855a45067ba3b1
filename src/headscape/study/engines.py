"""From a word to an engine: threads of this machine, a Dask cluster, or any executor."""

import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from headscape.engine import Engine, ExecutorEngine, LocalEngine
from headscape.errors import InputError, MissingDependencyError

ENGINES = ("local", "dask")
ADDRESS = r"(tcp|tls|ws|wss|ucx)://[^\s/]+:[0-9]{1,5}"
AnyEngine = Engine | Executor | str | None
"""What functions take as ``engine``: see :func:`open_engine`."""


@contextmanager
def open_engine(
    engine: AnyEngine = None,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Iterator[Engine]:
    """Open an engine for the length of a block; an engine or executor that is given stays open.

    Parameters
    ----------
    engine
        "local" (the default) for threads of this process, "dask" for a cluster, an engine, or any executor of
        ``concurrent.futures``: a process pool, loky, ``mpi4py.futures``.
    scheduler
        Address of a running Dask scheduler, "tcp://host:8786" or "tls://host:8786". Without one, a cluster is started
        on this machine.
    workers
        Processes of that cluster; by default one per core.
    threads
        Of the local engine; by default one per core.
    memory
        Bytes that all workers of that cluster may use together; by default no limit.

    Examples
    --------
    >>> with open_engine("local", threads=2) as engine:
    ...     list(engine.map(abs, [-1, 2]))
    [1, 2]
    """
    require_engine(engine, scheduler, workers, threads)
    if engine == "dask":
        with _dask_engine(scheduler, workers, memory) as found:
            yield found
    elif engine is None or isinstance(engine, str):
        yield LocalEngine() if threads is None else LocalEngine(threads)
    elif isinstance(engine, Executor):
        yield ExecutorEngine(engine)
    else:
        yield engine


def require_engine(
    engine: AnyEngine, scheduler: str | None = None, workers: int | None = None, threads: int | None = None
) -> None:
    """Raise, before anything is started, unless these say together how work is spread; as for :func:`open_engine`."""
    known = engine in ENGINES if isinstance(engine, str) else engine is None or hasattr(engine, "map")
    if not known:
        raise InputError(
            f"engine must be {' or '.join(map(repr, ENGINES))}, an engine or an executor, but is {engine!r}."
        )
    if engine != "dask" and (scheduler is not None or workers is not None):
        name = "scheduler" if scheduler is not None else "workers"
        raise InputError(f"{name} is for the engine 'dask': specify that too (--engine dask).")
    if engine == "dask" and threads is not None:
        raise InputError("threads are for the engine 'local'; with 'dask' specify workers.")
    if scheduler is not None and workers is not None:
        raise InputError("specify scheduler or workers, not both: a running cluster has its workers already.")
    if scheduler is not None and not re.fullmatch(ADDRESS, scheduler):
        raise InputError(f"scheduler must be an address such as tcp://host:8786, but is {scheduler!r}.")


@contextmanager
def _dask_engine(scheduler: str | None, workers: int | None, memory: int | None) -> Iterator[Engine]:
    try:
        from headscape.engine.dask import DaskEngine
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the engine 'dask' needs Dask, and {error.name} is missing: pip install 'headscape[dask]'."
        ) from error
    count = workers or LocalEngine().threads
    limit = None if memory is None or scheduler is not None else memory // count
    with DaskEngine(scheduler, workers=None if scheduler else count, memory=limit) as engine:
        yield engine
