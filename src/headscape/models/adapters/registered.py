"""A user's own attention code: ``register_attention`` tells where its queries, keys, values and mask are.

The method that turns them into the output of every head is wrapped for the length of a block: its arguments are shown,
and its output is multiplied by the gates. What was registered is not believed: the first call of a method in a block
must give softmax(s Q K^T + mask) V.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from headscape.errors import InputError, ModelError
from headscape.models.adapters.multihead import gate_heads
from headscape.models.adapters.seen_call import SeenCall, require_fit
from headscape.models.lazy_torch import torch

_TOLERANCE = 1e-2


@dataclass(frozen=True)
class RegisteredAttention:
    """Where a class of modules keeps its attention: see :func:`register_attention`."""

    kind: type
    method: str
    queries: str
    keys: str
    values: str
    mask: str | None
    mask_hides: bool
    scale: float | str | None
    head_axis: int
    cross: bool | None


_registered: dict[type, RegisteredAttention] = {}


def register_attention(
    kind: type,
    method: str = "forward",
    *,
    queries: str,
    keys: str,
    values: str,
    mask: str | None = None,
    mask_hides: bool = False,
    scale: float | str | None = None,
    head_axis: int = 1,
    cross: bool | None = None,
) -> None:
    """Tell headscape where a module of your own computes attention, so that it can be captured and its heads gated.

    Needed only for code that calls neither ``torch.nn.MultiheadAttention`` nor
    ``torch.nn.functional.scaled_dot_product_attention`` nor ``flex_attention``.

    Parameters
    ----------
    kind
        The class of the module; subclasses are included.
    method
        The method that maps queries, keys and values to the output of every head, before the output projection. If it
        returns a tuple, the output is its first entry.
    queries, keys, values
        The names of its parameters: (batch, head, token, d), after position encoding. Keys and values may have fewer
        heads, if these divide the heads of the queries.
    mask
        The name of the parameter that masks keys, broadcast to (batch, head, query, key): numbers to add to the
        logits, or booleans or integers that are true where a key is visible.
    mask_hides
        Whether booleans are true where a key is hidden instead.
    scale
        The factor of the dot product: a number, or the name of a parameter or of an attribute of the module; by
        default d ** -1/2.
    head_axis
        The axis of the heads, 1, or 2 for (batch, token, head, d); also of the output.
    cross
        Whether this is cross-attention; by default the name of the module in the model tells.

    Notes
    -----
    The first call in every forward pass that headscape makes is compared with softmax(s Q K^T + mask) V. If they
    differ, a :class:`ModelError` says so: the mask or the scale is another one, or there is a term besides them.

    Examples
    --------
    >>> import torch
    >>> class Own(torch.nn.Module):
    ...     def attend(self, q, k, v, hidden):
    ...         logits = (q @ k.mT) / 2.0
    ...         return logits.masked_fill(hidden, -1e9).softmax(-1) @ v
    >>> register_attention(Own, "attend", queries="q", keys="k", values="v", mask="hidden", mask_hides=True, scale=0.5)
    """
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        raise InputError(f"kind must be a class of torch.nn.Module, but is {kind!r}.")
    function = getattr(kind, method, None)
    if not callable(function):
        raise InputError(f"method must be one of {kind.__name__}, but it has no {method!r}.")
    if head_axis not in (1, 2):
        raise InputError(f"head_axis must be 1 or 2, but is {head_axis!r}.")
    parameters = inspect.signature(function).parameters
    for role, name in (("queries", queries), ("keys", keys), ("values", values), ("mask", mask)):
        if name is not None and name not in parameters:
            raise InputError(
                f"{role} must be a parameter of {kind.__name__}.{method}, but {name!r} is none: it has "
                f"{', '.join(list(parameters)[1:]) or 'no parameters'}."
            )
    _registered[kind] = RegisteredAttention(
        kind, method, queries, keys, values, mask, mask_hides, scale, head_axis, cross
    )


def registration_of(module: torch.nn.Module) -> RegisteredAttention | None:
    """Return what was registered for the class of a module, or for the nearest class above it."""
    return next((_registered[kind] for kind in type(module).__mro__ if kind in _registered), None)


@contextmanager
def registered_calls(
    model: torch.nn.Module,
    show: Callable[[SeenCall], list[torch.Tensor]],
    silence: Callable[[], AbstractContextManager[None]],
    spare: Callable[[], AbstractContextManager[None]],
) -> Iterator[None]:
    """Wrap the registered methods of all modules for the length of a block; an outer block's wrapper stays."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            where = registration_of(module)
            if where is not None and not hasattr(getattr(module, where.method), "of_headscape"):
                wrapper = _wrapper(
                    module, where, f"{name or 'the model'} ({type(module).__name__})", show, silence, spare
                )
                module.__dict__[where.method] = wrapper
                stack.callback(module.__dict__.pop, where.method)
        yield


def _wrapper(
    module: torch.nn.Module, where: RegisteredAttention, told: str, show: Any, silence: Any, spare: Any
) -> Callable[..., Any]:
    own = getattr(module, where.method)
    signature, tried = inspect.signature(own), False

    def wrapped(*args: Any, **named: Any) -> Any:
        nonlocal tried
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        call, gates = None, []
        with spare():
            call = _seen(module, where, bound.arguments, told)
            gates = show(call)
        with silence():
            found = own(*args, **named)
        trying = not tried and not module.training
        if call is None or not (gates or trying):
            return found
        output = found[0] if isinstance(found, tuple) else found
        by_head = _by_head(output, where, told)
        if trying:
            _require_softmax(call, by_head, told)
            tried = True
        if not gates:
            return found
        gated = gate_heads(by_head, gates)
        gated = gated if where.head_axis == 1 else gated.transpose(1, 2)
        return (gated, *found[1:]) if isinstance(found, tuple) else gated

    wrapped.of_headscape = True  # type: ignore[attr-defined]
    return wrapped


def _seen(module: torch.nn.Module, where: RegisteredAttention, given: Any, told: str) -> SeenCall:
    tensors = []
    for name in (where.queries, where.keys, where.values):
        x = given[name]
        if not isinstance(x, torch.Tensor):
            raise ModelError(f"{told}: {name} must be a tensor, but is {type(x).__name__}.")
        tensors.append(x if where.head_axis == 1 or x.dim() != 4 else x.transpose(1, 2))
    queries, keys, values = tensors
    require_fit(queries, keys, values, f"{told}, registered with register_attention")
    scale = where.scale
    if isinstance(scale, str):
        scale = given[scale] if scale in given else getattr(module, scale, None)
        if scale is None:
            raise ModelError(f"{told}: its scale is registered as {where.scale!r}, which it does not have.")
    return SeenCall(
        queries,
        keys,
        values,
        mask=_mask(given[where.mask] if where.mask else None, where, queries, keys, told),
        scale=queries.shape[-1] ** -0.5 if scale is None else float(scale),
        kind=None if where.cross is None else ("cross" if where.cross else "self"),
    )


def _mask(
    mask: Any, where: RegisteredAttention, queries: torch.Tensor, keys: torch.Tensor, told: str
) -> torch.Tensor | None:
    if mask is None:
        return None
    if not mask.is_floating_point():
        mask = mask.bool() ^ where.mask_hides
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    whole = mask.reshape((1,) * max(0, 4 - mask.dim()) + mask.shape)
    try:
        torch.broadcast_shapes(  # type: ignore[no-untyped-call]
            whole.shape, (*queries.shape[:3], n_keys)
        )
        return whole.expand(*whole.shape[:2], n_queries, n_keys)  # type: ignore[no-any-return]
    except RuntimeError as error:
        raise ModelError(
            f"{told}: the mask must broadcast to (batch, head, query, key) {(*queries.shape[:3], n_keys)}, but is "
            f"{tuple(mask.shape)}."
        ) from error


def _by_head(output: Any, where: RegisteredAttention, told: str) -> torch.Tensor:
    """Return the output of the method as (batch, head, query, d)."""
    if not isinstance(output, torch.Tensor) or output.dim() != 4:
        came = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise ModelError(
            f"{told}: {where.method} must return the output of every head with four axes, as its queries have, but "
            f"returned {came}. Register the method that computes the heads, before they are joined."
        )
    return output if where.head_axis == 1 else output.transpose(1, 2)


def _require_softmax(call: SeenCall, output: torch.Tensor, told: str) -> None:
    """Raise unless the first row of a batch is the softmax attention that was registered."""
    groups = call.queries.shape[1] // call.keys.shape[1]
    keys, values = (x[0].detach().float().repeat_interleave(groups, dim=0) for x in (call.keys, call.values))
    logits = call.queries[0].detach().float() @ keys.mT * call.scale
    if call.mask is not None:
        mask = call.mask[0].detach()
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask.float()
    seen = logits.max(dim=-1).values > -9_999.0
    expected = torch.softmax(logits, dim=-1) @ values
    found = output[0].detach().float()
    if found.shape != expected.shape:
        raise ModelError(
            f"{told}: the output must be (batch, head, query, d) {(len(output), *expected.shape)}, but is "
            f"{tuple(output.shape)}. Is head_axis right?"
        )
    gap = (found - expected).abs()[seen]
    if len(gap) and float(gap.max()) > _TOLERANCE * float(expected[seen].abs().max()):
        raise ModelError(
            f"{told} was registered with register_attention, but its output is not softmax(s Q K^T + mask) V: they "
            f"differ by up to {float(gap.max()):.2g}. Check scale={call.scale:g}, mask and mask_hides; attention with "
            "further terms cannot be registered."
        )
