"""A monitored run as it is read back: every metric of every head at every sampled step, and the alerts."""

from __future__ import annotations

import base64
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.errors import FileFormatError, InputError
from headscape.monitor.alert import Alert, HeadName
from headscape.monitor.sample import EVAL, TRAIN, LayerShape, Sample, Values, head_names
from headscape.tensor.safe_reading import regular_size
from headscape.tensor.store import check_format

KIND, NEWEST = "monitor", 1
FORMAT = f"headscape/{KIND}/{NEWEST}"
FILE_NAME = "monitor.jsonl"
_MOST_HEADS = 1 << 20


def run_path(path: str | os.PathLike[str]) -> Path:
    """Return the file of a run, given that file or the folder that holds it.

    Examples
    --------
    >>> run_path("runs/first").as_posix(), run_path("runs/heads.jsonl").as_posix()
    ('runs/first/monitor.jsonl', 'runs/heads.jsonl')
    """
    given = Path(path)
    return given / FILE_NAME if given.is_dir() or not given.suffix else given


@dataclass(frozen=True)
class RunHeader:
    """The first line of a run's file: its heads, its metrics, and the settings under ``about``."""

    layers: tuple[LayerShape, ...]
    metrics: tuple[str, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """Return the header as JSON can hold it."""
        layers = [[shape.stack, shape.layer, shape.n_heads] for shape in self.layers]
        return {"format": FORMAT, "layers": layers, "metrics": list(self.metrics), **self.about}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], path: Path) -> Self:
        """Return the header that :meth:`to_record` wrote, or raise a :class:`FileFormatError`."""
        check_format(record.get("format"), KIND, NEWEST, path)
        try:
            layers = tuple(LayerShape(str(stack), int(n), int(count)) for stack, n, count in record["layers"])
            metrics = tuple(str(name) for name in record["metrics"])
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"the header of {path} is damaged ({error}).") from error
        if not layers or not 0 < sum(shape.n_heads for shape in layers) <= _MOST_HEADS:
            raise FileFormatError(f"the header of {path} is damaged: it names no heads.")
        about = {name: value for name, value in record.items() if name not in ("format", "layers", "metrics")}
        return cls(layers, metrics, about)


@dataclass(frozen=True, eq=False)
class MonitorRun:
    """What a monitor wrote, without rows that a restart superseded.

    Attributes
    ----------
    header
        Heads, metrics and settings.
    samples
        The sampled training steps, in order.
    evaluations
        The sampled evaluation steps, in order.
    alerts
        In order.
    ended
        Whether the monitor was closed after the last sample; False while the run goes on or if it was killed.
    end
        Bytes of the file up to the end of its last whole line.

    Examples
    --------
    >>> import headscape as hs
    >>> run = hs.MonitorRun.load("runs/first")  # doctest: +SKIP
    >>> run.metric("mu_K").shape  # doctest: +SKIP
    (40, 8, 8)
    """

    header: RunHeader
    samples: tuple[Sample, ...]
    evaluations: tuple[Sample, ...] = ()
    alerts: tuple[Alert, ...] = ()
    ended: bool = False
    end: int = 0

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file of a run, also while it is being written.

        A line that is cut off at the end is ignored; a damaged line elsewhere is left out with a warning.
        """
        file = run_path(path)
        if regular_size(file) is None:
            raise FileFormatError(
                f"there is no monitored run at {file}. Give the path that HeadMonitor was given."
            )
        try:
            data = file.read_bytes()
        except OSError as error:
            raise FileFormatError(f"{file} cannot be read ({error}).") from error
        end = data.rfind(b"\n") + 1
        lines = data[:end].splitlines()
        if not lines:
            raise FileFormatError(f"{file} is not a monitored run: it has no header.")
        try:
            record = json.loads(lines[0])
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise FileFormatError(f"{file} is not a monitored run: its first line is no header.")
        header = RunHeader.from_record(record, file)
        return cls(header, *_records(lines[1:], header, file), end)

    @property
    def layers(self) -> tuple[LayerShape, ...]:
        """The attention modules."""
        return self.header.layers

    @cached_property
    def heads(self) -> tuple[HeadName, ...]:
        """The heads, as (stack, layer, head), in the order of every sample's arrays."""
        return head_names(self.layers)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks."""
        return tuple(dict.fromkeys(shape.stack for shape in self.layers))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return self.header.metrics

    @property
    def steps(self) -> NDArray[np.int64]:
        """The sampled training steps."""
        return np.array([sample.step for sample in self.samples], np.int64)

    @property
    def losses(self) -> NDArray[np.float64]:
        """The loss at the sampled training steps; NaN where unknown."""
        return np.array([sample.loss for sample in self.samples], np.float64)

    @property
    def overhead(self) -> float:
        """Seconds inside the monitor over seconds between the first sample and the last.

        NaN for fewer than two samples, and for checkpoints that were measured after the run.
        """
        if len(self.samples) < 2 or "checkpoints" in self.header.about:
            return float("nan")
        spent = sum(sample.seconds for sample in self.samples[1:])
        return spent / max(self.samples[-1].time - self.samples[0].time, 1e-9)

    def metric(self, name: str, stack: str | None = None, *, phase: str = TRAIN) -> NDArray[np.float64]:
        """Return a metric as (step, layer, head), by default of the first stack; NaN where a layer has fewer heads.

        ``"state"`` is 0 for healthy, 1 for watch, 2 for alert.
        """
        if name != "state" and name not in self.metrics:
            raise InputError(f"metric must be one of {', '.join(self.metrics)}, but is {name!r}.")
        wanted = self.stacks[0] if stack is None else stack
        if wanted not in self.stacks:
            raise InputError(f"stack must be one of {', '.join(self.stacks)}, but is {stack!r}.")
        samples = self.evaluations if phase == EVAL else self.samples
        shapes = [shape for shape in self.layers if shape.stack == wanted]
        found = np.full((len(samples), len(shapes), max(shape.n_heads for shape in shapes)), np.nan)
        start = 0
        for shape in self.layers:
            if shape.stack == wanted:
                for index, sample in enumerate(samples):
                    values = sample.states if name == "state" else sample.values[name]
                    found[index, shapes.index(shape), : shape.n_heads] = values[start : start + shape.n_heads]
            start += shape.n_heads
        return found

    def table(self, *, phase: str = TRAIN) -> pd.DataFrame:
        """Return one row per step and head, with a column per metric, indexed by step, stack, layer and head."""
        samples = self.evaluations if phase == EVAL else self.samples
        index = pd.MultiIndex.from_tuples(
            [(sample.step, *head) for sample in samples for head in self.heads],
            names=["step", "stack", "layer", "head"],
        )
        columns = {
            name: np.concatenate([sample.values[name] for sample in samples] or [np.zeros(0, np.float32)])
            for name in self.metrics
        }
        states = np.concatenate([sample.states for sample in samples] or [np.zeros(0, np.int8)])
        return pd.DataFrame({**columns, "state": states}, index=index)


def _records(
    lines: list[bytes], header: RunHeader, path: Path
) -> tuple[tuple[Sample, ...], tuple[Sample, ...], tuple[Alert, ...], bool]:
    """Return samples, evaluations, alerts and whether the run is over; each step once, as of its last restart."""
    n_heads = sum(shape.n_heads for shape in header.layers)
    samples: dict[tuple[str, int], Sample] = {}
    alerts: list[Alert] = []
    damaged = []
    ended = False
    for number, line in enumerate(lines, start=2):
        try:
            record = json.loads(line)
            kind = record["record"]
            if kind == "sample":
                sample = _sample(record, header.metrics, n_heads)
                samples[sample.phase, sample.step] = sample
            elif kind == "alert":
                alerts.append(Alert.from_record(record))
            elif kind == "restart":
                step = int(record["step"])
                samples = {key: sample for key, sample in samples.items() if sample.step < step}
                alerts = [alert for alert in alerts if alert.step < step]
            ended = kind == "end"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged.append(number)
    if damaged:
        warnings.warn(
            f"{path}: {len(damaged)} damaged lines were left out, the first is line {damaged[0]}.",
            UserWarning,
            stacklevel=4,
        )
    ordered = sorted(samples.values(), key=lambda sample: sample.step)
    train, evaluations = (tuple(s for s in ordered if s.phase == phase) for phase in (TRAIN, EVAL))
    return train, evaluations, tuple(alerts), ended


def _sample(record: Mapping[str, Any], metrics: tuple[str, ...], n_heads: int) -> Sample:
    values = {name: _unpacked(record["values"][name], n_heads) for name in metrics}
    states = np.frombuffer(base64.b64decode(record["states"], validate=True), np.int8)
    if len(states) != n_heads or record["phase"] not in (TRAIN, EVAL):
        raise ValueError("the sample has other heads")
    numbers = {name: _number(record[name]) for name in ("loss", "epoch", "time", "seconds")}
    odd = {
        str(name): tuple(map(int, heads)) for name, heads in record.get("odd", {}).items() if name in metrics
    }
    if not all(0 <= head < n_heads for heads in odd.values() for head in heads):
        raise ValueError("the sample has other heads")
    return Sample(int(record["step"]), values, str(record["phase"]), states, odd, **numbers)


def _unpacked(text: str, n_heads: int) -> Values:
    values = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    if len(values) != n_heads:
        raise ValueError(f"{n_heads} values were expected, but there are {len(values)}")
    return values.astype(np.float32)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
