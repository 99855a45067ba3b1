"""Arrays and groups as files of the zarr v3 format.

zarr reads them like its own. Its own writer takes milliseconds for every chunk, whatever the size, which for captures
(one chunk per head) is longer than the forward pass that is stored; its reader takes as long for every array.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import google_crc32c
import numpy as np
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from headscape.errors import FileFormatError, InputError

METADATA = "zarr.json"
_LEVEL = 1


def array_files(data: NDArray[Any], chunks: tuple[int, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an array by their path within its folder: the metadata, then every chunk that is not zero.

    Chunks are in C order, compressed by zstd, with a CRC-32C at the end; those at the edges are filled up with zeros.
    Their names have no slashes: a folder for each would take longer to make than the file.

    Parameters
    ----------
    data
        Numbers or booleans.
    chunks
        The shape of a chunk, one length per axis.

    References
    ----------
    Zarr core specification, version 3; codecs "bytes", "zstd" and "crc32c".

    Examples
    --------
    >>> [path for path, _ in array_files(np.ones((4, 3)), (2, 3))]
    ['zarr.json', 'c.0.0', 'c.1.0']
    """
    if data.dtype.kind not in "biuf":
        raise InputError(f"only numbers and booleans are stored as arrays, but the dtype is {data.dtype}.")
    yield METADATA, _array_metadata(data.shape, data.dtype, chunks)
    counts = [math.ceil(n / size) for n, size in zip(data.shape, chunks, strict=True)]
    for place in np.ndindex(*counts):
        cut = tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, chunks, strict=True))
        content = _filled(data[cut], chunks)
        if content.any():
            yield _chunk_name(place), _encoded(content)


def read_array(
    metadata: bytes, content: Callable[[str], bytes | None], rows: slice = slice(None)
) -> NDArray[Any] | None:
    """Return neighboring slices of an array along its first axis, or None unless :func:`array_files` wrote it.

    Parameters
    ----------
    metadata
        The file of that name.
    content
        Returns the content of another file of the array by its path, None if there is none.
    rows
        Which slices; of an array without axes all there is.

    Examples
    --------
    >>> files = dict(array_files(np.arange(6.0).reshape(3, 2), (2, 2)))
    >>> read_array(files["zarr.json"], files.get, slice(1, 3)).tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """
    described = json.loads(metadata)
    try:
        shape, dtype = tuple(described["shape"]), np.dtype(described["data_type"])
        chunks = tuple(described["chunk_grid"]["configuration"]["chunk_shape"])
        ours = _array_metadata(shape, dtype, chunks) == metadata
    except (KeyError, TypeError, ValueError):
        ours = False
    if not ours or rows.step not in (None, 1):
        return None
    starts, stops = [0] * len(shape), list(shape)
    if shape:
        starts[0], stops[0], _ = rows.indices(shape[0])
    found = np.zeros([max(0, b - a) for a, b in zip(starts, stops, strict=True)], dtype=dtype)
    touched = [range(a // c, math.ceil(b / c)) for a, b, c in zip(starts, stops, chunks, strict=True)]
    for place in itertools.product(*touched) if found.size else ():
        packed = content(_chunk_name(place))
        if packed is not None:
            begins = [i * size for i, size in zip(place, chunks, strict=True)]
            block = _decoded(packed, dtype, chunks)
            ends = zip(begins, starts, stops, chunks, strict=True)
            cuts = [(max(a, begin), min(b, begin + size)) for begin, a, b, size in ends]
            target = tuple(slice(low - a, high - a) for (low, high), a in zip(cuts, starts, strict=True))
            source = tuple(slice(low - b, high - b) for (low, high), b in zip(cuts, begins, strict=True))
            found[target] = block[source]
    return found


def group_file(attributes: Mapping[str, Any]) -> bytes:
    """Return the metadata of a group with these attributes."""
    return _json({"attributes": dict(attributes), "zarr_format": 3, "node_type": "group"})


def _chunk_name(place: tuple[int, ...]) -> str:
    return ".".join(["c", *map(str, place)])


def _array_metadata(shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]) -> bytes:
    order = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    return _json(
        {
            "shape": list(shape),
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": dtype.type(0).item(),
            "codecs": [
                {"name": "bytes", **order},
                {"name": "zstd", "configuration": {"level": _LEVEL, "checksum": False}},
                {"name": "crc32c"},
            ],
            "attributes": {},
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }
    )


def _filled(block: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the bytes of one chunk, little-endian, before they are encoded."""
    if block.shape != shape:
        whole = np.zeros(shape, dtype=block.dtype)
        whole[tuple(map(slice, block.shape))] = block
        block = whole
    little = block.astype(block.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8)


def _encoded(content: NDArray[np.uint8]) -> bytes:
    packed = bytes(_compressor().encode(content))
    checksum: int = google_crc32c.value(packed)
    return packed + checksum.to_bytes(4, "little")


def _decoded(packed: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    content, checksum = packed[:-4], int.from_bytes(packed[-4:], "little")
    if google_crc32c.value(content) != checksum:
        raise FileFormatError("the checksum of a chunk is not that of its content.")
    return np.frombuffer(_compressor().decode(content), dtype=dtype.newbyteorder("<")).reshape(shape)


@cache
def _compressor() -> Any:
    return Zstd(level=_LEVEL)


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=2).encode()
