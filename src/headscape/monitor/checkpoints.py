"""The saved models of a run, one after the other: their heads measured on one batch, as the monitor does."""

from __future__ import annotations

import inspect
import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headscape.engine import Engine, Progress, no_progress
from headscape.errors import InputError, ModelError
from headscape.models.adapters.families import task_of
from headscape.models.anatomy import watched
from headscape.models.forward_pass import arguments_for, evaluating, forward
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model, as_model, load_model
from headscape.monitor.detection import Detector
from headscape.monitor.metrics import METRICS, recorded_metrics
from headscape.monitor.monitor_run import MonitorRun, RunHeader, run_path
from headscape.monitor.probe import probed_modules
from headscape.monitor.run_file import RunWriter
from headscape.monitor.sample import Sample
from headscape.monitor.sampling import Look, OnItsWay, SamplingPlan
from headscape.monitor.thresholds import Thresholds
from headscape.recorder.inputs import InputReader, is_run_of_ids
from headscape.tensor.digests import content_hash
from headscape.tensor.store import software_versions

SAME = ("checkpoints", "batch", "rows", "queries", "thresholds", "dtype")
"""Settings that must not change when a file of measured checkpoints is continued."""


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A saved model, and how many updates its weights have seen."""

    step: int
    path: Path

    @property
    def saved(self) -> float:
        """When the newest of its files was written, in seconds since 1970."""
        return max(file.stat().st_mtime for file in self.path.iterdir())


def checkpoints_in(folder: str | os.PathLike[str]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a run, by step.

    A checkpoint is a folder with ``config.json`` whose step is in its ``trainer_state.json`` or at the end of its
    name, such as ``checkpoint-500``.

    Raises
    ------
    InputError
        If there is none, or if two have the same step.
    """
    parent = Path(folder)
    if not parent.is_dir():
        raise InputError(f"checkpoints must be in a folder, but {parent} is not one.")
    saved = sorted(path.parent for path in parent.glob("*/config.json"))
    found = sorted(Checkpoint(step, path) for path in saved for step in [_step_of(path)] if step is not None)
    if not found:
        raise InputError(
            f"{parent} has no checkpoints: expected folders such as checkpoint-500, each with config.json and weights."
        )
    for first, second in pairwise(found):
        if first.step == second.step:
            raise InputError(
                f"two checkpoints are of step {first.step}: {first.path.name} and {second.path.name}. Move one away."
            )
    return tuple(found)


def _step_of(path: Path) -> int | None:
    """Return the number of updates, or None for a model whose folder does not say."""
    try:
        return int(json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, KeyError, TypeError):
        number = re.search(r"([0-9]{1,12})$", path.name)
        return None if number is None else int(number.group(1))


def unmeasured(checkpoints: Sequence[Checkpoint], run: MonitorRun) -> tuple[Checkpoint, ...]:
    """Return the first checkpoint that a run has not measured since it was saved, and those after it."""
    measured = {sample.step: sample.time for sample in run.samples}
    new = [point.step for point in checkpoints if not measured.get(point.step, -1.0) >= point.saved]
    return tuple(point for point in checkpoints if new and point.step >= min(new))


def monitor_checkpoints(
    folder: str | os.PathLike[str],
    inputs: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    tokenizer: Any = None,
    metrics: Sequence[str] = METRICS,
    layers: Sequence[int] | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
    rows: int = 2,
    queries: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    seed: int = 0,
    thresholds: Thresholds | None = None,
    device: str | None = None,
    dtype: str = "float32",
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> MonitorRun:
    """Measure the heads of every saved checkpoint of a run, all on the same batch.

    Parameters
    ----------
    folder
        Holds the checkpoints: folders such as ``checkpoint-500`` with ``config.json`` and weights.
    inputs
        A batch of forward arguments or rows of token ids, taken whole; or a text, a text file or a run of token ids,
        of which ``rows`` windows are taken.
    path
        A file, or a folder in which it is ``monitor.jsonl``; resumes if interrupted, and measures only checkpoints
        that are new or were saved again. Checkpoints that were deleted since stay in it. Without it the run is kept
        in memory.
    tokenizer
        For text, if the checkpoints were saved without one.
    metrics, layers, heads, rows, queries, thresholds
        As for :class:`headscape.HeadMonitor`.
    length, sample, seed
        Tokens per window of a text, and which windows: see :func:`headscape.capture`.
    device, dtype
        Where and in which precision the models run.
    engine
        An engine of other processes (:func:`headscape.open_engine`) measures several checkpoints at once, each of which
        its workers must see; by default one after the other, here.
    progress
        Progress callback.

    Returns
    -------
    MonitorRun
        One sample per checkpoint; its step is the number of updates before it.

    Raises
    ------
    InputError
        If there are no checkpoints, if they are models of different shapes, or if ``path`` holds another run.

    Notes
    -----
    The measures are those of :class:`headscape.HeadMonitor` at the same step on the same batch. Models run in
    evaluation mode: with dropout the live monitor sees noise that is absent here. Losses are recorded for models of
    the next token and for batches with labels. One forward pass and one model in memory at a time.

    Examples
    --------
    >>> import headscape as hs
    >>> run = hs.monitor_checkpoints("out/run", "held_out.txt", "out/replay")  # doctest: +SKIP
    >>> run.metric("mu_K").shape  # doctest: +SKIP
    (20, 8, 8)
    """
    found = checkpoints_in(folder)
    recorded = recorded_metrics(metrics)
    progress("loading", 0, len(found))
    first = load_model(found[0].path, device=device, dtype=dtype)
    batch = _batch(as_model(first, tokenizer), inputs, rows, length, sample, seed)
    plan = SamplingPlan.of(probed_modules(first.model, None, layers, heads), recorded, rows, queries, heads)
    about = {
        "model": type(first.model).__name__,
        "checkpoints": str(folder),
        "batch": content_hash(*(batch[name].cpu().numpy() for name in sorted(batch))),
        "rows": rows,
        "queries": queries,
        "asked": list(metrics),
        "thresholds": asdict(thresholds or Thresholds()),
        "dtype": dtype,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": software_versions("torch"),
    }
    replay = _Replay(RunHeader(plan.layers, recorded, about), thresholds or Thresholds(), path)
    with closing(replay):
        todo = replay.resume(found)
        measure = partial(_measured_there, batch, plan, found[0], device, dtype)
        if engine is not None and engine.remote:
            samples = engine.map(measure, todo)
        else:  # the first one is loaded already
            samples = (
                _measured(first, batch, plan, point) if point == found[0] else measure(point)
                for point in todo
            )
        for number, checkpoint in enumerate(todo):
            progress(f"step {checkpoint.step}", len(found) - len(todo) + number, len(found))
            replay.take(next(samples))
        progress("done", len(found), len(found))
        return replay.run


def _batch(
    loaded: Model, inputs: Any, rows: int, length: int | None, sample: str, seed: int
) -> dict[str, torch.Tensor]:
    """Return the arguments of one forward pass on all windows of the inputs."""
    sampled = isinstance(inputs, str | os.PathLike) or is_run_of_ids(inputs)
    reader = InputReader(
        loaded.model, loaded.tokenizer, length, rows if sampled else None, sample=sample, seed=seed
    )
    windows = [window.arguments for window in reader.read(inputs)]
    shapes = [{name: tuple(value.shape) for name, value in window.items()} for window in windows]
    if any(shape != shapes[0] for shape in shapes):
        raise InputError(
            "all windows of a batch must have the same length: pass length=... or texts of equal length."
        )
    batch = {name: torch.cat([window[name] for window in windows]) for name in windows[0]}
    if task_of(loaded.model) == "next token" and set(batch) == {"input_ids"}:
        batch["labels"] = batch["input_ids"]
    return batch


def _require_same(plan: SamplingPlan, model: Model, checkpoint: Checkpoint, first: Checkpoint) -> None:
    """Raise unless a checkpoint has the heads of the first one."""
    shapes = {
        (module.stack, module.layer): module.n_heads
        for module in probed_modules(model.model, None, None, None)
    }
    if any(shapes.get((shape.stack, shape.layer)) != shape.n_heads for shape in plan.layers):
        raise InputError(
            f"checkpoints must be of one model, but {checkpoint.path.name} has {sum(shapes.values())} heads in "
            f"{len(shapes)} attention modules, and {first.path.name} {len(plan.left_out)} in {len(plan.layers)}. Give "
            "every run a folder of its own."
        )


def _measured_there(
    batch: dict[str, torch.Tensor],
    plan: SamplingPlan,
    first: Checkpoint,
    device: str | None,
    dtype: str,
    checkpoint: Checkpoint,
) -> Sample:
    """Load a checkpoint and return its sample."""
    model = load_model(checkpoint.path, device=device, dtype=dtype)
    _require_same(plan, model, checkpoint, first)
    return _measured(model, batch, plan, checkpoint)


def _measured(
    loaded: Model, batch: dict[str, torch.Tensor], plan: SamplingPlan, checkpoint: Checkpoint
) -> Sample:
    """Return the sample of one checkpoint."""
    model, look, start = loaded.model, Look(plan), time.perf_counter()
    arguments: dict[str, Any] = dict(arguments_for(model, batch))
    if "use_cache" in inspect.signature(model.forward).parameters:
        arguments["use_cache"] = False
    with watched(model, look), evaluating(model), torch.no_grad():
        look.note_loss(forward(model, arguments, f"the batch, at {checkpoint.path.name}"))
    if not look.complete:
        reason = look.error or f"only {len(look.found)} of {len(plan.places)} attention modules were seen"
        raise ModelError(f"{checkpoint.path} cannot be measured: {reason}.")
    table, loss = OnItsWay(look.stacked(), look.loss).fetch()
    table[:, plan.left_out] = np.nan
    values = dict(zip(plan.metrics, table, strict=True))
    values["nonfinite"] = np.where(plan.left_out, np.float32(0), values["nonfinite"])
    seconds = time.perf_counter() - start
    return Sample(checkpoint.step, values, loss=loss, time=time.time(), seconds=seconds)


class _Replay:
    """Judges samples and writes them down; takes up what a file holds already."""

    def __init__(
        self, header: RunHeader, thresholds: Thresholds, path: str | os.PathLike[str] | None
    ) -> None:
        self._header, self._earlier = header, None
        self._detector = Detector(header.layers, thresholds)
        self._samples: list[Sample] = []
        self._alerts: list[Any] = []
        self._writer: RunWriter | None = None
        if path is None:
            return
        file = run_path(path)
        if file.exists() and file.stat().st_size:
            _require_same_settings(header, MonitorRun.load(file).header, file)
        self._writer = RunWriter(path, header.layers, header.metrics, header.about)
        if self._writer.continued:
            self._earlier = MonitorRun.load(file)

    def resume(self, checkpoints: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
        """Take up the samples before the first checkpoint that has to be measured; return it and those after it."""
        earlier = self._earlier
        if earlier is None:
            return tuple(checkpoints)
        todo = unmeasured(checkpoints, earlier)
        begin = todo[0].step if todo else max((sample.step for sample in earlier.samples), default=-1) + 1
        for sample in earlier.samples:
            if sample.step < begin:
                self._detector.judge(sample)
                self._samples.append(sample)
        self._alerts = [alert for alert in earlier.alerts if alert.step < begin]
        if self._writer is not None and len(self._samples) < len(earlier.samples):
            self._writer.restart(begin)
        return todo

    def take(self, sample: Sample) -> None:
        """Judge a sample and write it and its alerts."""
        states, alerts = self._detector.judge(sample)
        judged = replace(sample, states=states, odd=self._detector.odd)
        self._samples.append(judged)
        self._alerts += alerts
        if self._writer is not None:
            self._writer.write(judged)
            for alert in alerts:
                self._writer.write_alert(alert)

    @property
    def run(self) -> MonitorRun:
        """Everything that was measured."""
        return MonitorRun(self._header, tuple(self._samples), alerts=tuple(self._alerts))

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


def _require_same_settings(header: RunHeader, earlier: RunHeader, path: Path) -> None:
    before, now = ({name: given.about.get(name) for name in SAME} for given in (earlier, header))
    if "batch" not in earlier.about:
        raise InputError(
            f"{path} holds a live run, to which checkpoints cannot be added: give another path (-o)."
        )
    for name in SAME:
        if before[name] != now[name]:
            raise InputError(
                f"{path} was started with another {name}; use another path (-o) or delete this file."
            )
