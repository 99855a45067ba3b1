"""Where a model attends: the attention modules of a stack in the order of a forward pass, with their heads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from headscape.errors import InputError, ModelError
from headscape.models.adapters.attention_interface import WORKING_FAMILIES, AttentionCall, observed
from headscape.models.forward_pass import evaluating
from headscape.models.stacks import LayerNumbers, stack_names

Heads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class AttentionSite:
    """One call of an attention module in a forward pass.

    A module that is called more than once in a pass (shared layers) is several sites, one per layer.
    """

    stack: str
    group: tuple[str, str]
    layer: int
    module: str
    n_heads: int
    n_kv_heads: int


@dataclass
class SiteNumbers:
    """Tells the sites of repeated forward passes apart: the numbers start anew with every pass."""

    _numbers: LayerNumbers = field(default_factory=LayerNumbers)

    def of(self, call: AttentionCall) -> tuple[tuple[str, str], int]:
        """Return the group and the layer of a call."""
        return self._numbers.of(call.name)

    def restart(self, *_: Any) -> None:
        """Begin a new pass; fits as a forward pre-hook."""
        self._numbers = LayerNumbers()

    @contextmanager
    def following(self, model: torch.nn.Module) -> Iterator[None]:
        """Begin anew with each forward pass of a model."""
        handle = model.register_forward_pre_hook(self.restart)
        try:
            yield
        finally:
            handle.remove()


def attention_sites(
    model: torch.nn.Module, arguments: Mapping[str, Any], *, stack: str | None = None
) -> tuple[AttentionSite, ...]:
    """Return the attention sites of one stack of a model, seen in one forward pass.

    Parameters
    ----------
    model
        A transformers model.
    arguments
        Of its forward; a short input is enough.
    stack
        Which stack, as in a capture; by default the first.

    Notes
    -----
    One forward pass without gradients.
    """
    seen = _Seen()
    with observed(model, seen), evaluating(model), torch.no_grad():
        model(**arguments)
    if not seen.calls:
        raise ModelError(
            f"no attention was seen: {type(model).__name__} computes it in code of its own. Families that work: "
            f"{WORKING_FAMILIES}."
        )
    names = stack_names(seen.numbers.groups)
    wanted = next(iter(names.values())) if stack is None else stack
    if wanted not in names.values():
        raise InputError(f"stack must be one of {', '.join(names.values())}, but is {stack!r}.")
    return tuple(
        AttentionSite(wanted, group, layer, name, n_heads, n_kv_heads)
        for group, layer, name, n_heads, n_kv_heads in sorted(seen.calls, key=lambda call: call[1])
        if names[group] == wanted
    )


def site_heads(sites: Sequence[AttentionSite]) -> tuple[tuple[int, int], ...]:
    """Return the (layer, head) pairs of some sites, layer-major."""
    return tuple((site.layer, head) for site in sites for head in range(site.n_heads))


def require_known_heads(heads: Heads, sites: Sequence[AttentionSite]) -> tuple[tuple[int, int], ...]:
    """Return heads as pairs of whole numbers, or raise naming the first that the model does not have."""
    known = set(site_heads(sites))
    pairs = tuple((int(layer), int(head)) for layer, head in heads)
    for pair in pairs:
        if pair not in known:
            layers = [site.layer for site in sites]
            raise InputError(
                f"heads must be (layer, head) pairs of the model, but it has no {pair}: its layers go from "
                f"{min(layers)} to {max(layers)}, with {max(site.n_heads for site in sites)} heads at most."
            )
    return pairs


class _Seen:
    """Notes which modules attend, and with how many heads."""

    def __init__(self) -> None:
        self.numbers = LayerNumbers()
        self.calls: list[tuple[tuple[str, str], int, str, int, int]] = []

    def see(self, call: AttentionCall) -> None:
        group, layer = self.numbers.of(call.name)
        self.calls.append((group, layer, call.name, call.queries.shape[1], call.keys.shape[1]))

    def gate(self, call: AttentionCall) -> None:
        """Leave the model's output alone."""
