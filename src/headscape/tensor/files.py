"""Network tensors on disk: reads .npy, .npz, .safetensors and zarr, writes headscape's own store.

Nothing is trusted: no pickle is ever loaded, and a truncated or foreign file ends in one clear error.
"""

import logging
import math
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from safetensors import safe_open

from headscape.errors import FileFormatError, HeadscapeError, InputError
from headscape.tensor.network_tensor import NetworkTensor
from headscape.tensor.part import SafeFiles, advice, require_plausible_array
from headscape.tensor.safe_reading import explain_read_errors, regular_size, require_plausible
from headscape.tensor.store import HEADER, Store, content_hash, read_header

KIND = "tensor"
logger = logging.getLogger(__name__)
_READABLE = ".npy, .npz, .safetensors, or a zarr folder"


def load_tensor(
    path: str | os.PathLike[str],
    *,
    array: str | None = None,
    axes: str | None = None,
    field: str | None = None,
) -> NetworkTensor:
    """Load a network tensor from a file or folder.

    Parameters
    ----------
    path
        A .npy, .npz or .safetensors file, a zarr array or group, or a folder that :func:`save_tensor` wrote.
    array
        Which array, if the file holds several.
    axes
        The order of the axes in the file, such as "query,key,head" (the default), "head,query,key" or
        "layer,head,query,key".
    field
        What the numbers are ("probs", "logits", "energy"), if the file does not say so.
    """
    source = Path(path)
    if not os.path.isdir(source) and regular_size(source) is None:  # Path.is_dir raises for long names
        raise FileFormatError(f"{source} does not exist. Wanted: {_READABLE}.")
    if source.is_dir() and (source / HEADER).exists():
        if array is not None or axes is not None:
            raise InputError(
                "a folder that headscape wrote knows its arrays and axes: leave out array and axes."
            )
        return _load_own(source)
    raw = _read_array(source, array)
    if axes is None and raw.ndim == 3 and raw.shape[0] != raw.shape[1] == raw.shape[2]:
        raise InputError(
            f"{source} has the shape {raw.shape}, which looks like (head, query, key): specify axes='head,query,key' "
            "(--axes), or 'query,key,head' if that is the order."
        )
    labels: dict[str, Any] = {"field": field or "unknown", "provenance": {"source": source.name}}
    return NetworkTensor(raw, **labels) if axes is None else NetworkTensor.from_axes(raw, axes, **labels)


def save_tensor(tensor: NetworkTensor, path: str | os.PathLike[str]) -> None:
    """Save a network tensor with all its labels; ``load_tensor`` gives the same back."""
    parameters = {"field": tensor.field}
    with Store.create(path, KIND, parameters=parameters, input_hash=content_hash(tensor.data)) as store:
        if store.has("tensor"):
            return
        with store.writing("tensor") as part:
            part.array("data", tensor.data)
            part.attributes(
                heads=[list(pair) for pair in tensor.heads],
                tokens=None if tensor.tokens is None else list(tensor.tokens),
                key_tokens=None if tensor.key_tokens is None else list(tensor.key_tokens),
                field=tensor.field,
                provenance=dict(tensor.provenance),
            )


def _load_own(source: Path) -> NetworkTensor:
    kind = str(read_header(source).get("format")).split("/")[1:2]
    if kind != [KIND]:
        what = kind[0] if kind else "folder of an unknown kind"
        raise FileFormatError(f"{source} holds a headscape {what}, but a network tensor is wanted here.")
    part = Store.open(source, KIND).read("tensor")
    with explain_read_errors(part.path, advice(part.path)):
        values = part.attributes
        return NetworkTensor(
            part.array("data"),
            heads=[(layer, head) for layer, head in values["heads"]],
            tokens=values["tokens"],
            key_tokens=values["key_tokens"],
            field=values["field"],
            provenance=values["provenance"],
        )


def _read_array(source: Path, name: str | None) -> NDArray[Any]:
    suffix = source.suffix.lower()
    readers = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors}
    reader = _read_zarr if source.is_dir() else readers.get(suffix)
    if reader is None:
        raise FileFormatError(f"{source} has the unknown ending {suffix or '(none)'!r}. Wanted: {_READABLE}.")
    with warnings.catch_warnings():
        # Readers warn about what they then refuse, or about old files that they read well.
        warnings.simplefilter("ignore")
        try:
            return reader(source, name)
        except HeadscapeError:
            raise
        except Exception as error:  # headers from elsewhere make readers fail in any way
            if isinstance(error, MemoryError) and error.args:
                raise  # numpy says how much it wanted; a parser that gives up says nothing
            raise FileFormatError(_damaged(source, error)) from error


def _read_npy(source: Path, name: str | None) -> NDArray[Any]:
    """Map the file into memory: a shape that exceeds it is refused before memory is taken."""
    if name is not None:
        raise InputError(f"a .npy file holds one array without a name: leave out array={name!r}.")
    return np.asarray(np.lib.format.open_memmap(source, mode="r"))


def _read_npz(source: Path, name: str | None) -> NDArray[Any]:
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with zipfile.ZipFile(source) as archive:
        names = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
        member = archive.getinfo(_choose(source, names, name) + ".npy")
        require_plausible(member.file_size, min(member.compress_size, source.stat().st_size), source)
        with archive.open(member) as file:
            shape, _, dtype = headers[np.lib.format.read_magic(file)](file)
            wanted = math.prod(shape) * dtype.itemsize
            if wanted != member.file_size - file.tell() and not dtype.hasobject:
                raise ValueError(f"shape {shape} of {dtype} does not fit {member.file_size} bytes")
        with archive.open(member) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _read_safetensors(source: Path, name: str | None) -> NDArray[Any]:
    with safe_open(source, framework="numpy") as file:
        chosen = _choose(source, list(file.keys()), name)
        try:
            return np.asarray(file.get_tensor(chosen))
        except (TypeError, AttributeError) as error:
            raise FileFormatError(
                f"{source} holds a dtype that numpy lacks ({error}). Save it as float32 or float16."
            ) from error


def _read_zarr(source: Path, name: str | None) -> NDArray[Any]:
    found = zarr.open(SafeFiles(source), mode="r")
    folder = source
    if isinstance(found, zarr.Group):
        folder = source / _choose(source, sorted(found.array_keys()), name)
        found = found[folder.name]
    elif name is not None:
        raise InputError(f"{source} is one zarr array without a name: leave out array={name!r}.")
    if not isinstance(found, zarr.Array):
        raise FileFormatError(f"{folder} is not a zarr array.")
    n_chunks, n_files = require_plausible_array(found, folder)
    if found.shards is None and n_files < n_chunks:
        logger.warning(
            "%s: %d of %d chunks are absent and read as %s",
            folder, n_chunks - n_files, n_chunks, found.fill_value,
        )  # fmt: skip
    return np.asarray(found[...])


def _choose(source: Path, names: list[str], wish: str | None) -> str:
    have = ", ".join(names[:8]) or "none"
    if wish is not None:
        if wish not in names:
            raise InputError(f"{source} has no array {wish!r}; it has: {have}.")
        return wish
    if not names:
        raise FileFormatError(f"{source} holds no array. Wanted: {_READABLE}.")
    if len(names) != 1:
        raise InputError(
            f"{source} holds {len(names)} arrays ({have}): say which one with array=NAME (--array)."
        )
    return names[0]


def _damaged(source: Path, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Object arrays" in str(error) or "Python objects" in str(error):
        return (
            f"{source} holds Python objects, which headscape never loads. Save a plain numeric array: "
            "np.save(path, array.astype('float32'))."
        )
    what = str(error)[:300] or type(error).__name__
    if source.is_dir():
        return f"{source} is not a readable zarr array or group ({what})."
    return f"{source} is damaged, truncated, or not what its ending says ({what}). Wanted: {_READABLE}."
