"""Gates: a factor on the output of every head, 1 for a head that works, 0 for one that is switched off.

    o_h -> gate_h o_h

before the output projection, inside the attention function that the recorder registers. Gradients flow
through the gates (Michel et al. 2019, equation 2), and a gate of 0 equals zeroed columns of the projection.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from headscape.models.adapters.attention_interface import AttentionCall, observed
from headscape.models.attention_modules import AttentionSite, Heads, SiteNumbers, require_known_heads
from headscape.models.forward_pass import evaluating


@contextmanager
def gated(
    model: torch.nn.Module, sites: Sequence[AttentionSite], gates: Mapping[int, torch.Tensor]
) -> Iterator[None]:
    """Multiply the heads of a model by gates for the length of a block.

    Parameters
    ----------
    model
        A transformers model; it is in evaluation mode inside the block and left as it was afterwards.
    sites
        Of the stack that the layers belong to.
    gates
        By layer, a tensor (head,) or (batch, head); layers that are left out stay as they are.
    """
    by_site = {(site.group, site.layer): gates[site.layer] for site in sites if site.layer in gates}
    observer = _Gates(by_site)
    with observer.numbers.following(model), observed(model, observer), evaluating(model):
        yield


@contextmanager
def switched_off(model: torch.nn.Module, sites: Sequence[AttentionSite], heads: Heads) -> Iterator[None]:
    """Switch heads off for the length of a block.

    Parameters
    ----------
    model, sites
        As in :func:`gated`.
    heads
        The (layer, head) pairs.
    """
    gates = {site.layer: torch.ones(site.n_heads) for site in sites}
    off = require_known_heads(heads, sites)
    for layer, head in off:
        gates[layer][head] = 0.0
    with gated(model, sites, {layer: gates[layer] for layer in {layer for layer, _ in off}}):
        yield


@contextmanager
def observed_plainly(model: torch.nn.Module) -> Iterator[None]:
    """Run a model through the registered attention function with nothing switched off.

    Its rounding differs from other implementations, and a gate shall be all that differs from the intact model.
    """
    with observed(model, _Gates({})):
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
    """Gives every site of a pass its gates."""

    def __init__(self, gates: Mapping[tuple[tuple[str, str], int], torch.Tensor]) -> None:
        self.gates = gates
        self.numbers = SiteNumbers()

    def see(self, call: AttentionCall) -> None:
        """Look at nothing: only the output matters."""

    def gate(self, call: AttentionCall) -> torch.Tensor | None:
        return self.gates.get(self.numbers.of(call))
