"""``prune``: a model without some of its heads, smaller and faster, that computes what the gated model does."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscape.ablation.repair import Repair
from headscape.errors import InputError, ModelError
from headscape.models.adapters.protocol import LayerHeads
from headscape.models.anatomy import AttentionModule, Heads, adapter_for, of_stack
from headscape.models.lazy_torch import torch
from headscape.models.loading import Model, as_model, weights_hash
from headscape.models.plain_facts import config_of
from headscape.pruning.manifest import Manifest, Pairs, manifest_of
from headscape.pruning.plain_config import head_counts, settle_config
from headscape.pruning.plan import listed, planned_cuts, whole_layers
from headscape.pruning.pruned import Pruned, noted
from headscape.pruning.savings import Savings, cost
from headscape.tensor.store import software_versions

logger = logging.getLogger(__name__)


def prune(model: Any, heads: Heads, *, in_place: bool = False, repair: Repair | None = None) -> Pruned:
    """Remove heads from a model: rows of W_Q, W_K, W_V and columns of W_O are cut out.

    Parameters
    ----------
    model
        A transformers model of a family that is supported (see ``headscape.models.adapters.families``), what
        :func:`headscape.load_model` returns, or a name.
    heads
        (layer, head) pairs of its first self-attention stack, the least needed first. Where query heads share
        keys, a layer can lose whole groups, and the same number from every group that stays: the most that is
        possible is removed, and nothing that was not asked for.
    in_place
        Change the model itself instead of a copy.
    repair
        Output projections to write before the heads are cut out, as ``headscape.ablation.repair.repair`` fits them.

    Returns
    -------
    Pruned

    Notes
    -----
    The result computes what the model does with the removed heads switched off, up to rounding. A pruned
    model can be pruned again: ``heads`` are then its own numbers, while the result counts as the original.
    """
    source = as_model(model)
    modules = of_stack(source.modules())
    earlier = manifest_of(source.model)
    whole = _original_layers(modules, earlier)
    cuts, held = planned_cuts(heads, modules)
    layers = tuple(
        replace(layer, kept=tuple(layer.kept[head] for head in left.kept))
        for layer, left in zip(whole, cuts, strict=True)
    )
    original = {layer.layer: layer.kept for layer in whole}
    kept_back = tuple(sorted((layer, original[layer][head]) for layer, head in held))
    if kept_back:
        logger.warning(
            "%d of the heads asked for stay, because they share keys with heads that stay: %s",
            len(kept_back),
            listed(kept_back),
        )
    adapter_for(source.model).require_sliceable(source.model, cuts)
    base = earlier or _new_manifest(source.model, modules, whole)
    fitted = () if repair is None else {*repair.matrices, *repair.biases}
    manifest = replace(
        base, layers=layers, kept_back=kept_back, repaired=tuple(sorted({*base.repaired, *fitted}))
    )
    target = copied(source, modules, in_place)
    if repair is not None:
        write_projections(target, repair.matrices, repair.biases)
    return cut(target, cuts, manifest)


def cut(modules: Sequence[AttentionModule], cuts: Sequence[LayerHeads], manifest: Manifest) -> Pruned:
    """Cut heads out of a model in place and write the manifest, completed, into its config.

    ``cuts`` are all layers of the stack in their present numbers, the manifest's layers in the original's; savings
    and ``plain`` are found out here.
    """
    model = modules[0].model
    adapter_for(model).slice(model, cuts)
    left = after_cut(modules, cuts)
    savings = Savings.between(manifest.savings.before, cost(left))
    complete = replace(manifest, savings=savings, plain=settle_config(left, manifest.config))
    return Pruned(model, noted(model, complete))


def after_cut(modules: Sequence[AttentionModule], cuts: Sequence[LayerHeads]) -> list[AttentionModule]:
    """Return modules as they are when they have lost heads."""
    return [
        replace(module, n_heads=len(layer.kept), n_kv_heads=len(layer.kept_kv))
        for module, layer in zip(modules, cuts, strict=True)
    ]


def copied(source: Model, modules: Sequence[AttentionModule], in_place: bool) -> list[AttentionModule]:
    """Return modules as parts of a copy of their model, or of the model itself."""
    model = source.model if in_place else copy.deepcopy(source.model)
    return [replace(module, model=model) for module in modules]


def require_removable(modules: Sequence[AttentionModule], heads: Heads | None = None) -> Pairs:
    """Raise, before anything long is computed, if heads cannot be cut out of a model, or not these.

    Returns those of the heads that would have to stay, because they share keys with heads that stay.
    """
    model = modules[0].model
    adapter_for(model).require_sliceable(model, whole_layers(modules))
    return () if heads is None else planned_cuts(heads, modules)[1]


def write_projections(
    modules: Sequence[AttentionModule],
    matrices: Mapping[int, torch.Tensor],
    biases: Mapping[int, torch.Tensor],
) -> None:
    """Write matrices (output, head x d) and biases (output,), by layer, into output projections, all or none."""
    outputs = {module.layer: module.output for module in modules}
    for number in {*matrices, *biases} - set(outputs):
        raise InputError(f"projections must be for layers of the model, but there is no layer {number}.")
    for layer, matrix in matrices.items():
        _require_shape("matrix", layer, matrix, outputs[layer].matrix)
    for layer, bias in biases.items():
        _require_shape("bias", layer, bias, outputs[layer].bias)
    for layer in {*matrices, *biases}:
        outputs[layer].write(matrices.get(layer, outputs[layer].matrix), biases.get(layer))


def _original_layers(modules: Sequence[AttentionModule], earlier: Manifest | None) -> tuple[LayerHeads, ...]:
    """Return the layers of the original model, with the heads of it that the model has now."""
    if earlier is None:
        return whole_layers(modules)
    kept, present = [len(layer.kept) for layer in earlier.layers], [module.n_heads for module in modules]
    if kept != present:
        raise ModelError(
            "the model's config says that it was pruned, but its layers have other numbers of heads: "
            f"{kept} there, {present} in the model. Load it again with hs.load_pruned."
        )
    return earlier.layers


def _new_manifest(model: Any, modules: Sequence[AttentionModule], layers: tuple[LayerHeads, ...]) -> Manifest:
    """Return the manifest of a model that still has all its heads."""
    name = str(getattr(config_of(model), "_name_or_path", "") or type(model).__name__)
    now = cost(modules)
    return Manifest(
        model={
            # A path of this machine means nothing to others; its last part may.
            "name": Path(name).name if Path(name).is_absolute() else name,
            "class": type(model).__name__,
            "type": config_of(model).model_type,
            "weights_hash": weights_hash(model),
        },
        config=head_counts(modules[0].module),
        layers=layers,
        kept_back=(),
        repaired=(),
        savings=Savings.between(now, now),
        plain=False,
        versions=software_versions("torch", "transformers"),
    )


def _require_shape(name: str, layer: int, new: torch.Tensor, present: torch.Tensor | None) -> None:
    if present is None:
        raise InputError(
            f"the output projection of layer {layer} has no {name}, so that none can be written."
        )
    if new.shape != present.shape:
        raise InputError(
            f"the {name} of the output projection of layer {layer} must have the shape {tuple(present.shape)}, "
            f"but has {tuple(new.shape)}."
        )
