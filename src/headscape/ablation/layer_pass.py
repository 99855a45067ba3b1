"""A pass through a model that changes the output projection of every layer as soon as its inputs are known.

What enters a layer is what the changed layers before it give, so that one pass fits all layers one after another. With
folds, every window goes through projections that were fitted without the windows of its own fold (cross-fitting): one
pass of all windows then gives each of them a loss that it had no direct part in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.moments import Moments
from headscape.ablation.objective import Batch
from headscape.ablation.resumed_forward import LastBlock
from headscape.ablation.ridge_fit import Weights
from headscape.models.forward_pass import forward, without_extras
from headscape.models.lazy_torch import torch
from headscape.recorder.gates import gated

Decide = Callable[[int, Sequence[Moments]], Sequence[Weights]]
"""Maps a layer and the moments of its folds to the weights that the windows of each fold go through."""


class LayerPasses:
    """Passes of one model over the windows of an evaluator; what the intact model gives is computed once.

    Parameters
    ----------
    evaluator
        The model and its windows.
    intact
        The activations of the intact model by layer, (token, head x d) of all windows, if they are known.

    Notes
    -----
    Windows of one shape are one batch, and a pass is one forward pass; windows of several shapes take a pass per
    layer, because a layer has to see all of them before the next one can. Memory: tokens x (head x d) floats a layer
    where the intact activations are asked for.
    """

    def __init__(self, evaluator: HeadEvaluator, intact: Mapping[int, torch.Tensor] | None = None) -> None:
        self.evaluator, self.projections = evaluator, evaluator.projections
        self.batches = _together(evaluator.objective.batches)
        self._intact: dict[int, list[torch.Tensor]] = {}
        if intact is not None and len(self.batches) == 1:
            self._intact = {layer: [activations] for layer, activations in intact.items()}

    @cached_property
    def _last_block(self) -> LastBlock:
        return LastBlock(self.evaluator.modules, self.evaluator.objective)

    def fit(
        self, layers: Sequence[int], decide: Decide, drift: bool = False, what: str = "repairing"
    ) -> dict[int, Weights]:
        """Return what ``decide`` makes of every layer, each on what the layers before it give."""
        one = np.zeros(self.evaluator.objective.n_windows, dtype=np.int64)
        fitted = _Pass(self, layers, decide, one, drift).run(what)
        return {layer: weights for layer, [weights] in fitted.items()}

    def losses(
        self, layers: Sequence[int], decide: Decide, folds: NDArray[np.int64], drift: bool = False
    ) -> NDArray[np.float64]:
        """Return the loss of every window in a pass where each fold has weights of its own.

        ``decide`` is shown the moments of the folds and returns as many weights.
        """
        run = _Pass(self, layers, decide, folds, drift)
        ends = self._last_block if len(self.batches) == 1 and self._last_block.works else None
        if ends is not None:
            with ends.recording() as outputs:
                run.run("cross-validating")
            return ends.evaluate(outputs[0]).losses
        run.run("cross-validating")
        objective, parts, start = self.evaluator.objective, [], 0
        for batch in objective.batches:
            with run.applied(batch, start), gated(self.evaluator.modules, {}):
                parts.append(objective.of_batch(self.evaluator.model, batch))
            start += batch.rows
        return objective.joined(parts).losses

    def intact(self, layers: Sequence[int]) -> Mapping[int, list[torch.Tensor]]:
        """Return the activations of the intact model by layer, batch by batch, (token, head x d)."""
        if missing := [layer for layer in layers if layer not in self._intact]:
            found: dict[int, list[torch.Tensor]] = {layer: [] for layer in missing}
            for batch in self.batches:
                hooks = {layer: _keeping(found[layer], batch) for layer in missing}
                self.forward(batch, before=hooks)
            self._intact |= found
        return self._intact

    def forward(
        self, batch: Batch, before: Mapping[int, Any] | None = None, after: Mapping[int, Any] | None = None
    ) -> None:
        """Run a batch without its logits, with hooks before and after the projections of some layers."""
        model = self.evaluator.model
        # Observed, because torch's own attention calls its output projection, and so our hooks, only then.
        with ExitStack() as stack, gated(self.evaluator.modules, {}), torch.no_grad():
            for layer, hook in (before or {}).items():
                stack.enter_context(self.projections[layer].module.register_forward_pre_hook(hook))
            for layer, hook in (after or {}).items():
                stack.enter_context(self.projections[layer].module.register_forward_hook(hook))
            forward(model, {**batch.call(model), **without_extras(model)}, "windows to calibrate on")


class _Pass:
    """One pass: the moments of the layer at hand, and the weights of the layers before it."""

    def __init__(
        self,
        passes: LayerPasses,
        layers: Sequence[int],
        decide: Decide,
        folds: NDArray[np.int64],
        drift: bool,
    ) -> None:
        self.passes, self.layers, self.decide, self.folds = passes, sorted(layers), decide, folds
        self.intact = passes.intact(layers) if drift else None
        self.fitted: dict[int, Sequence[Weights]] = {}
        self.moments: dict[int, list[Moments]] = {}

    def run(self, what: str) -> dict[int, Sequence[Weights]]:
        """Fit all layers, and return the weights of every fold."""
        batches, layers = self.passes.batches, self.layers
        # A single batch shows every layer all its tokens at once; else a layer has to see all batches first.
        rounds = [layers] if len(batches) == 1 else [[layer] for layer in layers]
        for done, now in enumerate(rounds):
            self.passes.evaluator.progress(what, done, len(rounds))
            start = 0
            for number, batch in enumerate(batches):
                see = {layer: self._seeing(layer, number, start) for layer in now}
                use = {layer: self._using(layer, batch, start) for layer in layers}
                self.passes.forward(batch, see, use)
                start += batch.rows
        return self.fitted

    def applied(self, batch: Batch, start: int) -> ExitStack:
        """Let a batch, whose first window has this number, go through the fitted weights for a block."""
        with ExitStack() as stack:
            for layer in self.layers:
                module = self.passes.projections[layer].module
                stack.enter_context(module.register_forward_hook(self._using(layer, batch, start)))
            return stack.pop_all()

    def _seeing(self, layer: int, number: int, start: int) -> Any:
        batch = self.passes.batches[number]
        of_rows = self.folds[start : start + batch.rows]

        def see(_: Any, arguments: Any) -> None:
            x, mask = _rows(arguments[0], batch), _mask(arguments[0], batch)
            intact = None if self.intact is None else self.intact[layer][number]
            for fold in range(int(self.folds.max()) + 1):
                mine = torch.from_numpy(of_rows == fold).to(x.device)
                if bool(mine.any()):
                    token = (mine[:, None] & mask).flatten()
                    part = Moments.of(
                        x.flatten(0, 1)[token], None if intact is None else intact[token[mask.flatten()]]
                    )
                    self._add(layer, fold, part)
            if number == len(self.passes.batches) - 1:
                moments = self.moments.pop(layer)
                self.fitted[layer] = self.decide(layer, moments)

        return see

    def _add(self, layer: int, fold: int, part: Moments) -> None:
        known = self.moments.setdefault(layer, [])
        if fold < len(known):
            known[fold] = known[fold] + part
        else:
            # Folds are in the order of the windows, so that a new one is the next.
            assert fold == len(known)
            known.append(part)

    def _using(self, layer: int, batch: Batch, start: int) -> Any:
        of_rows = self.folds[start : start + batch.rows]

        def use(_: Any, arguments: Any, output: torch.Tensor) -> torch.Tensor | None:
            if layer not in self.fitted:
                return None
            x = _rows(arguments[0], batch)
            found = output.new_empty(*x.shape[:2], output.shape[-1])
            for fold in np.unique(of_rows):
                rows = torch.from_numpy(np.flatnonzero(of_rows == fold)).to(x.device)
                found[rows] = torch.nn.functional.linear(x[rows], *self.fitted[layer][fold])
            return found.reshape(output.shape)

        return use


def folds_of(n_windows: int, count: int) -> NDArray[np.int64]:
    """Return the fold of every window: runs of neighbors, because windows next to each other are alike.

    Examples
    --------
    >>> folds_of(6, 4).tolist()
    [0, 0, 1, 2, 2, 3]
    """
    return np.arange(n_windows) * min(count, n_windows) // n_windows


def _rows(x: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return what enters a projection as (row, token, head x d)."""
    return x.detach().reshape(batch.rows, -1, x.shape[-1])


def _mask(x: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return which tokens (row, token) are not padding, where the padding can be followed."""
    shape = _rows(x, batch).shape[:2]
    mask = batch.arguments.get("attention_mask")
    if mask is None or mask.shape != shape:
        return torch.ones(shape, dtype=torch.bool, device=x.device)
    return mask.bool()


def _keeping(found: list[torch.Tensor], batch: Batch) -> Any:
    """Return a hook that keeps the activations of a batch, without padding."""
    return lambda _, arguments: found.append(_rows(arguments[0], batch)[_mask(arguments[0], batch)])


def _together(batches: Sequence[Batch]) -> list[Batch]:
    """Join batches of one shape into one."""
    shapes = {tuple((name, x.shape[1:]) for name, x in sorted(batch.arguments.items())) for batch in batches}
    if len(shapes) > 1:
        return list(batches)
    names = batches[0].arguments
    return [Batch({name: torch.cat([batch.arguments[name] for batch in batches]) for name in names})]
