"""What a model's own attention code makes of its queries and keys: the evidence for ``check``.

The model runs exactly as it is configured, with the mask that it builds for its own implementation (eager, sdpa,
or one that was registered by hand), and every call of that implementation is watched. What a call does not show
is found by repeating it: one-hot values give the probabilities, zero queries the visible keys, and a constant
added to the logits of each row shows whether the softmax is one. So every module is judged on its own input,
whatever the modules before it did. Of plain PyTorch modules, calls of torch's attention functions can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.models.adapters.protocol import AttentionCall
from headscape.models.anatomy import watched
from headscape.models.forward_pass import evaluating, forward
from headscape.models.lazy_torch import torch
from headscape.models.plain_facts import is_plain
from headscape.models.stacks import LayerNumbers
from headscape.recorder.recording import Recording, record_batch
from headscape.tensor.attention_record import AttentionRecord

Implementation = Callable[..., "tuple[torch.Tensor, torch.Tensor | None]"]
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class OwnAttention:
    """One module in one window: its record, and what the model's own code made of it.

    Parameters
    ----------
    record
        Queries, keys and visibility, with the model's own probabilities in ``probs`` where they can be seen.
    causal
        Whether the module calls itself causal.
    values : (kv_head, key, d) array
    output : (head, query, d) array
        Of the configured implementation; None if its calls cannot be watched.
    shifted : (head, query, d) array
        The same with a constant added to the logits of each row; None if that has no meaning.
    missing
        Why ``output`` or ``shifted`` is missing.
    """

    record: AttentionRecord
    causal: bool = False
    values: Float32Array | None = None
    output: Float32Array | None = None
    shifted: Float32Array | None = None
    missing: str = "the model calls no attention function that could be called again"


def own_attention(model: torch.nn.Module, inputs: Mapping[str, Any], *, seed: int = 0) -> list[OwnAttention]:
    """Run a model as it is configured, on a batch of one, and return what its attention code did in every module.

    The model is left as it was; ``seed`` is that of the constants that are added to the logits. Forms the probabilities
    of one module at a time and keeps them all: O(L^2) memory and O(L^3) time a head. Meant for short windows.
    """
    records, evidence = _run(model, inputs, seed)
    if not evidence:
        return [OwnAttention(record) for record in records]
    return [
        OwnAttention(record.replace(probs=found.pop("probs", None)), **found)
        for record, found in zip(records, evidence, strict=True)
    ]


def own_records(model: torch.nn.Module, inputs: Mapping[str, Any]) -> list[AttentionRecord]:
    """Run a model as it is configured, on a batch of one, and return the record of every module."""
    return _run(model, inputs, seed=None)[0]


@contextmanager
def module_outputs(model: torch.nn.Module, modules: Sequence[str]) -> Iterator[dict[str, Float32Array]]:
    """Collect the outputs of the named modules in the runs of a block."""
    outputs: dict[str, Float32Array] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, arguments: Any, output: Any) -> None:
            outputs[name] = _to_numpy(output[0] if isinstance(output, tuple) else output)

        return hook

    with ExitStack() as stack:
        for name in dict.fromkeys(modules):
            stack.enter_context(model.get_submodule(name).register_forward_hook(keep(name)))
        yield outputs


@dataclass(frozen=True, eq=False)
class OwnCall:
    """One call of an attention implementation, which can be repeated with other arguments."""

    implementation: Implementation
    module: torch.nn.Module
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    mask: Any
    options: Mapping[str, Any]

    @property
    def scale(self) -> float:
        """The factor of the dot product."""
        scaling = self.options.get("scaling")
        return float(self.queries.shape[-1] ** -0.5 if scaling is None else scaling)

    @property
    def causal(self) -> bool:
        """Whether the call, or else its module, says that it is causal."""
        said = self.options.get("is_causal")
        of_module = getattr(self.module, "is_causal", getattr(self.module, "is_decoder", False))
        return bool(of_module if said is None else said)

    def output(self) -> torch.Tensor | None:
        """Return (batch, query, head, d); None where the implementation refuses: that is then not judged."""
        try:
            return self.implementation(
                self.module, self.queries, self.keys, self.values, self.mask, **self.options
            )[0]
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            return None

    def shares(self) -> torch.Tensor | None:
        """Return the weight of every key (batch, head, query, key): the output for one-hot values."""
        n_keys = self.keys.shape[2]
        one_hot = torch.eye(n_keys).to(self.values).expand(*self.values.shape[:2], n_keys, n_keys)
        output = replace(self, values=one_hot).output()
        return None if output is None else output.transpose(1, 2)

    def explicit_mask(self) -> torch.Tensor | None:
        """Return the mask (batch, 1 or head, query, key): as given, or else as the implementation acts."""
        n_queries, n_keys = self.queries.shape[2], self.keys.shape[2]
        if isinstance(self.mask, torch.Tensor) and self.mask.dim() == 4:
            whole = self.mask.shape[-2:] == (n_queries, n_keys)
            return self.mask if whole else self.mask[..., :n_keys].expand(-1, -1, n_queries, -1)
        # Without a mask sdpa may still hide the future. Equal logits give every visible key the same share.
        options = {name: value for name, value in self.options.items() if name != "position_bias"}
        shares = replace(self, queries=torch.zeros_like(self.queries), options=options).shares()
        if shares is not None:
            return shares > 0
        every = torch.ones(1, 1, n_queries, n_keys, dtype=torch.bool, device=self.keys.device)
        return every.tril(n_keys - n_queries) if self.causal else None

    def shifted(self, seed: int) -> OwnCall:
        """Add a constant to the logits of each row, through one more coordinate of queries and keys."""
        generator = torch.Generator().manual_seed(seed)
        # Large enough for an implementation that overflows or clamps; in half precision that would cost digits.
        reach = 16 if torch.finfo(self.queries.dtype).eps < 1e-6 else 4
        constants = reach * (2 * torch.rand((*self.queries.shape[:3], 1), generator=generator) - 1)
        ones = torch.full((*self.keys.shape[:3], 1), 1 / self.scale)
        return replace(
            self,
            queries=torch.cat([self.queries, constants.to(self.queries)], dim=-1),
            keys=torch.cat([self.keys, ones.to(self.keys)], dim=-1),
            options={**self.options, "scaling": self.scale},
        )


@dataclass
class _Watch:
    """Records every call of a model's attention implementations and, with a seed, gathers evidence on it."""

    names: Mapping[torch.nn.Module, str]
    seed: int | None
    recording: Recording = field(default_factory=lambda: Recording(rows=1))
    numbers: LayerNumbers = field(default_factory=LayerNumbers)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    called: bool = False
    _busy: bool = False

    def over(self, implementation: Implementation) -> Implementation:
        """Return the implementation, watched."""

        def watched(
            module: torch.nn.Module,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            attention_mask: Any = None,
            scaling: float | None = None,
            dropout: float = 0.0,
            **options: Any,
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            options = {"scaling": scaling, "dropout": dropout, **options}
            # An implementation may hand its work to another one; only the outer call is the module's.
            if self._busy or module not in self.names:
                return implementation(module, query, key, value, attention_mask, **options)
            self._busy = True
            try:
                found = implementation(module, query, key, value, attention_mask, **options)
                self._see(OwnCall(implementation, module, query, key, value, attention_mask, options), *found)
            finally:
                self._busy = False
            return found

        return watched

    def see(self, call: AttentionCall) -> None:
        """Record a call of a plain module and, if its kernel can be called again, gather evidence on it."""
        if call.padding is not None and bool(call.padding.any()):
            raise padded()
        self.called = True
        self.recording.see(call)
        if self.seed is not None:
            own = _own_call(call)
            output = None if own is None else own.output()
            if own is None or output is None:
                self.evidence.append({})
            else:
                self.evidence.append(_evidence(own, output, None, self.seed))

    def _see(self, call: OwnCall, output: torch.Tensor, weights: torch.Tensor | None) -> None:
        self.called = True
        name, options = self.names[call.module], call.options
        self.recording.see(
            AttentionCall(
                name,
                *self.numbers.of(name),
                module=call.module,
                queries=call.queries,
                keys=call.keys,
                values=call.values,
                mask=call.explicit_mask(),
                bias=options.get("position_bias"),
                scale=call.scale,
                softcap=options.get("softcap"),
                sinks=options.get("s_aux"),
            )
        )
        if self.seed is not None:
            self.evidence.append(_evidence(call, output, weights, self.seed))


def padded() -> InputError:
    """Return the error for padded inputs."""
    return InputError(
        "inputs must not be padded, because the tests look at whole windows. Pass windows of equal length."
    )


def _own_call(call: AttentionCall) -> OwnCall | None:
    """Return the call of a plain module in a form that can be repeated, if its kernel can."""
    kernel = call.again
    if kernel is None:
        return None

    def implementation(
        module: Any, queries: Any, keys: Any, values: Any, mask: Any, *, scaling: float
    ) -> tuple[torch.Tensor, None]:
        return kernel(queries, keys, values, scaling).transpose(1, 2), None

    options = {"scaling": call.scale}
    return OwnCall(implementation, call.module, call.queries, call.keys, call.values, call.mask, options)


def _run(
    model: torch.nn.Module, inputs: Mapping[str, Any], seed: int | None
) -> tuple[list[AttentionRecord], list[dict[str, Any]]]:
    """Run a model with its attention watched; if its calls cannot be watched, it is recorded as in a capture."""
    watch = _Watch({module: name for name, module in model.named_modules()}, seed)
    if is_plain(model):
        eager = torch.compiler.set_stance("force_eager")  # compiled functions show no calls
        with eager, watched(model, watch), evaluating(model), torch.no_grad():
            forward(model, inputs, "a window")
    else:
        _run_watched(model, inputs, watch)
    records = watch.recording.records() if watch.called else record_batch(model, inputs)
    return records[0], watch.evidence


def _run_watched(model: torch.nn.Module, inputs: Mapping[str, Any], watch: _Watch) -> None:
    """Run a model of transformers with its attention implementations watched."""
    from transformers import AttentionInterface

    original = AttentionInterface.get_interface
    AttentionInterface.get_interface = lambda *given: watch.over(original(*given))  # type: ignore[method-assign]
    try:
        with evaluating(model), torch.no_grad():
            model(**inputs)
    finally:
        AttentionInterface.get_interface = original  # type: ignore[method-assign]


def _evidence(call: OwnCall, output: torch.Tensor, weights: torch.Tensor | None, seed: int) -> dict[str, Any]:
    """Repeat a call in the ways that show its probabilities and its softmax."""
    missing = ""
    if call.options.get("softcap") is not None:
        missing = f"soft-cap {call.options['softcap']:g}: capped logits do not move with s q.k"
    elif call.options.get("s_aux") is not None:
        missing = "sinks: their logits stay fixed when the others move"
    shifted = None if missing else call.shifted(seed).output()
    shares = call.shares() if weights is None else weights
    return {
        "probs": None if shares is None else _to_numpy(shares[0]),
        "causal": call.causal,
        "values": _to_numpy(call.values[0]),
        "output": _to_numpy(output[0].transpose(0, 1)),
        "shifted": None if shifted is None else _to_numpy(shifted[0].transpose(0, 1)),
        "missing": missing or "the implementation refuses queries and keys that are longer than the values",
    }


def _to_numpy(x: torch.Tensor) -> Float32Array:
    array: Float32Array = np.array(x.detach().to(device="cpu", dtype=torch.float32).numpy())
    return array
