"""Attention of plain PyTorch modules: every call of ``nn.MultiheadAttention`` and of torch's attention functions.

For the length of a block a torch function mode stands between a model and torch. Which module a call belongs to is
told by hooks that follow the forward pass. While the mode is on, torch takes none of its fast paths, which would hide
attention inside a kernel for a whole layer. The functions are ``scaled_dot_product_attention`` and ``flex_attention``
(:mod:`headscape.models.adapters.flex`); modules with other code are registered
(:mod:`headscape.models.adapters.registered`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident, local
from typing import Any

from headscape.errors import ModelError
from headscape.models.adapters.flex import is_flex, seen_flex
from headscape.models.adapters.multihead import (
    attended,
    gate_heads,
    multihead_arguments,
    multihead_forward,
    seen_multihead,
)
from headscape.models.adapters.protocol import AttentionCall, Observer, rows_wanted, spared
from headscape.models.adapters.registered import registered_calls
from headscape.models.adapters.seen_call import SeenCall, causal_mask, forget_masks, require_fit, shared_mask
from headscape.models.lazy_torch import torch
from headscape.models.stacks import LayerNumbers

_SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


@dataclass(eq=False)
class _Block:
    """One block of observation: who looks, at which modules, and where the forward pass is."""

    observer: Observer
    gates: bool
    thread: int = field(default_factory=get_ident)
    running: list[tuple[str, torch.nn.Module]] = field(default_factory=list)
    numbers: LayerNumbers = field(default_factory=LayerNumbers)

    def restart(self) -> None:
        """Begin a new forward pass."""
        self.running.clear()
        forget_masks()
        self.numbers.restart()

    def show(self, call: SeenCall) -> torch.Tensor | None:
        """Show a call of the running module, and return its gates."""
        name, module = self.running[-1]
        group, layer = self.numbers.of(name, call.kind)
        gate = self.observer.see(AttentionCall(name, group, layer, module, **call.terms()))
        return gate if self.gates else None


class _Here(local):
    """What is observed in this thread: modes are of a thread, while hooks are of a module."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.silenced = 0

    @property
    def running(self) -> list[_Block]:
        """The blocks whose model runs now."""
        return [block for block in self.blocks if block.running]


_here = _Here()


@contextmanager
def shown_torch_calls(model: torch.nn.Module, observer: Observer, *, gates: bool = True) -> Iterator[None]:
    """Show every attention call of a plain module to an observer; blocks may be nested, and gates multiply."""
    block = _Block(observer, gates)
    with ExitStack() as stack:
        for name, module in model.named_modules():
            stack.enter_context(module.register_forward_pre_hook(_entering(block, name)))
            stack.enter_context(module.register_forward_hook(_leaving(block), always_call=True))
        if not _here.blocks:
            stack.enter_context(_mode())
        stack.enter_context(registered_calls(model, _show, _silence, _spared))
        _here.blocks.append(block)
        stack.callback(_here.blocks.remove, block)
        stack.callback(forget_masks)
        yield


def watched_torch_calls(model: torch.nn.Module, observer: Observer) -> Any:
    """Show the calls of a module that trains: torch's own code computes all of them, and there are no gates."""
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule":
            raise ModelError(
                f"{name or 'the model'} is compiled (torch.compile), which leaves no attention calls to see while it "
                "trains. Watch it uncompiled: compiled_model._orig_mod."
            )
    return shown_torch_calls(model, observer, gates=False)


def _entering(block: _Block, name: str) -> Any:
    def enter(module: torch.nn.Module, _: Any) -> None:
        if block.thread == get_ident():
            if not name:
                block.restart()
            block.running.append((name, module))

    return enter


def _leaving(block: _Block) -> Any:
    def leave(*_: Any) -> None:
        if block.running and block.thread == get_ident():
            block.running.pop()

    return leave


def _mode() -> Any:
    """Return the mode; its class is made here, because its base is torch's."""
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    class AttentionMode(TorchFunctionMode):
        """Hands attention to the blocks that watch the running module, and everything else to torch."""

        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            named = dict(kwargs or {})
            seen: Any = None
            if _here.running and not _here.silenced and not torch.compiler.is_compiling():
                if func is functional.scaled_dot_product_attention:
                    seen = _scaled_dot_product
                elif func in (functional.multi_head_attention_forward, multihead_forward):
                    seen = _multihead
                elif is_flex(func):
                    seen = _flex
            if seen is None:
                return func(*args, **named)
            if _gated():
                call = seen(func, args, named)
                return _gated_output(func, args, named, call, _show(call))
            with _spared():
                _show(seen(func, args, named))
            return func(*args, **named)

    return AttentionMode()


@contextmanager
def _silence() -> Iterator[None]:
    """Pass over the calls that a registered module makes inside its own attention."""
    _here.silenced += 1
    try:
        yield
    finally:
        _here.silenced -= 1


def _show(call: SeenCall) -> list[torch.Tensor]:
    """Show a call to all blocks that watch the running module, and return their gates."""
    found = [block.show(call) for block in _here.running]
    return [gate for gate in found if gate is not None]


def _gated() -> bool:
    """Tell whether a block that watches the running module may apply gates."""
    return any(block.gates for block in _here.running)


def _spared() -> AbstractContextManager[None]:
    """Keep what goes wrong while a call is read from a model that trains; gates need every call."""
    return nullcontext() if _gated() else spared([block.observer for block in _here.running])


def _rows_wanted() -> int | None:
    """Return how many rows of the batch are looked at; None for all, which gates need too."""
    return None if _gated() else rows_wanted(block.observer for block in _here.running)


def _gated_output(
    func: Any, args: Sequence[Any], named: dict[str, Any], call: SeenCall, gates: list[torch.Tensor]
) -> Any:
    """Return what a call returns, with gates on its heads."""
    running = _here.running[-1].running[-1]
    if func is not torch.nn.functional.scaled_dot_product_attention and not is_flex(func):
        out_proj = getattr(running[1], "out_proj", None)
        return attended(multihead_arguments(args, named), call, gates, out_proj)
    output = func(*args, **named)
    if not gates:
        return output
    if isinstance(output, tuple):  # of flex_attention
        return (gate_heads(output[0], gates), *output[1:])
    return gate_heads(_four_axes(output, running), gates).reshape(output.shape)


def _scaled_dot_product(func: Any, args: Sequence[Any], named: dict[str, Any]) -> SeenCall:
    given = {**dict(zip(_SDPA, args, strict=False)), **named}
    running = _here.running[-1].running[-1]
    queries, keys, values = (_four_axes(given[name], running) for name in _SDPA[:3])
    require_fit(queries, keys, values, f"{running[0] or 'the model'} ({type(running[1]).__name__})")
    scale = given.get("scale")
    return SeenCall(
        queries,
        keys,
        values,
        mask=_mask(given, queries, keys),
        scale=queries.shape[-1] ** -0.5 if scale is None else float(scale),
        dropout=float(given.get("dropout_p") or 0.0),
        again=_again(func, given) if given["query"].dim() == 4 else None,
    )


def _again(func: Any, given: Mapping[str, Any]) -> Callable[..., torch.Tensor]:
    """Return the function with the masks and options of a call."""
    options = {name: value for name, value in given.items() if name not in _SDPA[:3]}

    def again(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        output: torch.Tensor = func(queries, keys, values, **{**options, "scale": scale})
        return output

    return again


def _flex(func: Any, args: Sequence[Any], named: dict[str, Any]) -> SeenCall:
    name, module = _here.running[-1].running[-1]
    call = seen_flex(func, args, named, _rows_wanted())
    require_fit(call.queries, call.keys, call.values, f"{name or 'the model'} ({type(module).__name__})")
    return call


def _multihead(func: Any, args: Sequence[Any], named: dict[str, Any]) -> SeenCall:
    rows = _rows_wanted()
    with nullcontext() if rows is None else torch.no_grad():
        return seen_multihead(multihead_arguments(args, named), rows)


def _four_axes(x: torch.Tensor, running: tuple[str, Any]) -> torch.Tensor:
    if x.dim() in (2, 3):  # one head; without a batch, (query, d)
        return x[None, None] if x.dim() == 2 else x[:, None]
    if x.dim() != 4:
        raise ModelError(
            f"{running[0] or 'the model'} ({type(running[1]).__name__}) calls scaled_dot_product_attention with "
            f"{tuple(x.shape)}, but expected (batch, head, token, d)."
        )
    return x


def _mask(given: Mapping[str, Any], queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
    """Return a mask as (batch or 1, head or 1, query, key), True or 0 where a key is visible."""
    mask: torch.Tensor | None = given.get("attn_mask")
    causal = bool(given.get("is_causal"))
    n_queries, n_keys = queries.shape[2], keys.shape[2]

    def make() -> torch.Tensor | None:
        if mask is None:
            return causal_mask(n_queries, n_keys, queries.device) if causal else None
        whole = mask
        if mask.dim() == 3 and given["query"].dim() == 3:
            whole = mask[:, None]
        whole = whole.reshape((1,) * (4 - whole.dim()) + whole.shape)
        return whole.expand(*whole.shape[:2], n_queries, n_keys)

    return shared_mask((mask,), (causal, n_queries, n_keys, given["query"].dim()), make)
