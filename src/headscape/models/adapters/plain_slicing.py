"""Fewer heads in plain PyTorch modules: ``nn.MultiheadAttention``, and self-attention with one fused projection.

    y = W_O concat_h softmax(s Q_h K_h^T [causal]) V_h (+ b),   (Q | K | V) = W x + b

torch's own module and most people's code take the width of the heads from that of the model, so that cutting weights is
not enough. torch's module becomes one of a subclass, which reads the width off its weights; a module with a fused
projection is replaced by :class:`FusedAttention`, which holds its two linear layers under their own names. That
it computes the same is not believed but tried, on random input, before anything is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from headscape.errors import ModelError
from headscape.models.adapters.protocol import AttentionCall, LayerHeads
from headscape.models.adapters.slicing import require_plain_layers, shared_weights
from headscape.models.adapters.torch_calls import shown_torch_calls
from headscape.models.forward_pass import evaluating
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection, blocks, selected

_LENGTHS = (7, 12)
_TOLERANCE = 1e-4


def _fused(module: torch.nn.Module) -> bool:
    """Tell whether a module is one of ours that took the place of another."""
    from headscape.models.adapters.fewer_heads_modules import FusedAttention

    return isinstance(module, FusedAttention)


def require_plain_sliceable(model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
    """Raise unless every module is torch's own or has a fused projection, with weights that nothing else shares."""
    modules = [model.get_submodule(layer.module) for layer in layers]
    if len({id(module) for module in modules}) < len(modules):
        raise shared_weights(model)
    parts: list[torch.nn.Module] = []
    for layer, module in zip(layers, modules, strict=True):
        if isinstance(module, torch.nn.MultiheadAttention):
            _require_own_weights(model, module)
            parts.append(module.out_proj)
        else:
            found: Any = module if _fused(module) else fused_parts(model, layer)
            parts += [module.get_submodule(found.inputs), module.get_submodule(found.output)]
    require_plain_layers(model, parts)


def keep_plain_heads(model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
    """Cut heads out of modules, in place; nothing is changed if one of them cannot be cut."""
    require_plain_sliceable(model, layers)
    for layer in layers:
        if not layer.removed:
            continue
        module: Any = model.get_submodule(layer.module)
        if isinstance(module, torch.nn.MultiheadAttention):
            _cut_multihead(module, layer)
        else:
            if not _fused(module):
                parent, _, name = layer.module.rpartition(".")
                module = fused_parts(model, layer).replacement(module)
                model.get_submodule(parent)._modules[name] = module
            _cut_fused(module, layer)
    for part in model.modules():
        if isinstance(part, torch.nn.TransformerEncoder):
            # Rows without padding go through a kernel that knows nothing of narrower heads.
            part.use_nested_tensor = False


@dataclass(frozen=True)
class FusedParts:
    """What a module with a fused projection is made of: names of its parts, and how it calls attention."""

    inputs: str
    output: str
    after: str | None
    n_heads: int
    n_kv_heads: int
    causal: bool
    scale: float
    dropout: float

    def replacement(self, module: torch.nn.Module) -> Any:
        """Return a module of ours that holds the same layers and computes the same."""
        from headscape.models.adapters.fewer_heads_modules import FusedAttention

        names = [name for name in (self.inputs, self.output, self.after) if name is not None]
        return FusedAttention({name: module.get_submodule(name) for name in names}, **vars(self)).train(
            module.training
        )


def fused_parts(model: torch.nn.Module, layer: LayerHeads) -> FusedParts:
    """Return the parts of a module, or raise unless a module of ours with these parts computes the same."""
    module = model.get_submodule(layer.module)
    try:
        found = _traced(module, layer)
        made = found.replacement(module)
        for length in _LENGTHS:
            x = _random_states(module.get_submodule(found.inputs), length)
            with evaluating(module), evaluating(made), torch.no_grad():
                expected, output = _tensor(module(x)), made(x)
            gap = float((output - expected).abs().max())
            if not gap <= _TOLERANCE * float(expected.abs().max()):
                raise ValueError(f"a fused projection gives another output, which differs by {gap:.2g}")
    except Exception as error:  # a module that is no plain self-attention may raise anything when it is tried
        raise _not_sliceable(module, layer.module, error) from error
    if not layer.module:
        raise _not_sliceable(module, "the model", "it is the whole model, not a part of one")
    return found


def require_fused(module: torch.nn.Module, layer: LayerHeads) -> None:
    """Raise unless one linear layer of a module makes all queries, then all keys, then all values."""
    try:
        _traced(module, layer)
    except Exception as error:  # a module that is no plain self-attention may raise anything when it is tried
        raise ModelError(
            f"the weights of the heads of {layer.module} ({type(module).__name__}) cannot be read: {error}."
        ) from error


class _Keep:
    """Keeps the last attention call."""

    call: AttentionCall

    def see(self, call: AttentionCall) -> None:
        self.call = call


def _traced(module: torch.nn.Module, layer: LayerHeads) -> FusedParts:
    """Run a module alone on random states and find the layers by what goes in and out of them."""
    linear = {n: m for n, m in module.named_children() if isinstance(m, torch.nn.Linear)}
    if len(linear) < 2:
        raise ValueError(
            "it does not have a linear layer for queries, keys and values and one for the output"
        )
    name = max(linear, key=lambda one: linear[one].out_features)
    x, keep = _random_states(linear[name], _LENGTHS[0]), _Keep()
    ins: dict[str, torch.Tensor] = {}
    outs: dict[str, torch.Tensor] = {}
    with ExitStack() as stack:
        for part_name, part in module.named_children():
            stack.enter_context(part.register_forward_hook(_noting(part_name, ins, outs)))
        stack.enter_context(torch.no_grad())
        with evaluating(module), shown_torch_calls(module, keep):
            module(x)
    call = keep.call
    n, n_kv, d = call.queries.shape[1], call.keys.shape[1], call.queries.shape[-1]
    if (n, n_kv) != (layer.n_heads, layer.n_kv_heads):
        raise ValueError(f"it has {n} heads alone, and {layer.n_heads} in the model")
    whole = outs[name]
    values = torch.unflatten(whole[..., (n + n_kv) * d :], -1, (n_kv, d)).transpose(1, 2)
    if whole.shape[-1] != (n + 2 * n_kv) * d or not torch.equal(values, call.values):
        raise ValueError(f"{name} does not give all queries, then all keys, then all values")
    output = next(m for m in linear if m != name and m in ins and ins[m].shape[-1] == n * d)
    after = next(
        (
            p
            for p, y in ins.items()
            if isinstance(module.get_submodule(p), torch.nn.Dropout) and y is outs[output]
        ),
        None,
    )
    causal = call.mask is not None
    return FusedParts(name, output, after, n, n_kv, causal, call.scale, _training_dropout(module, x))


def _training_dropout(module: torch.nn.Module, x: torch.Tensor) -> float:
    """Return the rate of dropout that a module gives attention while it trains."""
    keep, modes = _Keep(), [(part, part.training) for part in module.modules()]
    state = torch.random.get_rng_state()
    try:
        with shown_torch_calls(module, keep), torch.no_grad():
            module.train()(x)
    finally:
        torch.random.set_rng_state(state)
        for part, mode in modes:
            part.training = mode
    return keep.call.dropout


def _noting(name: str, ins: dict[str, Any], outs: dict[str, Any]) -> Any:
    def note(_: Any, arguments: Any, output: Any) -> None:
        ins[name], outs[name] = arguments[0], output

    return note


def _random_states(layer: Any, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, layer.in_features, generator=generator).to(layer.weight)


def _tensor(output: Any) -> torch.Tensor:
    found: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return found


def _cut_multihead(module: Any, layer: LayerHeads) -> None:
    from headscape.models.adapters.fewer_heads_modules import FewerHeadsAttention

    d = module.out_proj.in_features // layer.n_heads
    rows = blocks(layer.kept, d)
    if module.in_proj_weight is None:
        for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
            setattr(module, name, selected(getattr(module, name), rows, 0))
    width = layer.n_heads * d
    fused = torch.cat([rows, width + rows, 2 * width + rows])
    for name in ("in_proj_weight", "in_proj_bias"):
        if getattr(module, name) is not None:
            setattr(module, name, selected(getattr(module, name), fused, 0))
    Projection(module.out_proj, layer.n_heads).select(rows, axis=1)
    module.num_heads, module.head_dim = len(layer.kept), d
    # This keeps the fast paths of torch's layers away, which take the width of the heads from that of the model.
    module._qkv_same_embed_dim = False
    module.__class__ = FewerHeadsAttention


def _cut_fused(module: Any, layer: LayerHeads) -> None:
    output = Projection(module.get_submodule(module.output), layer.n_heads)
    d = output.head_dim
    queries, keys = blocks(layer.kept, d), blocks(layer.kept_kv, d)
    first_key, first_value = layer.n_heads * d, (layer.n_heads + layer.n_kv_heads) * d
    rows = torch.cat([queries, first_key + keys, first_value + keys])
    Projection(module.get_submodule(module.inputs)).select(rows, axis=0)
    output.select(queries, axis=1)
    module.n_heads, module.n_kv_heads = len(layer.kept), len(layer.kept_kv)


def _require_own_weights(model: torch.nn.Module, module: torch.nn.Module) -> None:
    owners = [id(weight) for part in model.modules() for weight in part._parameters.values()]
    for weight in module._parameters.values():
        if weight is not None and owners.count(id(weight)) > 1:
            raise shared_weights(model)


def _not_sliceable(module: torch.nn.Module, name: str, why: object) -> ModelError:
    return ModelError(
        f"headscape cannot cut heads out of {name} ({type(module).__name__}): {why}. Of plain PyTorch modules, heads "
        "can be removed from nn.MultiheadAttention, and from self-attention with one linear layer that makes all "
        "queries, keys and values. Switching heads off works with every model that can be captured: "
        "hs.ablation_study, hs.rank_heads."
    )
