"""What a model is judged by: a loss for every window, and a metric that people know.

| model | loss of a window | metric |
|---|---|---|
| any, with ``labels`` in its inputs | cross-entropy of the labels | accuracy |
| language models | cross-entropy of the next token, nats a token | perplexity |
| masked language models | cross-entropy of 15 % of the tokens, hidden from the model | perplexity |
| others (encoders without a head) | squared change of the output, relative to the intact model's | |

The last one is 0 for the intact model and flat there, so gradients are taken of the output along random directions
in its place: their mean square is the squared change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError, ModelError
from headscape.models.adapters.families import task_of
from headscape.models.forward_pass import arguments_for, evaluating, forward
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model
from headscape.models.plain_arguments import as_called
from headscape.models.plain_facts import config_of
from headscape.recorder.inputs import WindowInput

LABELS = "labels"
_IGNORED = -100
_HIDDEN_SHARE = 0.15
# Logits of so many tokens fit into memory also for large vocabularies.
_TOKENS_A_BATCH = 1024

Loss = Callable[[Any, Mapping[str, "torch.Tensor"]], "torch.Tensor"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows of one shape as one batch: what the model is given, and what it is measured against.

    ``targets`` are token ids or labels, -100 where nothing is asked; ``reference`` is the intact model's output, and
    ``directions`` random ones of the same shape.
    """

    arguments: Mapping[str, torch.Tensor]
    targets: torch.Tensor | None = None
    reference: torch.Tensor | None = None
    directions: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Number of windows."""
        return len(next(iter(self.arguments.values())))

    def call(self, model: torch.nn.Module) -> dict[str, Any]:
        """Return the arguments of a forward pass that keeps no cache."""
        cacheless = {"use_cache": False} if getattr(config_of(model), "use_cache", False) else {}
        return {**self.arguments, **cacheless}


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss of every window, and the share of right answers where there are labels."""

    losses: NDArray[np.float64]
    accuracy: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Objective:
    """How a model is judged on its batches.

    Parameters
    ----------
    name
        What the loss is, with its unit.
    batches
        The windows.
    losses
        Maps the output of a forward pass and its batch to one loss per row.
    sensitivity
        The same for what gradients are taken of; the losses themselves unless these are flat.
    labeled
        Whether there are right answers to count.
    perplexity
        Whether exp(loss) is a perplexity.
    relative
        Whether a change is told as a share of the intact model's loss.
    """

    name: str
    batches: tuple[Batch, ...]
    losses: Callable[[Any, Batch], torch.Tensor]
    sensitivity: Callable[[Any, Batch], torch.Tensor]
    labeled: bool = False
    perplexity: bool = False
    relative: bool = True

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return sum(batch.rows for batch in self.batches)

    def evaluate(self, model: torch.nn.Module) -> Losses:
        """Return the losses of all windows: one forward pass per batch, without gradients."""
        return self.joined([self.of_batch(model, batch) for batch in self.batches])

    def of_batch(self, model: torch.nn.Module, batch: Batch) -> Losses:
        """Return the losses of one batch."""
        with evaluating(model), torch.no_grad():
            output = forward(model, batch.call(model), "windows to evaluate")
            losses = self.losses(output, batch).double().cpu().numpy()
            right = _accuracy(_logits(output), _there(batch.targets)) if self.labeled else None
        return Losses(losses, None if right is None else right.double().cpu().numpy())

    def joined(self, parts: Sequence[Losses]) -> Losses:
        """Return the losses of all batches as one, or raise if some are not finite."""
        found = np.concatenate([part.losses for part in parts])
        if not np.isfinite(found).all():
            raise ModelError(
                f"the loss of {int((~np.isfinite(found)).sum())} of {len(found)} windows is not finite. Is the model "
                "run in float16? float32 or bfloat16 (--dtype) have the range."
            )
        right = [part.accuracy for part in parts if part.accuracy is not None]
        return Losses(found, np.concatenate(right) if right else None)


def objective_for(
    loaded: Model, windows: Sequence[WindowInput], loss: Loss | None = None, seed: int = 0
) -> Objective:
    """Return what a model is judged by on some windows: see the table at the top of this file.

    ``loss`` is one of the user's own: called with the model's output and its arguments, it gives one number per row.
    ``seed`` is that of hidden tokens and random directions.
    """
    model, task = loaded.model, task_of(loaded.model)
    batches = tuple(_batch(model, group) for group in _same_shapes(windows))
    if loss is not None:
        own = _checked(loss, model)
        return Objective("the given loss", batches, own, own)
    if batches[0].targets is not None:
        if task == "next token":  # these models shift their labels themselves
            batches = tuple(replace(batch, targets=_shifted(_there(batch.targets))) for batch in batches)
        return Objective("cross-entropy of the labels", batches, _labeled, _labeled, labeled=True)
    if task == "masked token":
        hidden = tuple(_hidden(batch, loaded.tokenizer, seed + i) for i, batch in enumerate(batches))
        return Objective("nats per hidden token", hidden, _labeled, _labeled, perplexity=True)
    if task in ("next token", "decoded token"):
        shifted = tuple(replace(batch, targets=_next_tokens(batch.arguments)) for batch in batches)
        return Objective("nats per token", shifted, _labeled, _labeled, perplexity=True)
    referenced = tuple(_with_reference(model, batch, seed + i) for i, batch in enumerate(batches))
    return Objective(
        "squared change of the output, relative", referenced, _change, _along_directions, relative=False
    )


def _same_shapes(windows: Sequence[WindowInput]) -> Iterable[list[WindowInput]]:
    """Yield runs of windows that can be stacked, cut so that a batch stays small."""
    for shapes, run in groupby(
        windows, key=lambda w: [(name, x.shape) for name, x in sorted(w.arguments.items())]
    ):
        together = list(run)
        tokens = max((x[1][1] for x in shapes if x[0].endswith("input_ids")), default=64)
        size = max(1, _TOKENS_A_BATCH // tokens)
        for start in range(0, len(together), size):
            yield together[start : start + size]


def _batch(model: torch.nn.Module, windows: Sequence[WindowInput]) -> Batch:
    names = windows[0].arguments
    stacked = {name: torch.cat([window.arguments[name] for window in windows]) for name in names}
    targets = stacked.pop(LABELS, None)
    device = next(model.parameters()).device
    return Batch(arguments_for(model, stacked), None if targets is None else targets.to(device))


def _next_tokens(arguments: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the token after every token; the last one and padding ask for nothing."""
    side = "decoder_" if "decoder_input_ids" in arguments else ""
    if f"{side}input_ids" not in arguments:
        raise InputError(
            f"a language model is judged by token ids, but the inputs hold {', '.join(arguments)}. Give text or "
            "input_ids, or labels, or a loss of your own (loss=...)."
        )
    ids = arguments[f"{side}input_ids"].clone()
    mask = arguments.get(f"{side}attention_mask")
    if mask is not None:
        ids[mask == 0] = _IGNORED
    targets = _shifted(ids)
    if mask is not None:  # nor is the first token asked for where padding on the left stands before it
        targets[mask == 0] = _IGNORED
    if not (targets != _IGNORED).any(dim=1).all():
        raise InputError("every window needs at least 2 tokens to be judged by, but one has fewer.")
    return targets


def _shifted(ids: torch.Tensor) -> torch.Tensor:
    targets = torch.full_like(ids, _IGNORED)
    targets[:, :-1] = ids[:, 1:]
    return targets


def _hidden(batch: Batch, tokenizer: Any, seed: int) -> Batch:
    """Hide 15 % of the tokens that are neither special nor padding, at least one in a row."""
    mask_token = getattr(tokenizer, "mask_token_id", None)
    if mask_token is None:
        raise InputError(
            "a masked language model is judged by tokens that are hidden from it, which needs a tokenizer with a "
            "mask token: give tokenizer=..., or labels, or a loss of your own (loss=...)."
        )
    ids = batch.arguments["input_ids"]
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(ids.shape, generator=generator).to(ids.device)
    special = torch.tensor(sorted(set(tokenizer.all_special_ids)), device=ids.device)
    draws[torch.isin(ids, special)] = torch.nan
    if "attention_mask" in batch.arguments:
        draws[batch.arguments["attention_mask"] == 0] = torch.nan
    chosen = draws <= torch.nanquantile(draws, _HIDDEN_SHARE, dim=1, keepdim=True)
    if not chosen.any(dim=1).all():
        raise InputError(
            "every window needs a token that can be hidden, but one is nothing but special tokens."
        )
    targets = torch.where(chosen, ids, _IGNORED)
    return Batch({**batch.arguments, "input_ids": torch.where(chosen, mask_token, ids)}, targets)


def _with_reference(model: torch.nn.Module, batch: Batch, seed: int) -> Batch:
    with evaluating(model), torch.no_grad():
        reference = _main_output(forward(model, batch.call(model), "windows to evaluate"))
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(reference.shape, generator=generator).to(reference)
    return replace(batch, reference=reference, directions=directions)


def _labeled(output: Any, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of the targets of each row."""
    logits, targets = _logits(output), _there(batch.targets)
    if targets.is_floating_point() or targets.dim() != logits.dim() - 1:
        raise InputError(
            f"labels must be numbers of classes, one per {'row' if logits.dim() == 2 else 'token'}, but have the "
            f"shape {tuple(targets.shape)} and dtype {targets.dtype} for logits {tuple(logits.shape)}. For another "
            "task give a loss of your own (loss=...)."
        )
    if int(targets.max()) >= logits.shape[-1]:
        raise InputError(f"labels must be below {logits.shape[-1]}, but go up to {int(targets.max())}.")
    if bool(((targets < 0) & (targets != _IGNORED)).any()):
        raise InputError(
            f"labels must be from 0, or {_IGNORED} where nothing is asked, but one is "
            f"{int(targets[(targets < 0) & (targets != _IGNORED)][0])}."
        )
    each = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, -2), targets.flatten(), ignore_index=_IGNORED, reduction="none"
    ).reshape(len(logits), -1)
    asked = (targets != _IGNORED).reshape(len(logits), -1)
    means: torch.Tensor = each.sum(dim=1) / asked.sum(dim=1).clamp(min=1)
    return means


def _accuracy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    asked = (targets != _IGNORED).reshape(len(logits), -1)
    right = (logits.argmax(dim=-1) == targets).reshape(len(logits), -1) & asked
    shares: torch.Tensor = right.sum(dim=1) / asked.sum(dim=1).clamp(min=1)
    return shares


def _change(output: Any, batch: Batch) -> torch.Tensor:
    reference = _there(batch.reference).float().flatten(1)
    moved = _main_output(output).float().flatten(1) - reference
    changes: torch.Tensor = moved.square().sum(dim=1) / reference.square().sum(dim=1)
    return changes


def _along_directions(output: Any, batch: Batch) -> torch.Tensor:
    reference, directions = _there(batch.reference).flatten(1), _there(batch.directions).flatten(1)
    along: torch.Tensor = (_main_output(output).flatten(1) * directions).sum(dim=1) / reference.norm(dim=1)
    return along


def _checked(loss: Loss, model: torch.nn.Module) -> Callable[[Any, Batch], torch.Tensor]:
    def own(output: Any, batch: Batch) -> torch.Tensor:
        labels = {} if batch.targets is None else {LABELS: batch.targets}
        found = loss(output, {**as_called(model, batch.arguments), **batch.arguments, **labels})
        if not isinstance(found, torch.Tensor) or found.shape != (batch.rows,):
            came = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise InputError(f"loss must give one number per row, a tensor ({batch.rows},), but gave {came}.")
        return found

    return own


def _logits(output: Any) -> torch.Tensor:
    logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if logits is None and type(output) in (torch.Tensor, tuple, list):  # what plain modules return
        logits = _main_output(output)
    if logits is None:
        raise InputError(
            "labels need a model with an output layer for them, but this one gives no logits. Leave the labels out, "
            "or load the model with its head (AutoModelForSequenceClassification, ...)."
        )
    found: torch.Tensor = logits
    return found


def _main_output(output: Any) -> torch.Tensor:
    for name in ("logits", "last_hidden_state", "image_embeds"):
        found = output.get(name) if isinstance(output, dict) else getattr(output, name, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    if isinstance(first, torch.Tensor) and first.is_floating_point():  # what plain modules return
        return first
    raise ModelError(
        f"{type(output).__name__} holds neither logits nor hidden states to compare. Give a loss of your own "
        "(loss=...)."
    )


def _there(x: torch.Tensor | None) -> torch.Tensor:
    assert x is not None  # made together with the objective
    return x
