"""What a model's own attention code makes of the queries and keys it is given: the evidence for ``check``.

The model runs as under a recording. At every call its configured implementation (eager, sdpa, or one that was
registered by hand) is called too, on the same queries, keys, values and mask, and once more with a constant
added to the logits of each row. So every module is judged on its own input, whatever the modules before it did.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscape.models.adapters.attention_interface import AttentionCall, observed
from headscape.models.forward_pass import evaluating
from headscape.recorder.recording import Recording
from headscape.tensor.attention_record import AttentionRecord

Implementation = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class OwnAttention:
    """One module in one window: its record, and what the model's own code made of it.

    Parameters
    ----------
    record
        Queries, keys and visibility, with the model's own probabilities in ``probs`` where they can be seen.
    values : (kv_head, key, d) array
    output : (head, query, d) array
        Of the configured implementation; None if it cannot be called on an explicit mask.
    shifted : (head, query, d) array
        The same with a constant added to the logits of each row; None if that has no meaning.
    causal
        Whether the module calls itself causal.
    no_shift
        Why ``shifted`` is missing.
    """

    record: AttentionRecord
    values: Float32Array
    output: Float32Array | None
    shifted: Float32Array | None
    causal: bool
    no_shift: str = ""


@dataclass
class _OwnCode:
    """Calls the configured implementation of each module beside the recording."""

    implementations: Mapping[str, str]
    seed: int
    seen: list[tuple[AttentionCall, dict[str, Any]]] = field(default_factory=list)

    def see(self, call: AttentionCall) -> None:
        """Run the module's own code on a call, plain and with shifted logits."""
        name = self.implementations.get(call.name, "eager")
        own = _implementation(call, name)
        output, weights = _try(own, call)
        if weights is None:
            # sdpa and its like keep their probabilities to themselves; the eager code shows them.
            weights = _try(_implementation(call, "eager"), call)[1]
        why = _no_shift(call)
        shifted = None if why else _try(own, _shift_logits(call, self.seed))[0]
        found: dict[str, Any] = {
            "output": output,
            "probs": weights,
            "shifted": shifted,
            "values": call.values,
        }
        found["no_shift"] = why or (
            "" if shifted is not None else f"{name} does not take longer queries and keys"
        )
        found["causal"] = bool(getattr(call.module, "is_causal", getattr(call.module, "is_decoder", False)))
        self.seen.append((call, found))

    def gate(self, call: AttentionCall) -> None:
        """Leave the model's output alone."""


def own_attention(
    model: torch.nn.Module, inputs: Mapping[str, Any], *, seed: int = 0
) -> list[list[OwnAttention]]:
    """Run a model and return, for each row of the batch, what its own attention code did in every module.

    Parameters
    ----------
    model
        A transformers model; left as it was.
    inputs
        Arguments of its forward, without padding.
    seed
        Of the constants that are added to the logits.

    Notes
    -----
    Forms the probabilities of one module at a time and keeps them all: O(L^2) memory a head. Meant for short
    windows.
    """
    implementations = {
        name: str(module.config._attn_implementation)
        for name, module in model.named_modules()
        if hasattr(getattr(module, "config", None), "_attn_implementation")
    }
    own, recording = _OwnCode(implementations, seed), Recording(_rows(inputs))
    with observed(model, own), observed(model, recording), evaluating(model), torch.no_grad():
        model(**inputs)
    rows = recording.records()
    return [
        [_of_row(record, found, row) for record, (_, found) in zip(records, own.seen, strict=True)]
        for row, records in enumerate(rows)
    ]


def module_outputs(
    model: torch.nn.Module, inputs: Mapping[str, Any], modules: list[str], *, recorded: bool
) -> dict[str, Float32Array]:
    """Return the output of each named attention module, as the model is configured or as it is recorded."""
    outputs: dict[str, Float32Array] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, arguments: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            outputs[name] = _to_numpy(tensor)

        return hook

    parts = dict(model.named_modules())
    hooks = [parts[name].register_forward_hook(keep(name)) for name in dict.fromkeys(modules)]
    try:
        with evaluating(model), torch.no_grad():
            if recorded:
                with observed(model, Recording(_rows(inputs))):
                    model(**inputs)
            else:
                model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


def _rows(inputs: Mapping[str, Any]) -> int:
    return len(next(x for x in inputs.values() if isinstance(x, torch.Tensor)))


def _implementation(call: AttentionCall, name: str) -> Implementation | None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    eager = getattr(sys.modules[type(call.module).__module__], "eager_attention_forward", None)
    found: Implementation | None = eager if name == "eager" else ALL_ATTENTION_FUNCTIONS.get(name, eager)
    return found


def _try(own: Implementation | None, call: AttentionCall) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Call an implementation; what it cannot do is not judged, so its refusal is no error here."""
    if own is None:
        return None, None
    # The recorder keeps plain causal masks in half precision; the model's own code wants its own dtype.
    mask = None if call.mask is None else call.mask.to(call.queries.dtype)
    extra = {"softcap": call.softcap, "position_bias": call.bias, "s_aux": call.sinks}
    given = {name: value for name, value in extra.items() if value is not None}
    try:
        return own(
            call.module, call.queries, call.keys, call.values, mask, scaling=call.scale, dropout=0.0, **given
        )
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return None, None


def _no_shift(call: AttentionCall) -> str:
    """Say why logits cannot be shifted, if so."""
    if call.softcap is not None:
        return f"soft-cap {call.softcap:g}: capped logits do not move with s q.k"
    if call.sinks is not None:
        return "sinks: they stay where they are when the logits move"
    return ""


def _shift_logits(call: AttentionCall, seed: int) -> AttentionCall:
    """Add a constant to the logits of each row, through one more coordinate of queries and keys."""
    generator = torch.Generator().manual_seed(seed)
    shape = (*call.queries.shape[:3], 1)
    # Large enough for an implementation that overflows or clamps; in half precision that would cost the digits.
    reach = 16 if torch.finfo(call.queries.dtype).eps < 1e-6 else 4
    constants = (reach * (2 * torch.rand(shape, generator=generator) - 1)).to(call.queries)
    ones = torch.full((*call.keys.shape[:3], 1), 1 / call.scale).to(call.keys)
    return AttentionCall(
        call.name,
        call.module,
        torch.cat([call.queries, constants], dim=-1),
        torch.cat([call.keys, ones], dim=-1),
        call.values,
        call.mask,
        call.bias,
        call.scale,
        call.softcap,
        call.sinks,
    )


def _of_row(record: AttentionRecord, found: Mapping[str, Any], row: int) -> OwnAttention:
    def by_head(name: str) -> Float32Array | None:
        # Implementations return (batch, query, head, d).
        return None if found[name] is None else _to_numpy(found[name][row].transpose(0, 1))

    probs = None if found["probs"] is None else _to_numpy(found["probs"][row])
    return OwnAttention(
        record=record.replace(probs=probs),
        values=_to_numpy(found["values"][row]),
        output=by_head("output"),
        shifted=by_head("shifted"),
        causal=found["causal"],
        no_shift=found["no_shift"],
    )


def _to_numpy(x: torch.Tensor) -> Float32Array:
    array: Float32Array = np.array(x.detach().to(device="cpu", dtype=torch.float32).numpy())
    return array
