"""Watching a model of transformers while it trains: every attention call is shown, and nothing is computed otherwise.

:func:`shown_calls` switches a model to our attention function, which is fine for a forward pass of our own but not for
somebody's training. Here the model keeps its attention implementation, its kernel, its mask and its dropout. For the
length of a block, whoever asks transformers for an attention function gets that very function, and modules that are
watched are shown to their observers before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from headscape.models.adapters.protocol import AttentionCall, Observer, rows_wanted, spared
from headscape.models.lazy_torch import torch
from headscape.models.stacks import LayerNumbers


class _Watch(NamedTuple):
    """Who watches a model, and how its modules are called."""

    observer: Observer
    names: dict[int, str]
    numbers: LayerNumbers


_watches: list[_Watch] = []
_lock = Lock()


@contextmanager
def watched_calls(model: torch.nn.Module, observer: Observer) -> Iterator[None]:
    """Show every attention call of a model to an observer, while the model computes what it always computes.

    What the observer returns is ignored: there are no gates here. Other models, and compiled code, run as they are.
    """
    numbers = LayerNumbers()
    # By identity: modules with a comparison of their own stay apart, and the block is shorter than their lives.
    names = {id(module): name for name, module in model.named_modules() if name}
    watch = _Watch(observer, names, numbers)
    hook = model.register_forward_pre_hook(lambda *_: numbers.restart())
    _install(watch)
    try:
        yield
    finally:
        _remove(watch)
        hook.remove()


def _install(watch: _Watch) -> None:
    interface = _interface()
    with _lock:
        if not _watches:
            interface.get_interface = _showing(interface.get_interface)
        _watches.append(watch)


def _remove(watch: _Watch) -> None:
    interface = _interface()
    with _lock:
        _watches[:] = [other for other in _watches if other is not watch]
        if not _watches:
            interface.get_interface = interface.get_interface.own


def _interface() -> Any:
    """Return the class that hands out attention functions."""
    from transformers import AttentionInterface

    return AttentionInterface


def _showing(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for the function that hands out attention functions."""

    def get_interface(self: Any, attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = own(self, attn_implementation, default)
        if torch.compiler.is_compiling():
            return function
        return partial(_shown, function, attn_implementation)

    get_interface.own = own  # type: ignore[attr-defined]
    return get_interface


def _shown(
    function: Callable[..., Any],
    implementation: str,
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    *others: Any,
    **terms: Any,
) -> Any:
    """Show a call to all who watch the module, and return what the model's own function makes of it."""
    for observer, names, numbers in tuple(_watches):
        name = names.get(id(module))
        if name is None:
            continue
        with spared([observer]):
            group, layer = numbers.of(name)
            scale = terms.get("scaling")
            hidden = _hidden_by_kernel(implementation, module, query, attention_mask, terms)
            observer.see(
                AttentionCall(
                    name,
                    group,
                    layer,
                    module,
                    query,
                    key,
                    value,
                    _as_tensor(attention_mask, query, key, rows_wanted([observer])),
                    terms.get("position_bias"),
                    query.shape[-1] ** -0.5 if scale is None else float(scale),
                    terms.get("softcap"),
                    terms.get("s_aux"),
                    **hidden,
                )
            )
    return function(module, query, key, value, attention_mask, *others, **terms)


def _hidden_by_kernel(
    implementation: str, module: torch.nn.Module, query: torch.Tensor, mask: Any, terms: dict[str, Any]
) -> dict[str, Any]:
    """Return what the kernel hides although no mask says so.

    Eager attention hides nothing of its own. sdpa does so only where it is given no mask, and flash attention also
    beside a mask of padding, which has two axes.
    """
    flash = "flash" in implementation
    if implementation == "eager" or query.shape[2] == 1 or (mask is not None and not flash):
        return {}
    causal = terms.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    return {"causal": bool(causal), "window": terms.get("sliding_window") if flash and causal else None}


def _as_tensor(mask: Any, query: torch.Tensor, key: torch.Tensor, rows: int | None) -> torch.Tensor | None:
    """Return a mask as a tensor.

    That of flex attention is a function of places, and is asked about all of them in the rows that are wanted.
    """
    if mask is None or isinstance(mask, torch.Tensor):
        return mask
    n_rows, n_queries, n_keys = query.shape[0], query.shape[2], key.shape[2]
    rows = n_rows if rows is None else min(rows, n_rows)
    places = [torch.arange(n, device=query.device) for n in (rows, 1, n_queries, n_keys)]
    batch, head, q, k = torch.meshgrid(*places, indexing="ij")
    visible: torch.Tensor = mask.mask_mod(batch, head, q, k)
    return visible
