"""``prune``: a model without some of its heads, smaller and faster, that computes what the gated model does."""

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscape.errors import InputError, ModelError
from headscape.models import require_models_extra
from headscape.pruning.grouping import removable
from headscape.pruning.manifest import Manifest, Pairs, manifest_of
from headscape.pruning.pruned import Pruned, listed, noted
from headscape.pruning.savings import Savings, cost
from headscape.tensor.store import software_versions

if TYPE_CHECKING:
    import torch

    from headscape.ablation.repair import Repair
    from headscape.models.adapters.slicing import LayerHeads
    from headscape.models.attention_modules import AttentionSite, Heads

logger = logging.getLogger(__name__)

_PROBE_LENGTH = 8


def prune(model: Any, heads: "Heads", *, in_place: bool = False, repair: "Repair | None" = None) -> Pruned:
    """Remove heads from a model: rows of W_Q, W_K, W_V and columns of W_O are cut out.

    Parameters
    ----------
    model
        A transformers model of a family that is supported; see ``headscape.models.adapters.families``.
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
    require_models_extra()
    sites = probed_sites(model)
    earlier = manifest_of(model)
    whole = _original_layers(sites, earlier)
    cuts, held = _plan(heads, sites)
    layers = tuple(_composed(layer, cut) for layer, cut in zip(whole, cuts, strict=True))
    original = {layer.layer: layer.kept for layer in whole}
    kept_back = tuple(sorted((layer, original[layer][head]) for layer, head in held))
    if kept_back:
        logger.warning(
            "%d of the heads asked for stay, because they share keys with heads that stay: %s",
            len(kept_back),
            listed(kept_back),
        )
    base = earlier or _new_manifest(model, sites, whole)
    fitted = () if repair is None else {*repair.matrices, *repair.biases}
    repaired = tuple(sorted({*base.repaired, *fitted}))
    require_prunable(model, cuts)
    target = model if in_place else copy.deepcopy(model)
    if repair is not None:
        write_projections(target, cuts, repair.matrices, repair.biases)
    return cut(
        target,
        cuts,
        dataclasses.replace(base, layers=layers, kept_back=kept_back, repaired=repaired),
    )


def cut(model: Any, cuts: "Sequence[LayerHeads]", manifest: Manifest) -> Pruned:
    """Cut heads out of a model in place and write the manifest, completed, into its config.

    Parameters
    ----------
    model
        It is changed.
    cuts
        All layers of the stack, with those of their present heads that are kept.
    manifest
        Its layers are in the original's numbers; savings and ``plain`` are found out here.
    """
    from headscape.models.adapters.slicing import keep_heads
    from headscape.pruning.plain_config import settle_config

    keep_heads(model, cuts)
    plain = settle_config(model, manifest.layers, manifest.config)
    savings = Savings.between(manifest.savings.before, cost(model, probed_sites(model)))
    return Pruned(model, noted(model, dataclasses.replace(manifest, savings=savings, plain=plain)))


def probed_sites(model: Any) -> "tuple[AttentionSite, ...]":
    """Return the attention sites of a model's first stack, seen in one short forward pass."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"model must be a transformers model, but is {type(model).__name__}. Load one with "
            "hs.load_model(...).model."
        )
    if not hasattr(model, "config"):
        raise ModelError(f"{type(model).__name__} is no transformers model: it has no config.")
    from headscape.models.attention_modules import attention_sites
    from headscape.models.forward_pass import arguments_for
    from headscape.models.random_inputs import probe_windows

    [window] = probe_windows(model, length=_PROBE_LENGTH, windows=1)
    return attention_sites(model, arguments_for(model, window))


def require_removable(model: Any, heads: "Heads | None" = None) -> Pairs:
    """Raise, before anything long is computed, if heads cannot be cut out of a model, or not these.

    Returns those of the heads that would have to stay, because they share keys with heads that stay.
    """
    sites = probed_sites(model)
    require_prunable(model, _original_layers(sites, None))
    return () if heads is None else _plan(heads, sites)[1]


def require_prunable(model: Any, cuts: "Sequence[LayerHeads]") -> None:
    """Raise unless heads can be cut out of every layer of a model."""
    from headscape.models.adapters.slicing import require_sliceable, shared_weights

    if len({layer.module for layer in cuts}) < len(cuts):
        raise shared_weights(model)
    require_sliceable(model, cuts)


def _plan(heads: "Heads", sites: "Sequence[AttentionSite]") -> "tuple[list[LayerHeads], Pairs]":
    """Return what every layer keeps, and the heads that were asked for but cannot go."""
    from headscape.models.adapters.slicing import LayerHeads
    from headscape.models.attention_modules import require_known_heads

    pairs = require_known_heads(heads, sites)
    if not pairs:
        raise InputError("heads must name at least one (layer, head) pair, but is empty.")
    if len(set(pairs)) < len(pairs):
        twice = sorted({pair for pair in pairs if pairs.count(pair) > 1})
        raise InputError(f"heads must name every head once, but has {listed(twice)} more than once.")
    cuts, held = [], []
    for site in sites:
        asked = [head for layer, head in pairs if layer == site.layer]
        if len(asked) == site.n_heads:
            raise InputError(
                f"a layer must keep at least one head, but all {site.n_heads} of layer {site.layer} are to go. "
                "Leave one of them out of heads."
            )
        going = removable(asked, site.n_heads, site.n_kv_heads)
        held += [(site.layer, head) for head in asked if head not in going]
        kept = tuple(head for head in range(site.n_heads) if head not in going)
        cuts.append(LayerHeads(site.layer, site.module, site.n_heads, site.n_kv_heads, kept))
    if not any(layer.removed for layer in cuts):
        site = next(site for site in sites if site.layer == pairs[0][0])
        raise InputError(
            f"none of the heads asked for can go: in layer {site.layer}, {site.n_heads} heads share "
            f"{site.n_kv_heads} key-value heads in groups of {site.n_heads // site.n_kv_heads} in a row, and a layer "
            "loses whole groups, or the same number of heads from every group. Ask for more heads."
        )
    return cuts, tuple(held)


def _original_layers(sites: "Sequence[AttentionSite]", earlier: Manifest | None) -> "tuple[LayerHeads, ...]":
    """Return the layers of the original model, with the heads of it that the model has now."""
    from headscape.models.adapters.slicing import LayerHeads

    if earlier is None:
        return tuple(
            LayerHeads(site.layer, site.module, site.n_heads, site.n_kv_heads, tuple(range(site.n_heads)))
            for site in sites
        )
    if [len(layer.kept) for layer in earlier.layers] != [site.n_heads for site in sites]:
        raise ModelError(
            "the model's config says that it was pruned, but its layers have other numbers of heads: "
            f"{[len(layer.kept) for layer in earlier.layers]} there, {[site.n_heads for site in sites]} in the "
            "model. Load it again with hs.load_pruned."
        )
    return earlier.layers


def _composed(layer: "LayerHeads", cut: "LayerHeads") -> "LayerHeads":
    """Return what is left of an original layer after one more cut, which has the present numbers."""
    return dataclasses.replace(layer, kept=tuple(layer.kept[head] for head in cut.kept))


def _new_manifest(model: Any, sites: "Sequence[AttentionSite]", layers: "tuple[LayerHeads, ...]") -> Manifest:
    """Return the manifest of a model that still has all its heads."""
    from headscape.models.loading import weights_hash
    from headscape.pruning.plain_config import head_counts

    require_prunable(model, layers)
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    now = cost(model, sites)
    return Manifest(
        model={
            # A path of this machine means nothing to others; its last part may.
            "name": Path(name).name if Path(name).is_absolute() else name,
            "class": type(model).__name__,
            "type": model.config.model_type,
            "weights_hash": weights_hash(model),
        },
        config=head_counts(model, layers[0].module),
        layers=layers,
        kept_back=(),
        repaired=(),
        savings=Savings.between(now, now),
        plain=False,
        versions=software_versions("torch", "transformers"),
    )


def write_projections(
    model: Any,
    layers: "Sequence[LayerHeads]",
    matrices: "Mapping[int, torch.Tensor]",
    biases: "Mapping[int, torch.Tensor]",
) -> None:
    """Write matrices (output, head x d) and biases (output,) into output projections, all or none.

    Parameters
    ----------
    model
        It is changed.
    layers
        Of the model.
    matrices, biases
        By layer.
    """
    from headscape.ablation.projections import OutputProjection, write
    from headscape.models.adapters.slicing import output_module

    modules = {layer.layer: OutputProjection(output_module(model, layer.module), 1) for layer in layers}
    for number in {*matrices, *biases} - set(modules):
        raise InputError(f"projections must be for layers of the model, but there is no layer {number}.")
    for layer, matrix in matrices.items():
        _require_shape("matrix", layer, matrix, modules[layer].matrix)
    for layer, bias in biases.items():
        _require_shape("bias", layer, bias, modules[layer].bias)
    for layer in {*matrices, *biases}:
        write(modules[layer], matrices.get(layer, modules[layer].matrix), biases.get(layer))


def _require_shape(name: str, layer: int, new: "torch.Tensor", present: "torch.Tensor | None") -> None:
    if present is None:
        raise InputError(
            f"the output projection of layer {layer} has no {name}, so that none can be written."
        )
    if new.shape != present.shape:
        raise InputError(
            f"the {name} of the output projection of layer {layer} must have the shape {tuple(present.shape)}, "
            f"but has {tuple(new.shape)}."
        )
