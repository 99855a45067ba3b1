"""Reading attention at its softmax: for models that compute it in code of their own, in place of a registered function.

For the length of a ``with`` block the model runs its eager code, and every torch function that it calls is seen. A
softmax over the last axis of (batch, head, query, key), inside a module that has so many heads, is a call of attention:

    logits       what goes into the softmax, masks included
    probs        what comes out of it; a gate on the head's output is a factor on its probabilities
    q, k and s   if the logits are s q.k, and whatever is added, of a product that can be followed (``score_trace``)

What is added to s q.k is the bias; keys whose logits lie below anything that a product gives are hidden. If the product
cannot be followed, observers get the finished logits alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from headscape.models.adapters.attention_interface import MASKED_BELOW, model_configs
from headscape.models.adapters.protocol import AttentionCall, Observer, rows_wanted, spared
from headscape.models.adapters.score_trace import ScoreTrace
from headscape.models.lazy_torch import torch
from headscape.models.stacks import LayerNumbers

HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads", "n_head")
"""What attention modules call their number of heads."""
BIAS_ABOVE = 1e-4
"""What is left of the logits beside s q.k is a bias if it is this large, relative to them; below, it is rounding."""


@contextmanager
def read_calls(model: torch.nn.Module, observer: Observer) -> Iterator[None]:
    """Show every attention call of a model to an observer, gates included, with the model's eager code."""
    before = [(config, config._attn_implementation_internal) for config in model_configs(model)]
    try:
        for config, _ in before:
            config._attn_implementation_internal = "eager"
        with read_as_configured(model, observer):
            yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


@contextmanager
def read_as_configured(model: torch.nn.Module, observer: Observer) -> Iterator[None]:
    """Show every attention call of a model to an observer, with the code that the model is set to."""
    reader = _Reader(observer)
    with ExitStack() as hooks:
        hooks.enter_context(model.register_forward_pre_hook(lambda *_: reader.restart()))
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_pre_hook(reader.entering(name)))
                hooks.enter_context(module.register_forward_hook(reader.leaving, always_call=True))
        hooks.enter_context(_function_mode(reader))
        yield


def _function_mode(reader: _Reader) -> Any:
    """Return a mode in which every torch function goes by the reader."""
    from torch.overrides import TorchFunctionMode

    class Reading(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return reader.called(func, args, kwargs or {})

    return Reading()


class _Reader:
    """Knows which module is running, and looks at the functions that it calls."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.numbers = LayerNumbers()
        self._running: list[tuple[str, torch.nn.Module]] = []
        self._trace = ScoreTrace()

    def restart(self) -> None:
        """Begin a new forward pass."""
        self.numbers.restart()
        self._running.clear()
        self._trace.clear()

    def entering(self, name: str) -> Callable[[torch.nn.Module, Any], None]:
        """Return a hook for the start of a module's forward."""
        return lambda module, _: self._running.append((name, module))

    def leaving(self, *_: Any) -> None:
        """Note that a module's forward has ended."""
        if self._running:
            self._running.pop()

    def called(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function, and look at what it was given."""
        result = function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name == "softmax" and self._running:
            scores = args[0] if args else kwargs.get("input")
            result = self._softmax(scores, _axis(args, kwargs), result)
        elif self._running:
            self._trace.see(name, args, kwargs, result)
        return result

    def _softmax(self, scores: Any, axis: Any, probs: Any) -> Any:
        """Show a softmax that is attention to the observer, and return its result with the gates."""
        name, module = self._running[-1]
        if isinstance(module, torch.nn.Softmax) and len(self._running) > 1:
            name, module = self._running[-2]
        if not _is_attention(module, scores, axis):
            return probs
        group, layer = self.numbers.of(name)
        gate: torch.Tensor | None = None
        with spared([self.observer]):
            call = self._call(name, group, layer, module, scores, probs)
            self._trace.clear()
            gate = self.observer.see(call)
        return probs if gate is None else probs * gate.to(probs)[..., :, None, None]

    def _call(
        self,
        name: str,
        group: tuple[str, str],
        layer: int,
        module: torch.nn.Module,
        scores: torch.Tensor,
        probs: torch.Tensor,
    ) -> AttentionCall:
        """Return the call: queries, keys, mask and bias if the product was followed, else the finished logits."""
        place = (name, group, layer, module)
        values = scores.new_empty((*scores.shape[:2], scores.shape[3], 0))
        if getattr(self.observer, "only_gates", False):
            nothing = scores.new_empty((*scores.shape[:3], 0))
            return AttentionCall(*place, nothing, values, values, None, None, 1.0, softcap=None, sinks=None)
        product = self._trace.product_of(scores)
        found = None if product is None else product.of_heads(scores)
        rows = rows_wanted([self.observer])
        scores, probs, values = scores[:rows], probs[:rows], values[:rows]
        visible = scores > MASKED_BELOW
        mask = visible[:, :1] if bool((visible == visible[:, :1]).all()) else visible
        if product is None or found is None:
            queries = scores.new_empty((*scores.shape[:3], 0))
            return AttentionCall(
                *place,
                queries,
                values,
                values,
                mask,
                None,
                1.0,
                softcap=None,
                sinks=None,
                scores=scores,
                probs=probs,
            )
        queries, keys = (x[:rows] for x in found)
        with torch.no_grad():
            bias = _bias(scores, queries, keys, product.factor, visible)
        return AttentionCall(
            *place, queries, keys, values, mask, bias, product.factor, softcap=None, sinks=None, probs=probs
        )


def _is_attention(module: torch.nn.Module, scores: Any, axis: Any) -> bool:
    """Tell whether a softmax is over the keys of a module's heads, and not over experts or sampling points."""
    if not isinstance(scores, torch.Tensor) or scores.dim() != 4 or axis not in (-1, 3):
        return False
    counts = {getattr(module, name) for name in HEAD_COUNTS if isinstance(getattr(module, name, None), int)}
    return scores.shape[1] in counts


def _bias(
    scores: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor, factor: float, visible: torch.Tensor
) -> torch.Tensor | None:
    """Return what the logits have beside s q.k at visible keys, None if that is rounding."""
    shared = queries.shape[1] // keys.shape[1]
    keys = keys if shared == 1 else keys.repeat_interleave(shared, dim=1)
    rest = (queries.float() * factor) @ keys.float().mT
    largest = rest.abs().amax().clamp(min=1.0)
    rest.neg_().add_(scores).masked_fill_(~visible, 0.0)
    return rest if bool(rest.abs().amax() > BIAS_ABOVE * largest) else None


def _axis(args: Any, kwargs: Any) -> Any:
    return kwargs.get("dim", args[1] if len(args) > 1 else None)
