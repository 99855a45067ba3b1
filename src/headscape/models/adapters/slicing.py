"""Cutting heads out of an attention module: rows of W_Q, W_K, W_V and their biases, columns of W_O.

    W_Q -> W_Q[rows of kept],   W_K, W_V -> [rows of their key-value heads],   W_O -> W_O[:, columns of kept]

A head's output is the sum over its own columns of W_O, so that what is left computes exactly what the whole
module computes with those heads switched off. A key-value head goes when all its query heads do.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headscape.errors import ModelError
from headscape.models.adapters.families import BESIDE, FAMILIES, PRUNABLE_FAMILIES, Count, Family


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one attention module: how many there were, and which of them are kept.

    Examples
    --------
    >>> layer = LayerHeads(0, "model.layers.0.self_attn", 4, 2, (2, 3))
    >>> layer.removed, layer.kept_kv
    ((0, 1), (1,))
    """

    layer: int
    module: str
    n_heads: int
    n_kv_heads: int
    kept: tuple[int, ...]

    @property
    def removed(self) -> tuple[int, ...]:
        """The heads that go."""
        return tuple(head for head in range(self.n_heads) if head not in self.kept)

    @property
    def kept_kv(self) -> tuple[int, ...]:
        """The key-value heads that kept heads read."""
        size = self.n_heads // self.n_kv_heads
        return tuple(sorted({head // size for head in self.kept}))


def keep_heads(model: torch.nn.Module, layers: Sequence[LayerHeads]) -> None:
    """Cut heads out of modules, in place; nothing is changed if one of them cannot be cut.

    Parameters
    ----------
    model
        A transformers model of a known family.
    layers
        Which module keeps which of its present heads; with shared keys the same number in each group. Modules
        that keep all are named too, because some read their number of heads from the config.
    """
    require_sliceable(model, layers)
    for layer in layers:
        _cut(model, layer)


def require_sliceable(model: torch.nn.Module, layers: Iterable[LayerHeads]) -> None:
    """Raise unless the modules are of a known family, in plain linear layers that nothing else shares."""
    parts = [part for layer in layers for part in _projections(model, layer.module)]
    parents = Counter(id(child) for module in model.modules() for child in module._modules.values())
    owners = Counter(id(weight) for module in model.modules() for weight in module._parameters.values())
    for part in parts:
        if not isinstance(part, torch.nn.Linear) and not _is_transposed(part):
            raise ModelError(
                f"heads are cut out of plain linear layers, but this model has a {type(part).__name__} in its "
                "attention. Merge adapters (merge_and_unload) or undo the quantization first."
            )
        if parents[id(part)] > 1 or any(owners[id(weight)] > 1 for weight in part.parameters()):
            raise shared_weights(model)


def shared_weights(model: torch.nn.Module) -> ModelError:
    """Return the error for layers that use the same weights."""
    return ModelError(
        f"the layers of {type(model).__name__} share their weights, so that a head cannot be removed from one "
        "layer alone. Switching heads off still works: headscape ablate, or hs.ablation_study."
    )


def family_of(module: torch.nn.Module) -> Family:
    """Return the family of an attention module, or raise a :class:`ModelError` with those there are."""
    kind = type(module)
    # A class of the same name that comes with a model may compute something else.
    if kind.__module__.startswith("transformers.models.") and kind.__name__ in FAMILIES:
        return FAMILIES[kind.__name__]
    raise ModelError(
        f"headscape cannot cut heads out of {kind.__name__}. Families that can be pruned: {PRUNABLE_FAMILIES}. "
        "Switching heads off works with every model that can be captured: headscape ablate, or hs.ablation_study."
    )


def output_module(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """Return the output projection that belongs to the attention module of that name."""
    path = family_of(model.get_submodule(name)).output
    if path.startswith(BESIDE):
        return model.get_submodule(f"{name.rpartition('.')[0]}.{path.removeprefix(BESIDE)}")
    return model.get_submodule(f"{name}.{path}")


def head_dim(model: torch.nn.Module, name: str, n_heads: int) -> int:
    """Return the columns per head of a module's output projection."""
    output = output_module(model, name)
    return int(output.get_parameter("weight").shape[0 if _is_transposed(output) else 1]) // n_heads


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


def _cut(model: torch.nn.Module, layer: LayerHeads) -> None:
    module = model.get_submodule(layer.module)
    family = family_of(module)
    d = head_dim(model, layer.module, layer.n_heads)
    if layer.removed:
        for part, rows in zip(_inputs(module, family), _rows(family, layer, d), strict=True):
            _slice(part, rows, axis=0)
        _slice(output_module(model, layer.module), _blocks(layer.kept, d), axis=1)
    counts: dict[Count, int] = {
        "heads": len(layer.kept),
        "kv_heads": len(layer.kept_kv),
        "heads_per_kv_head": len(layer.kept) // len(layer.kept_kv),
        "width": len(layer.kept) * d,
    }
    for attribute, count in family.counts.items():
        setattr(module, attribute, counts[count])
    if family.reads_config:
        view: Any = LayerConfig(shared_config(module), len(layer.kept))
        module.config = view


def _projections(model: torch.nn.Module, name: str) -> list[torch.nn.Module]:
    module = model.get_submodule(name)
    return [*_inputs(module, family_of(module)), output_module(model, name)]


def _inputs(module: torch.nn.Module, family: Family) -> list[torch.nn.Module]:
    return [module.get_submodule(name) for name in family.inputs]


def _rows(family: Family, layer: LayerHeads, d: int) -> list[torch.Tensor]:
    """Return the rows to keep of every input projection."""
    if family.head_by_head:
        return [_blocks(layer.kept, 3 * d)]
    queries, keys = _blocks(layer.kept, d), _blocks(layer.kept_kv, d)
    if len(family.inputs) == 3:
        return [queries, keys, keys]
    first_key, first_value = layer.n_heads * d, (layer.n_heads + layer.n_kv_heads) * d
    return [torch.cat([queries, first_key + keys, first_value + keys])]


def _blocks(numbers: Sequence[int], size: int) -> torch.Tensor:
    return torch.cat([torch.arange(i * size, (i + 1) * size, device="cpu") for i in numbers])


def _slice(part: torch.nn.Module, kept: torch.Tensor, axis: int) -> None:
    """Keep some outputs (axis 0) or inputs (axis 1) of a linear layer; the module itself stays the same object."""
    weight = part.get_parameter("weight")
    along = 1 - axis if _is_transposed(part) else axis
    part.weight = _selected(weight, kept, along)
    if axis == 0 and part.bias is not None:
        part.bias = _selected(part.get_parameter("bias"), kept, 0)
    size: Any = len(kept)
    names = ("nf", "nx") if _is_transposed(part) else ("out_features", "in_features")
    setattr(part, names[axis], size)


def _selected(weight: torch.Tensor, kept: torch.Tensor, axis: int) -> torch.nn.Parameter:
    values = weight.detach().index_select(axis, kept.to(weight.device))
    return torch.nn.Parameter(values, requires_grad=weight.requires_grad)


def _is_transposed(part: torch.nn.Module) -> bool:
    """Tell whether this is GPT-2's Conv1D, a linear layer that keeps its weight the other way round."""
    return type(part).__name__ == "Conv1D"
