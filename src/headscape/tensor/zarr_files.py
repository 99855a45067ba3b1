"""Arrays and groups as files of the zarr v3 format.

zarr reads them like its own. Its own writer takes milliseconds for every chunk, whatever the size, which for captures
(one chunk per head) is longer than the forward pass that is stored.
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import google_crc32c
import numpy as np
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from headscape.errors import InputError

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
    yield METADATA, _array_metadata(data, chunks)
    counts = [math.ceil(n / size) for n, size in zip(data.shape, chunks, strict=True)]
    for place in np.ndindex(*counts):
        cut = tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, chunks, strict=True))
        content = _filled(data[cut], chunks)
        if content.any():
            yield ".".join(["c", *map(str, place)]), _encoded(content)


def group_file(attributes: Mapping[str, Any]) -> bytes:
    """Return the metadata of a group with these attributes."""
    return _json({"attributes": dict(attributes), "zarr_format": 3, "node_type": "group"})


def _array_metadata(data: NDArray[Any], chunks: tuple[int, ...]) -> bytes:
    order = {"configuration": {"endian": "little"}} if data.dtype.itemsize > 1 else {}
    return _json(
        {
            "shape": list(data.shape),
            "data_type": data.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": data.dtype.type(0).item(),
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


@cache
def _compressor() -> Any:
    return Zstd(level=_LEVEL)


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, indent=2).encode()
