"""Network tensors on disk: reads .npy, .npz, .safetensors and zarr, writes headscape's own store.

Nothing is trusted: no pickle is ever loaded, and a truncated or foreign file ends in one clear error.
"""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import FileFormatError, InputError
from headscape.tensor.network_tensor import LAYER_AXES, NetworkTensor
from headscape.tensor.store import HEADER, Store, content_hash, read_header

KIND = "tensor"
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
    if not source.exists():
        raise FileFormatError(f"{source} does not exist. Wanted: {_READABLE}.")
    if source.is_dir() and (source / HEADER).exists():
        if array is not None or axes is not None:
            raise InputError(
                "a folder that headscape wrote knows its arrays and axes: leave out array and axes."
            )
        return _load_own(source)
    raw = _read_array(source, array)
    labels: dict[str, Any] = {"field": field or "unknown", "provenance": {"source": source.name}}
    return _arrange(raw, axes, labels)


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
    values = part.attributes
    return NetworkTensor(
        part.array("data"),
        heads=[(layer, head) for layer, head in values["heads"]],
        tokens=values["tokens"],
        key_tokens=values["key_tokens"],
        field=values["field"],
        provenance=values["provenance"],
    )


def _arrange(raw: NDArray[Any], axes: str | None, labels: dict[str, Any]) -> NetworkTensor:
    """Bring an array with the named order of axes into (query, key[, head])."""
    if axes is None:
        return NetworkTensor(raw, **labels)
    names = tuple(word.strip() for word in axes.split(","))
    wanted = {2: {"query", "key"}, 3: {"query", "key", "head"}, 4: set(LAYER_AXES)}.get(len(names))
    if wanted is None or set(names) != wanted:
        raise InputError(
            f"axes must name query and key, and head, and layer, each at most once (for example "
            f"'layer,head,query,key'), but is {axes!r}."
        )
    if raw.ndim != len(names):
        raise InputError(f"axes {axes!r} names {len(names)} axes, but the array has shape {raw.shape}.")
    if len(names) == 4:
        return NetworkTensor.from_layers(raw.transpose([names.index(a) for a in LAYER_AXES]), **labels)
    order = [names.index(a) for a in ("query", "key", "head")[: len(names)]]
    return NetworkTensor(np.ascontiguousarray(raw.transpose(order)), **labels)


def _read_array(source: Path, name: str | None) -> NDArray[Any]:
    suffix = source.suffix.lower()
    if source.is_dir():
        return _read_zarr(source, name)
    readers = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors}
    if suffix not in readers:
        raise FileFormatError(f"{source} has the unknown ending {suffix or '(none)'!r}. Wanted: {_READABLE}.")
    return readers[suffix](source, name)


def _read_npy(source: Path, name: str | None) -> NDArray[Any]:
    if name is not None:
        raise InputError(f"a .npy file holds one array without a name: leave out array={name!r}.")
    try:
        return np.asarray(np.load(source, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise FileFormatError(_damaged(source, error)) from error


def _read_npz(source: Path, name: str | None) -> NDArray[Any]:
    try:
        with np.load(source, allow_pickle=False) as archive:
            return np.asarray(archive[_choose(source, list(archive.files), name)])
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        if isinstance(error, (FileFormatError, InputError)):
            raise
        raise FileFormatError(_damaged(source, error)) from error


def _read_safetensors(source: Path, name: str | None) -> NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(source, framework="numpy") as file:
            return np.asarray(file.get_tensor(_choose(source, list(file.keys()), name)))
    except TypeError as error:
        raise FileFormatError(
            f"{source} holds a dtype that numpy lacks ({error}). Save it as float32 or float16."
        ) from error
    except (SafetensorError, OSError) as error:
        raise FileFormatError(_damaged(source, error)) from error


def _read_zarr(source: Path, name: str | None) -> NDArray[Any]:
    import zarr

    try:
        found = zarr.open(source, mode="r")
        if isinstance(found, zarr.Group):
            found = found[_choose(source, sorted(found.array_keys()), name)]
        elif name is not None:
            raise InputError(f"{source} is one zarr array without a name: leave out array={name!r}.")
        return np.asarray(found[...])  # type: ignore[index]
    except (FileNotFoundError, ValueError, KeyError, OSError, RuntimeError) as error:
        if isinstance(error, (FileFormatError, InputError)):
            raise
        raise FileFormatError(f"{source} is no readable zarr array or group ({error}).") from error


def _choose(source: Path, names: list[str], wish: str | None) -> str:
    have = ", ".join(names[:8]) or "none"
    if wish is not None:
        if wish not in names:
            raise InputError(f"{source} has no array {wish!r}; it has: {have}.")
        return wish
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
    return f"{source} is damaged, truncated, or not what its ending says ({error}). Wanted: {_READABLE}."
