"""Recovery: the output projections of all layers trained further, after heads are gone, on the calibration text.

Only the output projections learn; everything else stays as it is, and so do removed heads. Adam (Kingma, Ba, arXiv
1412.6980) on batches of windows in a seeded order, with a learning rate that falls linearly to 0:

    eta_i = RATE (1 - i / steps)

The weights are kept in float32 while they are trained, whatever the dtype of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Batch
from headscape.ablation.repair import Repair
from headscape.engine import Progress
from headscape.errors import ModelError
from headscape.models.forward_pass import evaluating, forward
from headscape.models.lazy_torch import torch
from headscape.models.projection import put_back
from headscape.pruning.manifest import Pairs
from headscape.pruning.trial_parts import TrialParts, heads_key
from headscape.recorder.gates import frozen, switched_off

RATE = 1e-4
"""Learning rate of the first step."""
WINDOWS_A_STEP = 4
"""Windows of a batch, where they are of one shape and 256 tokens."""
CHECKPOINT = 25
"""Steps after which what was learned is kept on disk."""


def recovered(
    evaluator: HeadEvaluator,
    heads: Pairs,
    start: Repair | None,
    steps: int,
    parts: TrialParts,
    progress: Progress,
) -> Repair:
    """Return the output projections of all layers after ``steps`` steps of training.

    Parameters
    ----------
    evaluator
        The model and the windows to train on.
    heads
        (layer, head) pairs that are gone.
    start
        Re-fitted projections to begin with.
    steps
        Batches to train on; the windows are gone through as often as needed.
    parts
        Where what is learned is kept, every 25 steps and at the end: an interrupted training resumes there.
    progress
        Progress callback.

    Notes
    -----
    One forward and one backward pass per step. Three copies of the projections in float32.
    """
    name = f"recovery-{heads_key(heads)}-{'bare' if start is None else 'repaired'}-{steps}"
    training = _Training(evaluator, heads, steps, parts, name)
    projections = evaluator.projections
    with put_back(projections.values()):
        if start is not None:
            for layer, matrix in start.matrices.items():
                projections[layer].write(matrix, start.biases.get(layer))
        training.run(progress)
        matrices = {layer: p.matrix.detach().clone() for layer, p in projections.items()}
        biases = {layer: p.bias.detach().clone() for layer, p in projections.items() if p.bias is not None}
    return Repair(matrices, biases)


@contextmanager
def _learning(weights: Mapping[str, torch.nn.Parameter]) -> Iterator[None]:
    """Take gradients of some weights for the length of a block."""
    try:
        for weight in weights.values():
            weight.requires_grad_(True)
        yield
    finally:
        for weight in weights.values():
            weight.requires_grad_(False)


@dataclass(eq=False)
class _Training:
    """A training that can be stopped after any checkpoint."""

    evaluator: HeadEvaluator
    heads: Pairs
    steps: int
    parts: TrialParts
    name: str

    def run(self, progress: Progress) -> None:
        """Train the projections in place, from the last checkpoint on."""
        model, objective = self.evaluator.model, self.evaluator.objective
        weights = self._weights()
        masters = {name: weight.detach().float().clone() for name, weight in weights.items()}
        adam = torch.optim.Adam(list(masters.values()), lr=RATE)
        done = self._resumed(masters, adam)
        with (
            frozen(model),
            evaluating(model),
            switched_off(self.evaluator.modules, self.heads),
            _learning(weights),
        ):
            self._write(weights, masters)
            for step in range(done, self.steps):
                progress("recovering", step, self.steps)
                batch = objective.batches[self._batch_at(step, len(objective.batches))]
                self._step(step, batch, weights, masters, adam)
                if (step + 1) % CHECKPOINT == 0 or step + 1 == self.steps:
                    self._keep(step + 1, masters, adam)

    def _step(
        self,
        step: int,
        batch: Batch,
        weights: Mapping[str, torch.nn.Parameter],
        masters: Mapping[str, torch.Tensor],
        adam: torch.optim.Optimizer,
    ) -> None:
        model, objective = self.evaluator.model, self.evaluator.objective
        loss = objective.losses(forward(model, batch.call(model), "windows to train on"), batch).mean()
        if not bool(torch.isfinite(loss)):
            raise ModelError(
                f"recovery failed in step {step}: the loss is not finite. Is the model run in float16? float32 or "
                "bfloat16 (--dtype) have the range."
            )
        for master, gradient in zip(
            masters.values(), torch.autograd.grad(loss, list(weights.values())), strict=True
        ):
            master.grad = gradient.float()
        for group in adam.param_groups:
            group["lr"] = RATE * (1 - step / self.steps)
        adam.step()
        self._write(weights, masters)

    def _weights(self) -> dict[str, torch.nn.Parameter]:
        """Return what learns: the weights and biases of the output projections, by layer."""
        return {
            f"{layer}.{name}": parameter
            for layer, projection in self.evaluator.projections.items()
            for name, parameter in projection.module.named_parameters(recurse=False)
        }

    def _batch_at(self, step: int, n: int) -> int:
        """Return which batch a step takes: every pass over them is an order of its own."""
        rng = np.random.default_rng([self.evaluator.seed, step // n])
        return int(rng.permutation(n)[step % n])

    @staticmethod
    def _write(weights: Mapping[str, torch.nn.Parameter], masters: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, master in masters.items():
                weights[name].copy_(master)

    def _keep(self, step: int, masters: Mapping[str, torch.Tensor], adam: torch.optim.Optimizer) -> None:
        """Write a checkpoint, and delete the one before it."""
        if self.parts.store is None:
            return
        found: dict[str, NDArray[Any]] = {}
        for name, master in masters.items():
            state = adam.state[master]
            found[f"{name}.value"] = master.detach().cpu().numpy()
            found[f"{name}.first"] = state["exp_avg"].cpu().numpy()
            found[f"{name}.second"] = state["exp_avg_sq"].cpu().numpy()
        before = self._checkpoints()
        self.parts.write(f"{self.name}-{step}", found)
        for old in before.values():
            self.parts.drop(old)

    def _resumed(self, masters: Mapping[str, torch.Tensor], adam: torch.optim.Optimizer) -> int:
        """Go back to the newest checkpoint, and return how many steps it has behind it."""
        known = self._checkpoints()
        if not known:
            return 0
        step = max(known)
        arrays = self.parts.read(known[step])
        with torch.no_grad():
            for name, master in masters.items():
                master.copy_(torch.from_numpy(arrays[f"{name}.value"]))
                adam.state[master] = {
                    "step": torch.tensor(float(step)),
                    "exp_avg": torch.from_numpy(arrays[f"{name}.first"].copy()).to(master),
                    "exp_avg_sq": torch.from_numpy(arrays[f"{name}.second"].copy()).to(master),
                }
        return step

    def _checkpoints(self) -> dict[int, str]:
        """Return the names of the checkpoints by their step."""
        found = [] if self.parts.store is None else self.parts.store.parts()
        matches = (re.fullmatch(rf"{re.escape(self.name)}-([0-9]+)", name) for name in found)
        return {int(match[1]): match[0] for match in matches if match is not None}
