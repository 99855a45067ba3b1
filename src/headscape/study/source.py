"""What a command or a function is given, opened in one place: a model, a capture, a study, or tensors."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headscape.errors import FileFormatError, InputError
from headscape.models.loading import Model, as_model, load_model
from headscape.study.study import Study
from headscape.tensor.capture import Capture
from headscape.tensor.files import load_tensor
from headscape.tensor.network_tensor import FIELDS, NetworkTensor
from headscape.tensor.store import HEADER, read_header
from headscape.tensor.synthetic import planted_tensor
from headscape.tensor.tensor_windows import Loader, TensorWindows

Source = Model | Capture | TensorWindows | Study

SYNTHETIC = "synthetic"
MODEL, TENSOR = "model", "tensor"
TENSOR_ENDINGS = (".npy", ".npz", ".safetensors", ".zarr")


def open_source(
    source: Any,
    *,
    array: str | None = None,
    axes: str | None = None,
    field: str | None = None,
    tokenizer: Any = None,
    load: Mapping[str, Any] | None = None,
) -> Source:
    """Open whatever an analysis can start from.

    Parameters
    ----------
    source
        A model (a name, a folder, a .gguf file, a pruned model, or a loaded one), a capture, a study, or a tensor
        (a .npy, .npz, .safetensors or zarr file, an array, the word "synthetic"), as a path or as an object; or a
        list of tensors, one per window.
    array, axes, field
        Of tensor files, as for :func:`headscape.load_tensor`.
    tokenizer
        For a model that is loaded already.
    load
        How a model is loaded, as for :func:`headscape.load_model`.

    Returns
    -------
    Model, Capture, TensorWindows or Study

    Examples
    --------
    >>> open_source(np.ones((4, 4, 2)))
    TensorWindows(1 windows, 2 heads, field='unknown')
    >>> open_source("synthetic")
    TensorWindows(1 windows, 48 heads, field='synthetic')
    """
    require_field(field)
    tensor_options = {"array": array, "axes": axes, "field": field}
    if isinstance(source, Model | Capture | TensorWindows | Study):
        return source if tokenizer is None else as_model(source, tokenizer)
    if isinstance(source, NetworkTensor | np.ndarray):
        return TensorWindows([_tensor(source, axes, field)])
    if isinstance(source, str | os.PathLike):
        return _open_path(source, tensor_options, tokenizer, load or {})
    if isinstance(source, Sequence) and source:
        return TensorWindows([_window(one, tensor_options) for one in source])
    # What hs.prune returns holds its model; a language model also has a .model, its body.
    return as_model(source if hasattr(source, "forward") else getattr(source, "model", source), tokenizer)


def _open_path(
    path: str | os.PathLike[str], tensor_options: dict[str, Any], tokenizer: Any, load: Mapping[str, Any]
) -> Source:
    place = Path(path)
    if str(path) == SYNTHETIC:
        return TensorWindows([planted_tensor()])
    kind = source_kind(path)
    if kind == "capture":
        return Capture.load(place)
    if kind == "study":
        return Study.load(place)
    if kind == TENSOR:
        return TensorWindows([load_tensor(place, **tensor_options)], {"source": place.name})
    return as_model(load_model(path, **load), tokenizer)


def kind_of(path: Path) -> str:
    """Return the kind of a folder that headscape wrote, such as "capture"; empty for anything else."""
    if not (path / HEADER).is_file():
        return ""
    words = str(read_header(path).get("format")).split("/")
    return words[1] if len(words) == 3 else ""


def source_kind(path: str | os.PathLike[str]) -> str:
    """Return what a path names, without loading it: "model", "capture", "study" or "tensor".

    Examples
    --------
    >>> source_kind("default"), source_kind("attention.npy"), source_kind("synthetic")
    ('model', 'tensor', 'tensor')
    """
    place = Path(path)
    kind = kind_of(place)
    if kind not in ("", "capture", "study", TENSOR):
        raise FileFormatError(
            f"{place} holds a headscape {kind}: expected a model, a capture, a study or a tensor."
        )
    tensor = str(path) == SYNTHETIC or place.suffix.lower() in TENSOR_ENDINGS
    return kind or (TENSOR if tensor else MODEL)


def require_field(field: str | None) -> None:
    """Raise unless a field is a plain word: it names what the numbers are, and is part of file names."""
    if field is not None and not re.fullmatch("[A-Za-z_]{1,32}", field):
        raise InputError(
            f"field must be {', '.join(FIELDS)}, or for tensors another plain word, but is {field!r}."
        )


def require_model(source: Source, what: str) -> Model:
    """Return a source that is a model, or raise: captures, studies and tensors hold no weights."""
    if isinstance(source, Model):
        return source
    name = {Capture: "a capture", Study: "a study", TensorWindows: "a tensor"}[type(source)]
    raise InputError(f"{what} runs the model, but got {name}, which holds no weights: pass the model.")


def _window(one: Any, options: dict[str, Any]) -> NetworkTensor | Loader:
    if isinstance(one, str | os.PathLike):
        place = Path(one)
        if kind_of(place) not in ("", "tensor"):
            raise InputError(f"several sources must be tensors, one per window, but {place} is not a tensor.")
        return lambda: load_tensor(place, **options)
    return _tensor(one, options["axes"], options["field"])


def _tensor(x: Any, axes: str | None, field: str | None) -> NetworkTensor:
    if isinstance(x, NetworkTensor):
        return x
    name = field or "unknown"
    return NetworkTensor(x, field=name) if axes is None else NetworkTensor.from_axes(x, axes, field=name)
