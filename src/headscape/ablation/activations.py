"""What enters and leaves the output projections of a model on its windows, and the gradients there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Batch
from headscape.models.forward_pass import forward
from headscape.models.lazy_torch import torch
from headscape.recorder.gates import frozen, gated

_TOKENS = 1024


@dataclass
class LayerSignals:
    """Tokens of all windows one below the other: activations (token, head x d), gradients (token, output)."""

    activations: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor] = field(default_factory=list)


def layer_signals(evaluator: HeadEvaluator) -> dict[int, LayerSignals]:
    """Return the activations that enter the output projection of every layer, and the gradients at its output.

    Notes
    -----
    One forward and one backward pass per batch. Memory: tokens x (head x d + output) floats a layer.
    """
    signals = {layer: LayerSignals() for layer in evaluator.projections}
    for layer, activations, gradients in signals_by_batch(evaluator):
        signals[layer].activations.append(activations)
        signals[layer].gradients.append(gradients)
    return signals


def signals_by_batch(evaluator: HeadEvaluator) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield layer, activations (token, head x d) and gradients (token, output), batch after batch."""
    objective, model, modules = evaluator.objective, evaluator.model, evaluator.modules
    seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def watch(layer: int) -> Any:
        return lambda _, arguments, output: seen.update({layer: (arguments[0], output)})

    with frozen(model), ExitStack() as stack:
        for layer, projection in evaluator.projections.items():
            stack.enter_context(projection.module.register_forward_hook(watch(layer)))
        for number, batch in enumerate(objective.batches):
            evaluator.progress("activations and gradients", number, len(objective.batches))
            # The gates make everything behind the first layer depend on something that takes gradients.
            gates = {m.layer: torch.ones(m.n_heads, requires_grad=True) for m in modules}
            with gated(modules, gates):
                output = forward(model, batch.call(model), "windows")
            loss = objective.sensitivity(output, batch).sum()
            found = torch.autograd.grad(loss, [left for _, left in seen.values()])
            for (layer, (entered, _)), gradient in zip(seen.items(), found, strict=True):
                yield layer, real_tokens(entered, batch), real_tokens(gradient, batch)


def real_tokens(x: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return (token, ...) of a batch without its padding, where the padding can be followed."""
    mask = batch.arguments.get("attention_mask")
    if mask is None or mask.dim() != 2 or x.dim() != 3 or mask.shape != x.shape[:2]:
        return x.detach().flatten(0, -2)
    return x.detach()[mask.bool()]


def token_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A^T B over tokens in float64, block by block: less would show in the solution of a regression."""
    total = torch.zeros(a.shape[1], b.shape[1], dtype=torch.float64, device=a.device)
    for start in range(0, len(a), _TOKENS):
        some = slice(start, start + _TOKENS)
        total += a[some].double().T @ b[some].double()
    return total
