"""Forward passes that begin at the first layer that was touched: what lies before it is the same every time.

The outputs of all blocks of a stack are kept from a pass of the intact model. In a later pass the blocks before the
first touched one return at once, the last of them with what it returned then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from headscape.ablation.objective import Losses, Objective
from headscape.models.anatomy import AttentionModule
from headscape.models.lazy_torch import torch
from headscape.models.stacks import split_name

MAX_BYTES = 1 << 30
"""Kept outputs larger than this cost more than they save."""


class Prefix:
    """Evaluates a model with some layers changed, computing only from the first of them on.

    The modules are those of one stack of the intact model. Whether a model can be entered in the middle is found out
    by trying: if the intact losses do not come out the same, or the kept outputs were too large, every pass is whole.
    """

    def __init__(self, modules: Sequence[AttentionModule], objective: Objective) -> None:
        model = self.model = modules[0].model
        self.objective = objective
        self.layers = [module.layer for module in modules]
        self.blocks = _blocks(modules)
        self._outputs: list[list[Any]] = []
        self.intact = self._recorded() if self.blocks else objective.evaluate(model)
        if self.blocks and not self._agrees():
            self.blocks, self._outputs = [], []

    def evaluate(self, first: int) -> Losses:
        """Return the losses of the model as it is now, given that layers before ``first`` are intact."""
        place = self.layers.index(first)
        if not self.blocks or place == 0:
            return self.objective.evaluate(self.model)
        parts = []
        for number, batch in enumerate(self.objective.batches):
            with _handed_through(self.blocks[:place], self._outputs[number][place - 1]):
                parts.append(self.objective.of_batch(self.model, batch))
        return self.objective.joined(parts)

    def _recorded(self) -> Losses:
        """Evaluate the intact model and keep what every block returns."""
        parts, kept_bytes = [], 0
        for batch in self.objective.batches:
            outputs: list[Any] = []
            with ExitStack() as stack:
                for block in self.blocks:
                    stack.enter_context(block.register_forward_hook(_appending_to(outputs)))
                parts.append(self.objective.of_batch(self.model, batch))
            kept_bytes += sum(_tensor(output).nbytes for output in outputs if _tensor(output) is not None)
            if kept_bytes > MAX_BYTES or len(outputs) != len(self.blocks):
                self.blocks, self._outputs = [], []
                return self.objective.evaluate(self.model)
            self._outputs.append(outputs)
        return self.objective.joined(parts)

    def _agrees(self) -> bool:
        """Tell whether the intact model, entered at its last block, gives the losses of a whole pass."""
        batch, outputs = self.objective.batches[0], self._outputs[0]
        if any(_tensor(output) is None for output in outputs):
            return False
        try:
            with _handed_through(self.blocks[:-1], outputs[-2] if len(outputs) > 1 else outputs[0]):
                found = self.objective.of_batch(self.model, batch)
        except Exception:  # a model that cannot be entered may raise anything; then passes are whole
            return False
        return bool((found.losses == self.intact.losses[: batch.rows]).all())


def _blocks(modules: Sequence[AttentionModule]) -> list[torch.nn.Module]:
    """Return the numbered blocks that hold the attention modules, or none if they are not one list."""
    places = [split_name(module.name)[:2] for module in modules]
    if len(set(places)) < len(places) or any(number is None for _, number in places):
        return []
    return [modules[0].model.get_submodule(f"{prefix}.{number}".lstrip(".")) for prefix, number in places]


def _tensor(output: Any) -> Any:
    """Return the hidden state that a block returned: its output, or the first entry of it."""
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    return first if isinstance(first, torch.Tensor) else None


def _appending_to(outputs: list[Any]) -> Any:
    """Return a hook that appends what a block returns to a list."""
    return lambda _, __, output: outputs.append(output)


@contextmanager
def _handed_through(blocks: Sequence[torch.nn.Module], last: Any) -> Iterator[None]:
    """Let blocks return at once: the last with a kept output, the others with their input in the same form."""

    def quick(output: Any) -> Any:
        def run(hidden: torch.Tensor | None = None, *_: Any, **named: Any) -> Any:
            state = named["hidden_states"] if hidden is None else hidden
            if output is not None:
                return output
            return (state, *last[1:]) if isinstance(last, tuple) else state

        return run

    before = [block.__dict__.get("forward") for block in blocks]
    try:
        for block in blocks:
            block.__dict__["forward"] = quick(last if block is blocks[-1] else None)
        yield
    finally:
        for block, forward_before in zip(blocks, before, strict=True):
            if forward_before is None:
                del block.__dict__["forward"]
            else:
                block.__dict__["forward"] = forward_before


class LastBlock:
    """Losses from what the last block of a stack returned in a pass without logits, if a model can be entered there.

    ``works`` says whether it can: on the first batch the losses must be those of a whole pass.
    """

    def __init__(self, modules: Sequence[AttentionModule], objective: Objective) -> None:
        self.model, self.objective = modules[0].model, objective
        self.blocks = _blocks(modules)
        self.works = bool(self.blocks) and self._agrees()

    @contextmanager
    def recording(self) -> Iterator[list[Any]]:
        """Collect what the last block returns, pass by pass, for the length of a block."""
        outputs: list[Any] = []
        with self.blocks[-1].register_forward_hook(_appending_to(outputs)):
            yield outputs

    def evaluate(self, output: Any) -> Losses:
        """Return the losses of all windows, given what the last block returned for all of them in one batch."""
        parts, start = [], 0
        for batch in self.objective.batches:
            with _handed_through(self.blocks, _some_rows(output, start, batch.rows)):
                parts.append(self.objective.of_batch(self.model, batch))
            start += batch.rows
        return self.objective.joined(parts)

    def _agrees(self) -> bool:
        batch = self.objective.batches[0]
        with self.recording() as outputs:
            whole = self.objective.of_batch(self.model, batch)
        if len(outputs) != 1 or _tensor(outputs[0]) is None or len(_tensor(outputs[0])) != batch.rows:
            return False
        try:
            with _handed_through(self.blocks, outputs[0]):
                found = self.objective.of_batch(self.model, batch)
        except Exception:  # a model that cannot be entered may raise anything; then passes are whole
            return False
        return bool((found.losses == whole.losses).all())


def _some_rows(output: Any, start: int, count: int) -> Any:
    """Return what a block returned for some rows of its batch, in the same form."""
    rows = _tensor(output)[start : start + count]
    return (rows, *output[1:]) if isinstance(output, tuple) else rows
