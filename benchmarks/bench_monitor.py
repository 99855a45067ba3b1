"""The training monitor: its share of the time of a run, the difference to a run without it, and its memory.

A GPT-2 of 10 million parameters (8 layers of 8 heads) on batches of 16 x 128 tokens. Three copies of one model train on
the same batches, without a monitor, with one every 50 steps and with one every 10, in turns of 10 steps each; their
losses must be equal bit for bit.
"""

import statistics
import time
from typing import Any

from benchmarks.harness import Measure, Row, peak_memory

TURN, STEPS = 10, 100
SETTINGS: tuple[int | None, ...] = (None, 50, 10)
WANTED = {50: 0.2, 10: 1.0}
TRAINING = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
shape = {"n_positions": 128, "n_embd": 320, "n_layer": 8, "n_head": 8}
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, bos_token_id=None, eos_token_id=None, **shape))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
import headscape as hs
from contextlib import nullcontext
monitor = hs.HeadMonitor(model, every=1)
for step in range(3):
    ids = torch.randint(256, (16, 128))
    with WATCHED:
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    monitor.step()
"""


def rows() -> list[Row | Measure]:
    return time_inside(STEPS)


def memory_rows() -> list[Row | Measure]:
    return [memory()]


class _Training:
    """One copy of the model and how long its turns take."""

    def __init__(self, every: int | None) -> None:
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        import headscape as hs

        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=256,
            n_positions=128,
            n_embd=320,
            n_layer=8,
            n_head=8,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.model = GPT2LMHeadModel(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.monitor = None if every is None else hs.HeadMonitor(self.model, every=every)
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def turn(self, first: int, steps: int) -> None:
        """Train for one turn."""
        start = time.perf_counter()
        for step in range(first, first + steps):
            self._step(step)
        self.seconds.append(time.perf_counter() - start)

    def _step(self, step: int) -> None:
        import torch

        ids = torch.randint(256, (16, 128), generator=torch.Generator().manual_seed(step))
        if self.monitor is None:
            loss = self.model(input_ids=ids, labels=ids).loss
        else:
            with self.monitor:
                loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.monitor is not None:
            self.monitor.step()
        self.losses.append(loss.item())


def time_inside(steps: int, settings: tuple[int | None, ...] = SETTINGS) -> list[Row | Measure]:
    """Return the share of time inside the monitor and the ratio to a run without it, for every setting."""
    _Training(1).turn(0, 2)  # what is loaded and set up once is no cost of a long run
    sides: dict[Any, _Training] = {every: _Training(every) for every in settings}
    for number, first in enumerate(range(0, steps, TURN)):
        turned = number % len(settings)  # a fixed order would measure drift
        for every in (*settings[turned:], *settings[:turned]):
            sides[every].turn(first, TURN)
    plain = sides.pop(None)
    if any(side.losses != plain.losses for side in sides.values()):
        raise RuntimeError("the losses differ with and without a monitor")
    found: list[Row | Measure] = [Measure("step without a monitor", sum(plain.seconds) / steps, "s")]
    for every, side in sides.items():
        inside = side.monitor.seconds
        n = -(-steps // every)
        found.append(
            Measure(
                f"share of time inside the monitor, every={every}",
                100 * inside / sum(side.seconds),
                "%",
                f"{1000 * inside / n:.0f} ms a sample, {n} samples in {steps} steps; wanted: < {WANTED[every]}",
            )
        )
        more = [100 * (ours / theirs - 1) for ours, theirs in zip(side.seconds, plain.seconds, strict=True)]
        found.append(
            Measure(
                f"longer than without a monitor, every={every}",
                statistics.median(more),
                "%",
                f"median of {len(more)} turns of {TURN} steps each; {min(more):.1f} to {max(more):.1f}",
            )
        )
    return found


def memory() -> Measure:
    """Return by how much the peak of training grows if every step is sampled."""
    watched, without = (
        statistics.median(peak_memory(TRAINING.replace("WATCHED", around)) for _ in range(3))
        for around in ("monitor", "nullcontext()")
    )
    note = f"every step sampled; {without:.0f} MiB without a monitor; wanted: < {_bound():.0f}"
    return Measure("peak memory of training beyond that without a monitor", watched - without, "MiB", note)


def _bound() -> float:
    """Return the queries and keys of two rows of a layer, and the workspace, in MiB."""
    from headscape.monitor.workspace import WORKSPACE

    return (2 * 2 * 128 * 320 * 4 + WORKSPACE) / 2**20
