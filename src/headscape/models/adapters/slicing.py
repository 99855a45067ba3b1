"""Cutting heads out of an attention module: rows of W_Q, W_K, W_V and their biases, columns of W_O.

    W_Q -> W_Q[rows of kept],   W_K, W_V -> [rows of their key-value heads],   W_O -> W_O[:, columns of kept]

A head's output is the sum over its own columns of W_O, so that what is left computes exactly what the whole
module computes with those heads switched off. A key-value head goes when all its query heads do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headscape.errors import ModelError
from headscape.models.adapters.families import BESIDE, PRUNABLE_FAMILIES, Count, Family, known_family
from headscape.models.adapters.protocol import LayerHeads
from headscape.models.lazy_torch import torch
from headscape.models.projection import Projection, blocks, is_linear


def keep_heads(model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
    """Cut heads out of modules, in place; nothing is changed if one of them cannot be cut.

    With shared keys every group keeps the same number of heads. Modules that keep all are named too, because some
    read their number of heads from the config.
    """
    require_sliceable(model, layers)
    for layer in layers:
        _cut(model, layer)


def require_sliceable(model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
    """Raise unless the modules are of a known family, in plain linear layers that nothing else shares."""
    if len({id(model.get_submodule(layer.module)) for layer in layers}) < len(layers):
        raise shared_weights(model)
    require_plain_layers(model, [part for layer in layers for part in _projections(model, layer.module)])


def require_plain_layers(model: torch.nn.Module, parts: Sequence[torch.nn.Module]) -> None:
    """Raise unless parts of a model are plain linear layers that nothing else shares."""
    parents = Counter(id(child) for module in model.modules() for child in module._modules.values())
    owners = Counter(id(weight) for module in model.modules() for weight in module._parameters.values())
    if len({id(part) for part in parts}) < len(parts):
        raise shared_weights(model)
    for part in parts:
        if not is_linear(part):
            raise ModelError(
                f"heads are cut out of plain linear layers, but this model has a {type(part).__name__} in its "
                "attention. Merge adapters (merge_and_unload) or undo the quantization first."
            )
        if parents[id(part)] > 1 or any(owners[id(weight)] > 1 for weight in part.parameters()):
            raise shared_weights(model)


def output_module(model: torch.nn.Module, name: str, path: str) -> torch.nn.Module:
    """Return what is at a path inside the module of that name, or beside it."""
    if path.startswith(BESIDE):
        name, path = name.rpartition(".")[0], path.removeprefix(BESIDE)
    return model.get_submodule(f"{name}.{path}" if name else path)


class LayerConfig:
    """A model's config as one layer sees it: the shared one, but for the number of heads.

    What is set goes to the shared config, so that switching the attention function reaches every layer.
    """

    def __init__(self, shared: Any, num_attention_heads: int) -> None:
        self.__dict__.update(shared=shared, num_attention_heads=num_attention_heads)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying asks for these before there is a shared config to ask
            raise AttributeError(name)
        return getattr(self.shared, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.shared, name, value)


def shared_config(module: torch.nn.Module) -> Any:
    """Return the config that an attention module shares with the other layers."""
    config: Any = module.config
    return config.shared if isinstance(config, LayerConfig) else config


def shared_weights(model: torch.nn.Module) -> ModelError:
    """Return the error for a model whose layers cannot lose heads one by one."""
    return ModelError(
        f"the layers of {type(model).__name__} share their weights, so that a head cannot be removed from one "
        "layer alone. Switching heads off still works: headscape ablate, or hs.ablation_study."
    )


def _family(module: torch.nn.Module) -> Family:
    """Return the family of a module whose heads can be cut out, or raise a :class:`ModelError` with those there are."""
    family = known_family(type(module))
    if family is not None and family.counts is not None:
        return family
    raise ModelError(
        f"headscape cannot cut heads out of {type(module).__name__}. Families that can be pruned: "
        f"{PRUNABLE_FAMILIES}. Switching heads off works with every model that can be captured: headscape ablate, or "
        "hs.ablation_study."
    )


def _cut(model: torch.nn.Module, layer: LayerHeads) -> None:
    module = model.get_submodule(layer.module)
    family = _family(module)
    *inputs, last = _projections(model, layer.module)
    output = Projection(last, layer.n_heads)
    d = output.head_dim
    if layer.removed:
        for part, rows in zip(inputs, _rows(family, layer, d), strict=True):
            Projection(part).select(rows, axis=0)
        output.select(blocks(layer.kept, d), axis=1)
    counts: dict[Count, int] = {
        "heads": len(layer.kept),
        "kv_heads": len(layer.kept_kv),
        "heads_per_kv_head": len(layer.kept) // len(layer.kept_kv),
        "width": len(layer.kept) * d,
    }
    for attribute, count in (family.counts or {}).items():
        setattr(module, attribute, counts[count])
    if family.reads_config:
        view: Any = LayerConfig(shared_config(module), len(layer.kept))
        module.config = view


def _projections(model: torch.nn.Module, name: str) -> list[torch.nn.Module]:
    """Return the input projections of a module, and its output projection last."""
    module = model.get_submodule(name)
    family = _family(module)
    inputs = [module.get_submodule(part) for part in family.inputs]
    return [*inputs, output_module(model, name, family.output)]


def _rows(family: Family, layer: LayerHeads, d: int) -> list[torch.Tensor]:
    """Return the rows to keep of every input projection."""
    if family.head_by_head:
        return [blocks(layer.kept, 3 * d)]
    queries, keys = blocks(layer.kept, d), blocks(layer.kept_kv, d)
    if len(family.inputs) == 3:
        return [queries, keys, keys]
    first_key, first_value = layer.n_heads * d, (layer.n_heads + layer.n_kv_heads) * d
    return [torch.cat([queries, first_key + keys, first_value + keys])]
