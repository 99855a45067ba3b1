"""The file of a monitored run: one line of JSON for the header, then one for every sample and alert.

    {"format": "headscape/monitor/1", "layers": [["self", 0, 8], ...], "metrics": [...], "every": 50, ...}
    {"record": "sample", "step": 0, "phase": "train", "loss": 5.6, "values": {"mu_K": "...", ...}, ...}
    {"record": "alert", "kind": "collapse", "heads": [["self", 3, 7]], "step": 150, ...}
    {"record": "restart", "step": 100}
    {"record": "end", "step": 1000}

Arrays are little-endian float32 in base64, so that what is read is bit for bit what was measured. The file only grows.
A line is written by one call of the system, so that a process that is killed leaves every finished line behind, and at
most one that is cut off, which readers ignore and the next writer takes away. "restart" says that the run was resumed
from a checkpoint: rows from that step on are superseded by those that follow. "end" is the last line of a run that was
not killed.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from headscape.errors import InputError, StorageError
from headscape.monitor.alert import Alert
from headscape.monitor.monitor_run import MonitorRun, RunHeader, run_path
from headscape.monitor.sample import LayerShape, Sample
from headscape.output import json_ready

logger = logging.getLogger(__name__)


class RunWriter:
    """Appends to the file of a run; one at a time.

    Parameters
    ----------
    path
        A file, or a folder in which the file is ``monitor.jsonl``.
    layers, metrics
        What every sample holds.
    about
        What else the header says: the model's class, versions, settings.

    Attributes
    ----------
    continued
        Whether the file held a run already.

    Notes
    -----
    An existing file is continued if it is a run of the same heads and metrics, and refused otherwise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layers: Sequence[LayerShape],
        metrics: Sequence[str],
        about: Mapping[str, Any],
    ) -> None:
        self.path = run_path(path)
        self._file: int | None = None
        self._lock = FileLock(f"{self.path}.lock")
        header = RunHeader(tuple(layers), tuple(metrics), dict(about))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            earlier = self._earlier(header)
            self.continued = earlier is not None
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(self.path, flags, 0o644)
            self._end = 0 if earlier is None else earlier.end
            if earlier is None:
                self._append(header.to_record())
        except Timeout:
            raise StorageError(
                f"{self.path} is being written by another monitor. Give every run a path of its own."
            ) from None
        except OSError as error:
            self.close()
            raise StorageError(f"{self.path} cannot be written ({error}). Give another path.") from error
        except BaseException:
            self.close()
            raise

    def write(self, sample: Sample) -> None:
        """Append a sample."""
        self._append(
            {
                "record": "sample",
                "step": sample.step,
                "phase": sample.phase,
                "loss": sample.loss,
                "epoch": sample.epoch,
                "time": sample.time,
                "seconds": sample.seconds,
                "values": {name: packed(values) for name, values in sample.values.items()},
                "states": base64.b64encode(sample.states.astype(np.int8).tobytes()).decode(),
                **({"odd": sample.odd} if sample.odd else {}),
            }
        )

    def write_alert(self, alert: Alert) -> None:
        """Append an alert."""
        self._append({"record": "alert", **alert.to_record()})

    def restart(self, step: int) -> None:
        """Write that the run goes on from a step: what was written for it and later steps is superseded."""
        self._append({"record": "restart", "step": step})

    def end(self, step: int) -> None:
        """Write that the run is over after so many updates."""
        self._append({"record": "end", "step": step})

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._file is None

    def close(self) -> None:
        """Close the file and let others write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._lock.is_locked:
            self._lock.release()
            Path(self._lock.lock_file).unlink(missing_ok=True)

    def _append(self, record: Mapping[str, Any]) -> None:
        """Write one line, or nothing of it: what a full disk cuts off is taken back before the next line."""
        line = (json.dumps(json_ready(dict(record)), allow_nan=False) + "\n").encode()
        if self._file is None:
            raise StorageError(f"{self.path} is closed.")
        if os.fstat(self._file).st_size != self._end:
            os.truncate(self.path, self._end)
        if os.write(self._file, line) != len(line):
            raise StorageError(f"{self.path} cannot be written: the disk is full.")
        self._end += len(line)

    def _earlier(self, header: RunHeader) -> MonitorRun | None:
        """Return the run that the file holds, None if it is new."""
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        run = MonitorRun.load(self.path)
        if run.header.layers != header.layers or run.header.metrics != header.metrics:
            raise InputError(
                f"{self.path} holds a run of {len(run.heads)} heads with the metrics {', '.join(run.metrics)}; this "
                f"one has {sum(layer.n_heads for layer in header.layers)} heads with {', '.join(header.metrics)}. Give "
                "another path, or delete that file."
            )
        return run


def packed(values: Any) -> str:
    """Return an array of float32 as text.

    Examples
    --------
    >>> packed(np.array([1.0, np.nan], np.float32))
    'AACAPwAAwH8='
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
