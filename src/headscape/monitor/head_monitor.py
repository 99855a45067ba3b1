"""The monitor: samples steps of a training run, measures its heads, writes them down and speaks up."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from headscape.errors import InputError, MissingDependencyError
from headscape.models.anatomy import watched
from headscape.models.lazy_torch import torch
from headscape.monitor.alert import Alert
from headscape.monitor.metrics import METRICS, recorded_metrics
from headscape.monitor.monitor_run import MonitorRun, RunHeader
from headscape.monitor.probe import plain_module, probed_modules
from headscape.monitor.ranks import launched, rank, reduced, world_size
from headscape.monitor.sample import EVAL, TRAIN, Sample
from headscape.monitor.sampling import Look, OnItsWay, SamplingPlan
from headscape.monitor.settings import require_counts, require_modes
from headscape.monitor.sinks import Sinks
from headscape.monitor.thresholds import Thresholds
from headscape.tensor.store import software_versions

if TYPE_CHECKING:
    from headscape.monitor.lightning_callback import MonitorLightningCallback
    from headscape.monitor.trainer_callback import MonitorTrainerCallback

_COMPILED_KERNEL = "flex_attention"  # compiled whether the model is or not


class HeadMonitor:
    """Watches the attention heads of a model while it trains.

    Parameters
    ----------
    model
        The model that trains, of any kind that headscape can observe. A wrapper (DDP, ``torch.compile``) is looked
        through.
    every
        Steps between two samples. On all other steps nothing is installed.
    metrics
        What is recorded of every head, by the names of :data:`headscape.monitor.metrics.MEANINGS`, beside what alerts
        need.
    layers, heads
        Numbers of layers, and (layer, head) pairs; all by default.
    rows, queries
        How many rows of a batch are measured, and how many evenly spaced queries of each; all queries by default.
    path
        A file, or a folder in which it is ``monitor.jsonl``. A run that is resumed continues it. Without it samples
        are kept in memory.
    evaluate
        Also look at the first batch of every evaluation (``model.eval()``). Its samples are kept apart and not judged.
    thresholds
        When to speak up.
    on_alert
        Called with every alert.
    stop_on
        Kinds of alerts that ask the trainer to stop: ``should_stop`` becomes True. "any" stands for all.
    report
        Called with a dict of numbers and the step after every sample: a sink of your own.
    per_head
        Report every head, not only aggregates.
    reduce
        With several processes (DDP): None measures on rank 0 only, "mean" averages over all ranks.
    inputs
        Arguments of ``model.forward`` for the forward pass that finds the attention modules, for models that random
        tokens or images do not fit.

    Raises
    ------
    ModelError
        If the model cannot be observed: here, never in the middle of training.

    Notes
    -----
    Losses, gradients and weights are bit for bit those of a run without the monitor, and no random numbers are drawn.
    With ``torch.compile`` they are equal up to rounding: compiled code shows nothing, so sampled steps run uncompiled.
    Memory while a layer is measured: its queries and keys of the sampled rows in float32, and at most 16 MiB for scores
    and all else that is made of them, freed before the next layer. ``torch.nn.MultiheadAttention`` hides queries and
    keys: those of the sampled rows are computed once more. A direct call of ``flex_attention`` forms all their logits.
    On a GPU nothing waits for the copy of the figures, but torch's eigenvalues wait for the device once per layer.

    Examples
    --------
    >>> import headscape as hs
    >>> monitor = hs.HeadMonitor(model, every=50, path="runs/first")  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     with monitor:
    ...         loss = model(**batch).loss
    ...     loss.backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    ...     monitor.step()
    >>> monitor.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        every: int = 50,
        metrics: Sequence[str] = METRICS,
        layers: Sequence[int] | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
        rows: int = 2,
        path: str | os.PathLike[str] | None = None,
        *,
        queries: int | None = None,
        evaluate: bool = False,
        thresholds: Thresholds | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        stop_on: Sequence[str] = (),
        report: Callable[[dict[str, float], int], object] | None = None,
        per_head: bool = False,
        reduce: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        require_counts(every=every, rows=rows, queries=1 if queries is None else queries)
        require_modes(reduce, stop_on, launched())
        self.model, self.every, self.metrics = model, every, tuple(metrics)
        self.thresholds = Thresholds() if thresholds is None else thresholds
        recorded = recorded_metrics(metrics)
        modules = probed_modules(model, inputs, layers, heads)
        self._plan = SamplingPlan.of(modules, recorded, rows, queries, heads)
        about = {
            "model": type(plain_module(model)).__name__,
            "every": every,
            "rows": rows,
            "queries": queries,
            "asked": list(metrics),
            "thresholds": asdict(self.thresholds),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": software_versions("torch"),
        }
        header = RunHeader(self._plan.layers, recorded, about)
        told: Any = {"on_alert": on_alert, "stop_on": stop_on, "report": report, "per_head": per_head}
        self._sinks = Sinks(header, self.thresholds, path, **told)
        self._evaluate, self._reduce = evaluate, reduce
        self._step = 0
        self._look: Look | None = None
        self._open: tuple[str, Look, ExitStack] | None = None
        self._taken: dict[str, int] = {}
        self._pending: list[tuple[Sample, OnItsWay]] = []
        self._warned = False
        self._inside, self._started = 0.0, 0.0

    def __enter__(self) -> Self:
        self.start_looking()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_looking(keep=kind is None)

    def step(self, loss: Any = None, *, epoch: float | None = None) -> None:
        """Tell that the weights were updated: the sample of this step is finished, and the next step begins.

        Parameters
        ----------
        loss
            The loss of the step, if the model does not return it itself.
        epoch
            Where the run is.
        """
        start = time.perf_counter()
        if self._look is not None:
            self._finish(self._look, TRAIN, loss, epoch)
            self._look = None
        self._collect(wait=False)
        self._step += 1
        self._inside += time.perf_counter() - start

    def resume(self, step: int) -> None:
        """Say that training goes on after ``step`` updates, from a checkpoint.

        Samples of the run's file from this step on are superseded, and the alerts pick up their memory from those
        before it.
        """
        if step < 0:
            raise InputError(f"step must be at least 0, but is {step}.")
        self._step = int(step)
        self._sinks.resume()

    def close(self) -> None:
        """Finish what is on its way and close the file; the results can still be read."""
        self.stop_looking(keep=False)
        self._collect(wait=True)
        self._sinks.close(self._step)

    @property
    def alerts(self) -> list[Alert]:
        """The alerts so far, in order."""
        return self._sinks.alerts

    @property
    def should_stop(self) -> bool:
        """Whether an alert of ``stop_on`` was raised."""
        return self._sinks.should_stop

    @property
    def latest(self) -> Sample | None:
        """The newest sample."""
        return self._sinks.latest

    @property
    def run(self) -> MonitorRun:
        """What was recorded so far."""
        self._collect(wait=True)
        return self._sinks.run

    def table(self) -> pd.DataFrame:
        """Return one row per sampled step and head, with a column per metric."""
        return self.run.table()

    def report_values(self) -> dict[str, float]:
        """Return the newest sample as a trainer reports it: ``attn/mu_K/median`` and the like."""
        return {} if self.latest is None else self._sinks.report_values(self.latest)

    @property
    def n_steps(self) -> int:
        """Updates so far."""
        return self._step

    @property
    def seconds(self) -> float:
        """Time spent inside the monitor."""
        return self._inside

    @property
    def overhead(self) -> float:
        """Share of the time since the first step that was spent inside the monitor; NaN before it."""
        return self._inside / (time.perf_counter() - self._started) if self._started else float("nan")

    def callback(self) -> MonitorTrainerCallback:
        """Return a callback for Hugging Face's ``Trainer``.

        Pass it to the trainer as one of its ``callbacks``; or call ``monitor.callback().attach(trainer)``, which puts
        it ahead of TensorBoard, Weights & Biases and the like, so that they get the aggregates too.
        """
        from headscape.monitor.trainer_callback import MonitorTrainerCallback

        return MonitorTrainerCallback(self)

    def lightning_callback(self) -> MonitorLightningCallback:
        """Return a callback for Lightning's ``Trainer``, which sends the aggregates to its loggers."""
        try:
            from headscape.monitor.lightning_callback import MonitorLightningCallback
        except ImportError as error:
            raise MissingDependencyError(
                f'the callback needs Lightning ({error}). Install it with: pip install "headscape[lightning]"'
            ) from error
        return MonitorLightningCallback(self)

    def start_looking(self, phase: str | None = None) -> None:
        """Watch the model if this step is to be sampled and was not yet; the phase is the model's mode by default."""
        start = time.perf_counter()
        self._started = self._started or start
        phase = phase or (TRAIN if plain_module(self.model).training else EVAL)
        if self._open is None and self._wanted(phase):
            self._taken[phase] = self._step
            look = Look(self._plan)
            self._open = phase, look, self._watching(look)
        self._inside += time.perf_counter() - start

    def stop_looking(self, *, keep: bool = True) -> None:
        """Leave the model alone again; the sample is finished by :meth:`step`, that of an evaluation at once."""
        if self._open is None:
            return
        start = time.perf_counter()
        phase, look, watching = self._open
        watching.close()
        self._open = None
        if keep and phase == EVAL:
            self._finish(look, EVAL, None, None)
        elif keep:
            self._look = look
        self._inside += time.perf_counter() - start

    def _wanted(self, phase: str) -> bool:
        if rank() != 0 and self._reduce is None:
            return False
        if phase == EVAL:
            return self._evaluate and self._taken.get(EVAL) != self._step
        return self._step % self.every == 0 and self._taken.get(TRAIN) != self._step

    def _watching(self, look: Look) -> ExitStack:
        module = plain_module(self.model)
        stack = ExitStack()
        if getattr(getattr(module, "config", None), "_attn_implementation", "") != _COMPILED_KERNEL:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(watched(module, look))
        hook = module.register_forward_hook(lambda _, __, output: look.note_loss(output))
        stack.callback(hook.remove)
        return stack

    def _finish(self, look: Look, phase: str, loss: Any, epoch: float | None) -> None:
        """Turn a look into a sample on its way."""
        self._inside += look.seconds
        values = look.stacked() if look.complete else None
        if self._reduce == "mean" and world_size() > 1 and phase == TRAIN:
            device = next(plain_module(self.model).parameters()).device
            values = reduced(values, self._plan.metrics, device)
        if values is None:
            self._tell_incomplete(look)
            return
        number = look.loss if loss is None else torch.as_tensor(loss).detach()
        sample = Sample(
            step=self._step,
            values={},
            phase=phase,
            epoch=float("nan") if epoch is None else float(epoch),
            time=time.time(),
            seconds=look.seconds,
        )
        self._pending.append((sample, OnItsWay(values, number)))
        self._collect(wait=False)

    def _collect(self, *, wait: bool) -> None:
        """Judge, write and report the samples that have arrived, in order."""
        while self._pending and (wait or len(self._pending) > 1 or self._pending[0][1].arrived):
            sample, values = self._pending.pop(0)
            start = time.perf_counter()
            table, loss = values.fetch()
            table[:, self._plan.left_out] = np.nan
            found = dict(zip(self._plan.metrics, table, strict=True))
            found["nonfinite"] = np.where(self._plan.left_out, np.float32(0), found["nonfinite"])
            seconds = sample.seconds + time.perf_counter() - start
            self._sinks.take(replace(sample, values=found, loss=loss, seconds=seconds))

    def _tell_incomplete(self, look: Look) -> None:
        if not self._warned:
            self._warned = True
            message = f"the monitor has no sample of step {self._step}: {look.problem}. Training goes on."
            warnings.warn(message, UserWarning, stacklevel=3)
