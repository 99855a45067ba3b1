"""How long the parts of a run took, summed over interruptions."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headscape.errors import FileFormatError
from headscape.tensor.store import write_text_atomically


class WorkTimes:
    """Seconds by part of a run, kept in a file: an interrupted run still knows what it took altogether.

    Parameters
    ----------
    path
        The JSON file. Each part has ``seconds`` of wall time and ``cpu_seconds`` over all threads.

    Examples
    --------
    >>> import tempfile
    >>> times = WorkTimes(Path(tempfile.mkdtemp()) / "times.json")
    >>> with times.timed("outer"), times.timed("inner"):
    ...     time.sleep(0.01)
    >>> found = times.read()
    >>> list(found), found["outer"]["seconds"] < 0.01 <= found["inner"]["seconds"]
    (['inner', 'outer'], True)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inside: list[tuple[float, float]] = [(0.0, 0.0)]

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of a block to a part; what is timed inside counts for its own part only."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._inside.append((0.0, 0.0))
        try:
            yield
        finally:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            inside = self._inside.pop()
            outer = self._inside.pop()
            self._inside.append((outer[0] + wall, outer[1] + cpu))
            self._add(part, wall - inside[0], cpu - inside[1])

    def read(self) -> dict[str, dict[str, float]]:
        """Return the seconds of every part so far."""
        if not self.path.exists():
            return {}
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return {
                str(part): {name: float(took[name]) for name in ("seconds", "cpu_seconds")}
                for part, took in found.items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise FileFormatError(f"{self.path} is damaged ({error}): delete it.") from error

    def _add(self, part: str, wall: float, cpu: float) -> None:
        found = self.read()
        before = found.get(part, {"seconds": 0.0, "cpu_seconds": 0.0})
        found[part] = {"seconds": before["seconds"] + wall, "cpu_seconds": before["cpu_seconds"] + cpu}
        write_text_atomically(self.path, json.dumps(found, indent=1) + "\n")
