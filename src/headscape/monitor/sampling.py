"""Looking at one forward pass: every attention module once, its metrics kept on the device until they are wanted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headscape.models.adapters.protocol import AttentionCall
from headscape.models.anatomy import AttentionModule
from headscape.models.lazy_torch import torch
from headscape.monitor.metrics import head_metrics
from headscape.monitor.sample import LayerShape, Values

Place = tuple[tuple[str, str], int]


@dataclass(frozen=True)
class SamplingPlan:
    """Which attention modules and heads are measured, and on how much of the batch.

    Attributes
    ----------
    places
        The modules by group and layer, in the order of all arrays.
    layers
        The same as a run's file names them.
    metrics
        What is recorded.
    rows, queries
        Rows of the batch, and queries of a row (None: all).
    left_out : (head,) bool
        Heads of these modules that nobody asked for.
    """

    places: tuple[Place, ...]
    layers: tuple[LayerShape, ...]
    metrics: tuple[str, ...]
    rows: int
    queries: int | None
    left_out: Any

    @classmethod
    def of(
        cls,
        modules: Sequence[AttentionModule],
        metrics: tuple[str, ...],
        rows: int,
        queries: int | None,
        heads: Sequence[tuple[int, int]] | None,
    ) -> SamplingPlan:
        """Plan to look at all heads of some modules, or at some of them."""
        wanted = None if heads is None else set(heads)
        left_out = [
            wanted is not None and (module.layer, head) not in wanted
            for module in modules
            for head in range(module.n_heads)
        ]
        return cls(
            tuple((module.group, module.layer) for module in modules),
            tuple(LayerShape(module.stack, module.layer, module.n_heads) for module in modules),
            metrics,
            rows,
            queries,
            np.array(left_out),
        )


@dataclass
class Look:
    """An observer of one forward pass.

    Calls of a module after its first are ignored, so that neither the recomputation of gradient checkpointing nor the
    further batches of gradient accumulation are taken for it. Whatever fails is kept in ``error`` and never reaches the
    training loop.
    """

    plan: SamplingPlan
    found: dict[Place, torch.Tensor] = field(default_factory=dict)
    loss: Any = None
    seconds: float = 0.0
    error: Exception | None = None

    @property
    def first_rows(self) -> int:
        """How many rows of a batch are looked at: adapters need not compute the others."""
        return self.plan.rows

    def see(self, call: AttentionCall) -> None:
        """Measure a call, if it is the first of a module that is wanted."""
        place = (call.group, call.layer)
        if place in self.found or place not in self.plan.places or self.error is not None:
            return
        start = time.perf_counter()
        try:
            found = head_metrics(call, rows=self.plan.rows, queries=self.plan.queries)
            self.found[place] = torch.stack([found[name] for name in self.plan.metrics])
        except Exception as error:  # a measure must never end somebody's training
            self.error = error
        self.seconds += time.perf_counter() - start

    def fail(self, error: Exception) -> None:
        """Take note that a call could not be read."""
        self.error = self.error or error

    def note_loss(self, output: Any) -> None:
        """Keep the loss that the model itself returns, if it does."""
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if self.loss is None and isinstance(loss, torch.Tensor) and loss.numel() == 1:
            self.loss = loss.detach()

    @property
    def complete(self) -> bool:
        """Whether every module of the plan was seen."""
        return self.error is None and len(self.found) == len(self.plan.places)

    @property
    def problem(self) -> str:
        """Why a look is not complete."""
        if self.error is not None:
            return f"a measure failed ({type(self.error).__name__}: {self.error})"
        if self.complete:
            return "another process has none"
        if not self.found:
            return (
                "no attention was seen. The forward pass must run inside `with monitor:`, on the model that "
                "HeadMonitor was given"
            )
        return f"only {len(self.found)} of {len(self.plan.places)} attention modules were seen"

    def stacked(self) -> torch.Tensor:
        """Return all metrics, (metric, head), on the device."""
        return torch.cat([self.found[place] for place in self.plan.places], dim=1)


class OnItsWay:
    """Values that come from a device without waiting for it: the copy is queued, and fetched when it is done.

    Parameters
    ----------
    values : (metric, head) tensor
    loss
        A tensor of one number, or None.
    """

    def __init__(self, values: torch.Tensor, loss: Any) -> None:
        self._event: Any = None
        number = values.new_full((), float("nan")) if loss is None else loss.to(values)
        whole = torch.cat([values.flatten(), number.reshape(1)])
        self._shape = values.shape
        if values.device.type == "cuda":
            self._host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=True)
            self._host.copy_(whole, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._host = whole.cpu()

    @property
    def arrived(self) -> bool:
        """Whether the values can be had without waiting."""
        return self._event is None or bool(self._event.query())

    def fetch(self) -> tuple[Values, float]:
        """Return the values (metric, head) and the loss; waits for the device if need be."""
        if self._event is not None:
            self._event.synchronize()
        whole = self._host.numpy().astype(np.float32)
        return whole[:-1].reshape(tuple(self._shape)), float(whole[-1])
