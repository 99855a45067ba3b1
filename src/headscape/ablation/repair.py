"""Repair: re-fit the output projections, so that the heads that stay carry what the removed ones did.

For each touched layer, with a_t the activations of the heads that stay *in the pruned model* and y_t what the
intact projection wrote for the same token,

    W' = argmin over W' of  sum_t | y_t - W' a_t - b' |^2 + lambda |W' - W_S|^2

a ridge regression towards the weights that are there, in closed form. Layers are fitted one after another, each
on what the repaired layers before it give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from headscape.ablation.activations import real_tokens, token_products
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Batch
from headscape.models.anatomy import Heads, require_known_heads
from headscape.models.forward_pass import evaluating, forward, without_extras
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection, put_back
from headscape.recorder.gates import switched_off

RIDGE = 1e-3
"""lambda, as a share of the mean square of the activations."""


@dataclass(frozen=True, eq=False)
class Repair:
    """Output projections for the heads that stay, by layer.

    ``matrices`` (output, head x d) are 0 in the columns of removed heads; ``biases`` (output,) are those of the
    projections that have one.
    """

    matrices: Mapping[int, torch.Tensor]
    biases: Mapping[int, torch.Tensor]

    @contextmanager
    def applied(self, projections: Mapping[int, Projection]) -> Iterator[None]:
        """Use the repaired projections for the length of a block."""
        touched = [projections[layer] for layer in self.matrices]
        with put_back(touched):
            for layer, matrix in self.matrices.items():
                projections[layer].write(matrix, self.biases.get(layer))
            yield


def repair(evaluator: HeadEvaluator, heads: Heads, ridge: float = RIDGE) -> Repair:
    """Re-fit the output projection of every layer that loses heads, on the evaluator's windows.

    The model itself is left as it was. Best with more tokens than a layer has activations.

    Notes
    -----
    Windows of one shape take one pass of the intact and one of the pruned model, in which each layer is fitted as
    soon as its activations are there; windows of several shapes take a pass per touched layer. Each fit solves
    one system of the size of the activations.
    """
    model, projections = evaluator.model, evaluator.projections
    off = require_known_heads(heads, evaluator.modules)
    touched = sorted({layer for layer, _ in off})
    batches = _together(evaluator.objective.batches)
    extra = without_extras(model)
    fits = {
        layer: _Fit(projections[layer], [head for at, head in off if at == layer], ridge) for layer in touched
    }
    for batch in batches:
        _each(model, batch, extra, {layer: fit.keep_target for layer, fit in fits.items()}, projections)
    with put_back([projections[layer] for layer in touched]), switched_off(evaluator.modules, off):
        # A single batch shows every layer all its tokens at once; else a layer has to see all batches first.
        rounds = [touched] if len(batches) == 1 else [[layer] for layer in touched]
        for done, layers in enumerate(rounds):
            evaluator.progress("repairing", done, len(rounds))
            for batch in batches:
                last = batch is batches[-1]
                hooks = {layer: fits[layer].add_and_solve if last else fits[layer].add for layer in layers}
                _each(model, batch, extra, hooks, projections)
        return Repair(
            {layer: projections[layer].matrix.detach().clone() for layer in touched},
            {layer: b.detach().clone() for layer in touched if (b := projections[layer].bias) is not None},
        )


class _Fit:
    """The ridge regression of one layer; batches are added one after another."""

    def __init__(self, projection: Projection, gone: Sequence[int], ridge: float) -> None:
        self.projection, self.ridge = projection, ridge
        self.removed = projection.columns(gone)
        self.kept = projection.columns([head for head in range(projection.n_heads) if head not in gone])
        self.targets: list[torch.Tensor] = []
        self.seen = 0
        n = len(self.kept)
        where: Any = {"dtype": torch.float64, "device": projection.matrix.device}
        self.gram = torch.zeros(n, n, **where)
        self.cross = torch.zeros(n, projection.matrix.shape[0], **where)
        self.sums = (torch.zeros(n, **where), torch.zeros(self.cross.shape[1], **where))
        self.tokens = 0

    def keep_target(self, activations: torch.Tensor) -> None:
        """Keep what the intact projection writes for a batch, its bias apart."""
        self.targets.append(activations @ self.projection.matrix.detach().T)

    def add(self, activations: torch.Tensor) -> None:
        """Add the next batch of the pruned model."""
        kept = activations[:, self.kept]
        missing = self.targets[self.seen] - kept @ self.projection.matrix.detach()[:, self.kept].T
        self.gram += token_products(kept, kept)
        self.cross += token_products(kept, missing)
        self.sums[0].add_(kept.sum(dim=0, dtype=torch.float64))
        self.sums[1].add_(missing.sum(dim=0, dtype=torch.float64))
        self.tokens, self.seen = self.tokens + len(kept), self.seen + 1

    def add_and_solve(self, activations: torch.Tensor) -> None:
        """Add the last batch, and write the fitted weights into the projection before it runs."""
        self.add(activations)
        projection, gram, cross = self.projection, self.gram, self.cross
        mean, rest = self.sums[0] / self.tokens, self.sums[1] / self.tokens
        if projection.bias is not None:
            gram = gram - self.tokens * torch.outer(mean, mean)
            cross = cross - self.tokens * torch.outer(mean, rest)
        weight = self.ridge * float(self.gram.diagonal().mean())
        change = torch.linalg.solve(gram + weight * torch.eye(len(gram)).to(gram), cross)
        matrix = projection.matrix.detach().clone()
        matrix[:, self.kept] += change.T.to(matrix)
        matrix[:, self.removed] = 0.0
        bias = projection.bias
        projection.write(matrix, None if bias is None else bias + (rest - mean @ change).to(bias))


def _together(batches: Sequence[Batch]) -> list[Batch]:
    """Join batches of one shape into one."""
    shapes = {tuple((name, x.shape[1:]) for name, x in sorted(batch.arguments.items())) for batch in batches}
    if len(shapes) > 1:
        return list(batches)
    names = batches[0].arguments
    return [Batch({name: torch.cat([batch.arguments[name] for batch in batches]) for name in names})]


def _each(
    model: torch.nn.Module,
    batch: Batch,
    extra: Mapping[str, object],
    hooks: Mapping[int, Callable[[torch.Tensor], None]],
    projections: Mapping[int, Projection],
) -> None:
    """Run a batch and show each layer's activations, without padding, to its hook."""

    def shown(hook: Callable[[torch.Tensor], None]) -> Any:
        return lambda _, arguments: hook(real_tokens(arguments[0], batch))

    with ExitStack() as stack, evaluating(model), torch.no_grad():
        for layer, hook in hooks.items():
            stack.enter_context(projections[layer].module.register_forward_pre_hook(shown(hook)))
        forward(model, {**batch.call(model), **extra}, "windows to calibrate on")
