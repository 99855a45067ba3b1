"""How work is spread: a small protocol, local threads, any executor; a cluster in :mod:`headscape.engine.dask`."""

from headscape.engine.executor import ExecutorEngine
from headscape.engine.local import LocalEngine, default_threads
from headscape.engine.protocol import Engine, Progress, no_progress

__all__ = ["Engine", "ExecutorEngine", "LocalEngine", "Progress", "default_threads", "no_progress"]
