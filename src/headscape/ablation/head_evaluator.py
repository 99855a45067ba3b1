"""What rankings are made from: a model, windows, and what follows from both, each computed once when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.objective import LABELS, Loss, Losses, Objective, objective_for
from headscape.ablation.resumed_forward import Prefix
from headscape.analysis.windows import staged
from headscape.engine import Progress, no_progress
from headscape.errors import InputError, ModelError
from headscape.geometry.organization import Organization, organize
from headscape.models.anatomy import AttentionModule, Heads, heads_of, of_stack, output_projections
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model
from headscape.models.projection import Projection
from headscape.recorder.capturing import capture_windows
from headscape.recorder.gates import gated, switched_off
from headscape.recorder.inputs import WindowInput
from headscape.tensor.capture import Capture


class HeadEvaluator:
    """A model and the windows it is ranked by.

    A score of the user's own is called with it: ``model``, ``heads``, ``capture``, ``organizations`` and
    ``losses(heads that are off)`` are what such a score needs.

    Parameters
    ----------
    loaded
        The model with its tokenizer.
    windows
        To calibrate on.
    stack
        Which stack of the model; by default the first.
    loss
        As in :func:`headscape.rank_heads`.
    capture, organizations
        Of the same model, if they are there already.
    count
        How many heads will be taken from the ranking at most: greedy methods need not go further.
    seed
        Of everything random.
    progress
        Progress callback.
    """

    def __init__(
        self,
        loaded: Model,
        windows: Sequence[WindowInput],
        *,
        stack: str | None = None,
        loss: Loss | None = None,
        capture: Capture | None = None,
        organizations: Sequence[Organization] | None = None,
        count: int | None = None,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> None:
        self.loaded, self.windows = loaded, tuple(windows)
        self.model: torch.nn.Module = loaded.model
        self.stack, self.count, self.seed, self.progress = stack, count, seed, progress
        self._loss, self._capture, self._organizations = loss, capture, organizations

    @cached_property
    def modules(self) -> tuple[AttentionModule, ...]:
        """The attention modules of the stack."""
        return of_stack(self.loaded.modules(self._unlabeled(self.windows[0]).arguments), self.stack)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """All (layer, head) pairs, layer-major."""
        return heads_of(self.modules)

    @cached_property
    def objective(self) -> Objective:
        """What the model is judged by on the windows."""
        return objective_for(self.loaded, self.windows, self._loss, self.seed)

    @cached_property
    def projections(self) -> dict[int, Projection]:
        """The output projection of every layer."""
        try:
            return output_projections(self.modules)
        except ModelError as error:
            raise ModelError(
                f"{error} Methods that do without it: haar, gradient, attention-entropy, confidence, tree-redundancy, "
                "leave-one-out, random."
            ) from error

    @cached_property
    def capture(self) -> Capture:
        """Queries and keys of the windows."""
        found, stack = self._capture, self.modules[0].stack
        if found is None:
            plain = [self._unlabeled(window) for window in self.windows]
            found = capture_windows(self.loaded, plain, progress=self.progress).select(stack)
        if found.heads != self.heads:
            raise InputError(
                f"the capture must have the {len(self.heads)} heads of the model's stack {stack!r}, but has "
                f"{len(found.heads)}, or others. Capture all heads of that stack."
            )
        return found

    @cached_property
    def organizations(self) -> tuple[Organization, ...]:
        """Trees and EMDs of the attention of every window."""
        given = self._organizations
        if given is None:
            given = []
            for window in range(self.capture.n_windows):
                tell = staged(self.progress, f"organizing window {window + 1}/{self.capture.n_windows}")
                given.append(organize(self.capture.tensor(window, "probs"), progress=tell))
        if len(given) != self.capture.n_windows:
            raise InputError(
                f"organizations must be one per window ({self.capture.n_windows}), but there are {len(given)}."
            )
        return tuple(given)

    @staticmethod
    def _unlabeled(window: WindowInput) -> WindowInput:
        """Return a window without the right answers, which only the loss is given."""
        return replace(window, arguments={n: x for n, x in window.arguments.items() if n != LABELS})

    @cached_property
    def _prefix(self) -> Prefix:
        # The registered attention function rounds in its own way; only a gate shall differ from the intact model.
        with gated(self.modules, {}):
            return Prefix(self.modules, self.objective)

    @property
    def intact(self) -> Losses:
        """The losses of the intact model; ask for them before anything is changed."""
        return self._prefix.intact

    def losses(self, off: Heads = ()) -> NDArray[np.float64]:
        """Return the loss of every window with some heads switched off."""
        return self.evaluate(off).losses

    def evaluate(self, off: Heads = ()) -> Losses:
        """Return the losses of every window with some heads switched off, and accuracies if there are labels."""
        if not off:
            return self.intact
        prefix = self._prefix
        with switched_off(self.modules, off):
            return prefix.evaluate(min(layer for layer, _ in off))
