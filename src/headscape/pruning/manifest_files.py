"""A manifest in a folder of its own: whoever has the original weights makes the same pruned model from it.

OUT/
manifest.json            which heads of which model are gone
repaired.safetensors     the output projections that were re-fitted, if any: NUMBER.weight, NUMBER.bias
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headscape.errors import FileFormatError, InputError, ModelError
from headscape.models.adapters.protocol import LayerHeads
from headscape.models.anatomy import AttentionModule, attention_modules, of_stack
from headscape.models.lazy_torch import torch
from headscape.models.loading import as_model, weights_hash
from headscape.pruning.manifest import Manifest, manifest_of
from headscape.pruning.pruned import Pruned
from headscape.pruning.pruned_files import system_errors
from headscape.pruning.removal import after_cut, copied, cut, require_removable, write_projections
from headscape.pruning.savings import Savings, cost
from headscape.tensor.safe_reading import read_json_object, regular_size
from headscape.tensor.store import explain_write_errors, write_text_atomically

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
REPAIRED = "repaired.safetensors"


def export_manifest(pruned: Pruned, folder: str | os.PathLike[str]) -> Path:
    """Write the manifest of a pruned model, with the projections that were re-fitted.

    Parameters
    ----------
    pruned
        What :func:`prune` or :func:`load_pruned` returned.
    folder
        Made if it does not exist; a manifest in it is replaced.

    Returns
    -------
    Path
        The folder.

    Notes
    -----
    Only the removal and the repair are described: a model that was trained further is not.
    """
    from safetensors.torch import save_file

    path = Path(folder)
    tensors = _repaired_projections(pruned)
    partial = path / f".partial-{uuid.uuid4().hex[:8]}-{REPAIRED}"
    with explain_write_errors(path), system_errors():
        path.mkdir(parents=True, exist_ok=True)
        try:
            if tensors:
                save_file(tensors, partial)
                partial.replace(path / REPAIRED)
            else:
                (path / REPAIRED).unlink(missing_ok=True)
        finally:
            partial.unlink(missing_ok=True)
    write_text_atomically(path / MANIFEST, json.dumps(pruned.manifest.to_dict(), indent=2) + "\n")
    return path


def apply_manifest(model: Any, folder: str | os.PathLike[str], *, in_place: bool = False) -> Pruned:
    """Make the pruned model that a manifest describes from the original weights.

    Parameters
    ----------
    model
        The original model, or its name. Weights other than those the manifest was made from are logged as a
        warning, and the heads are removed all the same.
    folder
        That :func:`export_manifest` wrote.
    in_place
        Change the model itself instead of a copy.

    Returns
    -------
    Pruned
        With the same weights, bit by bit, as the model that was exported.
    """
    path, source = Path(folder), as_model(model)
    manifest = _read_manifest(path)
    modules = of_stack(source.modules())
    layers = _fitted_layers(modules, manifest, path)
    if weights_hash(source.model) != manifest.model.get("weights_hash"):
        logger.warning(
            "the manifest in %s was made from other weights (%s), or from another class, than this %s",
            path,
            manifest.model.get("name"),
            type(source.model).__name__,
        )
    matrices, biases = _read_projections(path, manifest) if manifest.repaired else ({}, {})
    now = cost(modules)
    own = replace(manifest, layers=layers, savings=Savings.between(now, now))
    target = copied(source, modules, in_place)
    pruned = cut(target, layers, own)
    try:
        write_projections(after_cut(target, layers), matrices, biases)
    except InputError as error:
        raise FileFormatError(f"{path / REPAIRED} does not fit the model: {error}") from error
    return pruned


def _repaired_projections(pruned: Pruned) -> dict[str, torch.Tensor]:
    """Return the present output projections of the layers that were repaired."""
    tensors: dict[str, torch.Tensor] = {}
    for module in of_stack(attention_modules(pruned.model)) if pruned.manifest.repaired else ():
        if module.layer in pruned.manifest.repaired:
            projection = module.output
            tensors[f"{module.layer}.weight"] = projection.matrix.detach().cpu().contiguous()
            if projection.bias is not None:
                tensors[f"{module.layer}.bias"] = projection.bias.detach().cpu().contiguous()
    return tensors


def _read_manifest(path: Path) -> Manifest:
    values = read_json_object(path / MANIFEST, path)
    if values is None:
        raise FileFormatError(
            f"{path} is not the manifest of a pruned model: it has no {MANIFEST}. Give a folder that "
            "hs.export_manifest wrote."
        )
    regular_size(path / REPAIRED, path.resolve())
    return Manifest.from_dict(values, path / MANIFEST)


def _read_projections(
    path: Path, manifest: Manifest
) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    """Return the matrices and biases of the repaired layers."""
    from safetensors.torch import load_file

    try:
        found = load_file(path / REPAIRED)
        matrices = {layer: found[f"{layer}.weight"] for layer in manifest.repaired}
    except (OSError, SafetensorError, KeyError) as error:
        raise FileFormatError(
            f"{path / REPAIRED} is missing or damaged ({error}), but the manifest says that projections were fitted "
            "anew. Export it again."
        ) from error
    biases = {layer: found[f"{layer}.bias"] for layer in matrices if f"{layer}.bias" in found}
    return matrices, biases


def _fitted_layers(
    modules: Sequence[AttentionModule], manifest: Manifest, path: Path
) -> tuple[LayerHeads, ...]:
    """Return the manifest's layers with the names that the modules have in this model."""
    model = modules[0].model
    if manifest_of(model) is not None:
        raise ModelError(
            "a manifest is applied to the original model, but this one was pruned already. Load the original weights."
        )
    wanted = [(layer.layer, layer.n_heads, layer.n_kv_heads) for layer in manifest.layers]
    found = [(module.layer, module.n_heads, module.n_kv_heads) for module in modules]
    if wanted != found:
        raise ModelError(
            f"the manifest in {path} is for {_shape(wanted)}, but this {type(model).__name__} has {_shape(found)}. "
            f"Give the original model, {manifest.model.get('name')}."
        )
    require_removable(modules)
    return tuple(
        replace(layer, module=module.name) for layer, module in zip(manifest.layers, modules, strict=True)
    )


def _shape(layers: list[tuple[int, int, int]]) -> str:
    return f"{len(layers)} layers of {max(heads for _, heads, _ in layers)} heads"
