"""How work is spread: a small protocol, and local threads that implement it."""

from headscape.engine.local import LocalEngine, default_threads
from headscape.engine.protocol import Engine, Progress, no_progress

__all__ = ["Engine", "LocalEngine", "Progress", "default_threads", "no_progress"]
