"""Gates: a factor on the output of every head, 1 for a head that works, 0 for one that is switched off.

    o_h -> gate_h o_h

before the output projection, inside the attention function that the recorder registers. Gradients flow
through the gates (Michel et al. 2019, equation 2), and a gate of 0 equals zeroed columns of the projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from headscape.models.adapters.protocol import AttentionCall
from headscape.models.anatomy import AttentionModule, Heads, observed, require_known_heads
from headscape.models.forward_pass import evaluating
from headscape.models.lazy_torch import torch


@contextmanager
def gated(modules: Sequence[AttentionModule], gates: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """Multiply the heads of a stack by gates, (head,) or (batch, head) by layer, for the length of a block.

    The model is in evaluation mode inside the block and left as it was afterwards, as are layers without gates.
    """
    model = modules[0].model
    by_call = {
        (module.group, module.layer): gates[module.layer] for module in modules if module.layer in gates
    }
    with observed(model, _Gates(by_call)), evaluating(model):
        yield


@contextmanager
def switched_off(modules: Sequence[AttentionModule], heads: Heads) -> Iterator[None]:
    """Switch heads, (layer, head) pairs of a stack, off for the length of a block."""
    off = require_known_heads(heads, modules)
    touched = {layer for layer, _ in off}
    gates = {module.layer: torch.ones(module.n_heads) for module in modules if module.layer in touched}
    for layer, head in off:
        gates[layer][head] = 0.0
    with gated(modules, gates):
        yield


@contextmanager
def frozen(model: torch.nn.Module) -> Iterator[None]:
    """Take no gradients of weights for the length of a block: those of gates alone cost half."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in wanted:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)


class _Gates:
    """Gives every call of a pass its gates."""

    only_gates = True

    def __init__(self, gates: Mapping[tuple[tuple[str, str], int], torch.Tensor]) -> None:
        self.gates = gates

    def see(self, call: AttentionCall) -> torch.Tensor | None:
        return self.gates.get((call.group, call.layer))
