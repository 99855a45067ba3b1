"""Digests: of arrays that a run is given, and of the files that it writes."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def content_hash(*arrays: NDArray[Any]) -> str:
    """Return a hash of the bytes, shapes and dtypes of arrays, the same on every machine.

    Examples
    --------
    >>> content_hash(np.zeros(3)) == content_hash(np.zeros(4))
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{little.dtype.str}{little.shape}".encode())
        for row in np.atleast_1d(little):
            digest.update(np.ascontiguousarray(row).data)
    return digest.hexdigest()


def file_digest(key: str, data: Any) -> str:
    """Return a digest of bytes and of the place to which they belong."""
    digest = hashlib.blake2b(key.encode() + b"\0", digest_size=16)
    digest.update(data)
    return digest.hexdigest()


def json_digest(values: Mapping[str, Any]) -> str:
    """Return a digest of a JSON object, all but its own entry "digest"."""
    content = {name: value for name, value in values.items() if name != "digest"}
    return file_digest("", json.dumps(content, sort_keys=True).encode())
