"""What the sources of a comparison are called, and what is known of them."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from headscape.errors import InputError
from headscape.models.loading import Model
from headscape.output import json_ready
from headscape.study.compared_source import Heads
from headscape.study.source import Source
from headscape.study.study import Study
from headscape.tensor.digests import content_hash, json_digest
from headscape.tensor.tensor_windows import TensorWindows


def source_names(
    opened: Sequence[Source], given: Sequence[str] | None, how: Sequence[tuple[Any, Collection[int] | None]]
) -> tuple[str, ...]:
    """Return a different name for every network: as given, or of its model, its text and its layers."""
    if given is not None:
        if len(given) != len(opened) or len(set(given)) != len(given) or not all(given):
            raise InputError(f"names must be {len(opened)} different names, but are {list(given)}.")
        return tuple(map(str, given))
    titles = [_title(source) for source in opened]
    if len(set(titles)) < len(titles):
        titles = [_detailed(title, *one) for title, one in zip(titles, how, strict=True)]
    counts, seen, names = Counter(titles), Counter[str](), []
    for title in titles:
        seen[title] += 1
        names.append(f"{title} ({seen[title]})" if counts[title] > 1 else title)
    return tuple(names)


def _title(source: Source) -> str:
    if isinstance(source, Model | Study):
        title = source.title
        if isinstance(source, Study) and source.folder is not None and title == "attention heads":
            title = source.folder.name
    else:
        title = str(
            source.provenance.get("model", {}).get("name") or source.provenance.get("source") or "tensors"
        )
    return Path(title).name if os.sep in title and Path(title).exists() else title


def _detailed(title: str, inputs: Any, layers: Collection[int] | None) -> str:
    """Return a title with the text and the layers, where those were given."""
    words = []
    if isinstance(inputs, os.PathLike) or (
        isinstance(inputs, str) and len(inputs) < 200 and Path(inputs).exists()
    ):
        words.append(Path(inputs).name)
    if layers is not None:
        limits = sorted(map(int, layers))
        words.append(f"layers {limits[0]}-{limits[-1]}")
    return f"{title}, {', '.join(words)}" if words else title


def source_hash(source: Source) -> str:
    """Return a hash of a model's weights, of what a study found, or of the windows that a source has."""
    if isinstance(source, Model):
        return str(source.provenance()["weights_hash"])
    if isinstance(source, Study):
        # Its input alone would not do: two models may have read the same text.
        found = content_hash(*(organization.emd["head"] for organization in source.organizations))
        about = {"input": source.about.get("input_hash", ""), "options": source.options, "geometry": found}
        return json_digest(json_ready({**source.parameters, **about}))
    known = (
        source.input_hash if isinstance(source, TensorWindows) else source.provenance.get("input_hash", "")
    )
    return str(known)


def about_source(source: Source, study: Study) -> dict[str, Any]:
    """Return what is known of a network, as JSON can hold it."""
    provenance = study.data.provenance
    model = provenance.get("model", {})
    kind = {Model: "model", Study: "study", TensorWindows: "tensors"}.get(type(source), "capture")
    shape = study.organizations[0].order
    texts = provenance.get("sources") or []
    return {
        "kind": kind,
        "title": study.title,
        "type": model.get("type"),
        "class": model.get("class"),
        "windows": study.windows,
        "length": len(shape["query"]),
        "field": study.parameters["field"],
        "stack": study.data.stack,
        "texts": list(dict.fromkeys(str(text) for text in texts if text)),
        "license": study.about.get("license", "not stated"),
        "study": None if study.folder is None else str(study.folder),
        "removed": model.get("removed_heads", []),
    }


def original_heads(study: Study, about: Mapping[str, Any]) -> Heads:
    """Return the heads of a pruned model in the numbers of the original."""
    gone = {(layer, head) for layer, head in about["removed"]}
    kept: dict[int, list[int]] = {}
    for layer, _ in study.data.heads:
        total = sum(one == layer for one, _ in (*study.data.heads, *gone))
        kept[layer] = [head for head in range(total) if (layer, head) not in gone]
    return tuple((layer, kept[layer][head] if gone else head) for layer, head in study.data.heads)
