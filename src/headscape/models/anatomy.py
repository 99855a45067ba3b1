"""Where attention is in a model: its attention modules, with their heads and weights. The one place that knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headscape.errors import InputError, ModelError
from headscape.models.adapters.families import WORKING_FAMILIES
from headscape.models.adapters.inline_models import InlineAdapter, not_read_at_softmax, read_at_softmax
from headscape.models.adapters.plain_modules import PlainAdapter
from headscape.models.adapters.protocol import Adapter, AttentionCall, Observer, Weights
from headscape.models.adapters.transformers_models import TransformersAdapter
from headscape.models.forward_pass import arguments_for, evaluating, forward, without_extras
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection
from headscape.models.random_inputs import probe_windows
from headscape.models.stacks import stack_names
from headscape.models.transformer_xl.adapter import TransformerXLAdapter

Heads = Sequence[tuple[int, int]]
logger = logging.getLogger(__name__)

ADAPTERS: tuple[Adapter, ...] = (
    TransformerXLAdapter(),
    InlineAdapter(),
    TransformersAdapter(),
    PlainAdapter(),
)
"""Kinds of models; the first that accepts a model is taken."""
_PROBE_LENGTH = 8


@dataclass(frozen=True, eq=False)
class AttentionModule:
    """One attention module of a model.

    A module that is called more than once in a forward pass (shared layers) is several, one per layer.

    Attributes
    ----------
    model, name
        The model, and the module's name in it.
    stack, layer
        Which stack ("self", "encoder", "decoder", "cross", "vision", ...) and its number there.
    n_heads, n_kv_heads, head_dim
        Heads, heads of keys and values, and dimension of queries and keys.
    group
        The stack as attention calls name it.
    """

    model: torch.nn.Module = field(repr=False)
    name: str
    stack: str
    layer: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    group: tuple[str, str] = ("", "self")

    @property
    def module(self) -> torch.nn.Module:
        """The torch module."""
        return self.model.get_submodule(self.name)

    def weights(self) -> tuple[Weights, Weights, Weights]:
        """Return W_Q (head, d, model), W_K and W_V (kv_head, d, model)."""
        return adapter_for(self.model).weights(self)

    @property
    def output(self) -> Projection:
        """The output projection."""
        return adapter_for(self.model).output(self)


def attention_modules(
    model: torch.nn.Module, arguments: Mapping[str, Any] | None = None, *, watch: bool = False
) -> tuple[AttentionModule, ...]:
    """Return the attention modules of a model, stack by stack in the order in which they are called.

    One forward pass without gradients, on a few random tokens or a random image unless its arguments are given. Raises
    a :class:`ModelError` if no adapter knows the model, or none of its attention was seen. With ``watch`` the pass is
    watched as a training step would be, so that a model that cannot be watched is noticed here.
    """
    adapter_for(model)  # raises for what is no model, before anything else does
    seen = _Seen()
    if arguments is None:
        arguments = probe_windows(model, length=_PROBE_LENGTH, windows=1)[0]
    given = {**arguments_for(model, arguments), **without_extras(model)}
    look = watched if watch else observed
    seen_by_any(model, seen, lambda: forward(model, given, "inputs that show its attention"), look)
    if not seen.calls:
        raise unseen(type(model).__name__)
    names = stack_names(list(dict.fromkeys(call.group for call in seen.calls)))
    found = [replace(call, model=model, stack=names[call.group]) for call in seen.calls]
    order = list(names.values())
    return tuple(sorted(found, key=lambda module: (order.index(module.stack), module.layer)))


def of_stack(modules: Sequence[AttentionModule], stack: str | None = None) -> tuple[AttentionModule, ...]:
    """Return the modules of one stack, by default the first."""
    names = list(dict.fromkeys(module.stack for module in modules))
    wanted = names[0] if stack is None else stack
    if wanted not in names:
        raise InputError(f"stack must be one of {', '.join(names)}, but is {stack!r}.")
    return tuple(module for module in modules if module.stack == wanted)


def heads_of(modules: Sequence[AttentionModule]) -> tuple[tuple[int, int], ...]:
    """Return the (layer, head) pairs of the modules of a stack, layer-major."""
    return tuple((module.layer, head) for module in modules for head in range(module.n_heads))


def require_known_heads(heads: Heads, modules: Sequence[AttentionModule]) -> tuple[tuple[int, int], ...]:
    """Return heads as pairs of whole numbers, or raise naming the first that the model does not have."""
    known = set(heads_of(modules))
    pairs = tuple((int(layer), int(head)) for layer, head in heads)
    for pair in pairs:
        if pair not in known:
            layers = [module.layer for module in modules]
            raise InputError(
                f"heads must be (layer, head) pairs of the model, but it has no {pair}: its layers go from "
                f"{min(layers)} to {max(layers)}, with {max(module.n_heads for module in modules)} heads at most."
            )
    return pairs


def output_projections(modules: Sequence[AttentionModule]) -> dict[int, Projection]:
    """Return the output projections of a stack by layer; layers that share one are refused."""
    found = {module.layer: module.output for module in modules}
    if len({id(projection.module) for projection in found.values()}) < len(found):
        raise ModelError(
            f"the layers of {type(modules[0].model).__name__} share their weights, so that no layer has an output "
            "projection of its own."
        )
    return found


def adapter_for(model: Any) -> Adapter:
    """Return the adapter that knows a model, or raise a :class:`ModelError` with what works."""
    for adapter in ADAPTERS:
        if adapter.accepts(model):
            return adapter
    raise ModelError(
        f"cannot observe attention of {type(model).__name__}: not a transformers model with a supported attention "
        f"implementation. Families that work: {WORKING_FAMILIES}."
    )


@contextmanager
def observed(model: torch.nn.Module, observer: Observer) -> Iterator[None]:
    """Show every attention call of a model to an observer for the length of a block; compiled models run uncompiled."""
    with torch.compiler.set_stance("force_eager"), adapter_for(model).observe(model, observer):
        yield


def watched(model: torch.nn.Module, observer: Observer) -> AbstractContextManager[None]:
    """Show every attention call of a model that trains to an observer, and leave its results bit for bit the same."""
    return adapter_for(model).watch(model, observer)


def seen_by_any(
    model: torch.nn.Module,
    observer: Observer,
    run: Callable[[], Any],
    look: Callable[[torch.nn.Module, Observer], AbstractContextManager[None]] = observed,
) -> None:
    """Run a forward pass without gradients, its attention shown to an observer.

    If the model calls no attention function, it runs once more, and from then on it is read at its softmax.
    """
    for _ in range(2):
        counted = _Counted(observer)
        with look(model, counted), evaluating(model), torch.no_grad():
            run()
        if counted.calls:
            return
        if not read_at_softmax(model):
            break
        logger.info("%s calls no attention function: it is read at its softmax", type(model).__name__)
    not_read_at_softmax(model)


def how_observed(model: torch.nn.Module) -> dict[str, str]:
    """Return how the attention of a model is seen, for the provenance, if not by the usual attention function."""
    name = adapter_for(model).name
    return {} if name == TransformersAdapter.name else {"observed_by": name}


def unseen(name: str) -> ModelError:
    """Return the error for a model in which no attention call was seen."""
    return ModelError(
        f"no attention was seen: {name} calls neither the attention interface of transformers nor, in eager code, a "
        "softmax over the keys of each head. If a fused kernel hides it (sdpa, flash attention), load the model with "
        f"attn_implementation='eager'. Families that work: {WORKING_FAMILIES}. Of plain PyTorch modules, "
        "nn.MultiheadAttention and calls of F.scaled_dot_product_attention and flex_attention are seen too; other code "
        "can be registered (hs.register_attention)."
    )


class _Counted:
    """Counts the calls that an observer sees."""

    def __init__(self, observer: Observer) -> None:
        self.observer, self.calls = observer, 0

    def see(self, call: AttentionCall) -> torch.Tensor | None:
        self.calls += 1
        return self.observer.see(call)


class _Seen:
    """Notes which modules attend, and with how many heads; their stacks are named when all are known."""

    def __init__(self) -> None:
        self.calls: list[AttentionModule] = []

    def see(self, call: AttentionCall) -> None:
        n_heads, n_kv_heads, d = call.queries.shape[1], call.keys.shape[1], call.queries.shape[-1]
        self.calls.append(
            AttentionModule(call.module, call.name, "", call.layer, n_heads, n_kv_heads, d, call.group)
        )
