"""One part of a store: a zarr group, and a marker that lists every file of it.

    parts/NAME/zarr.json       attributes of the part
    parts/NAME/ARRAY/...       one zarr array each: zarr.json and chunks
    parts/NAME/part.json       the marker: NAME, arrays (shape, dtype, number of chunks), files (size, digest)

zarr takes a chunk that is missing for one full of zeros. Hence the marker: every file that is read must be in it
with the same size and a digest of its name and bytes, so that none is lost, changed or exchanged for another one.
Only what is read is verified: one head of a window costs no more than its own chunks.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore, WrapperStore

from headscape.errors import FileFormatError
from headscape.tensor.digests import file_digest, json_digest
from headscape.tensor.safe_reading import (
    explain_read_errors,
    read_json_object,
    regular_size,
    require_plausible,
)
from headscape.tensor.zarr_files import METADATA, array_files, group_file, read_array

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

MARKER = "part.json"
_FORMAT = "headscape/part/1"
_CHUNK_BYTES = 1 << 24
# More chunks than this per file that is there are an invention of the metadata.
_CHUNKS_PER_FILE = 1000

Files = Mapping[str, tuple[int, str]]
"""The files of a part by their key (the path within it): size and digest."""


class SafeFiles(WrapperStore[LocalStore]):
    """The files of a folder as zarr reads them: regular files within the folder, verified if they are listed."""

    def __init__(self, folder: Path, files: Files | None = None, remedy: str = "") -> None:
        super().__init__(LocalStore(folder, read_only=True))
        self._folder, self._resolved = folder, folder.resolve()
        self._files, self._remedy = files, remedy

    async def get(
        self, key: str, prototype: "BufferPrototype", byte_range: "ByteRequest | None" = None
    ) -> "Buffer | None":
        """Return the bytes of a file, None if there is none and none is listed."""
        if self._files is None:
            self._size(key)
            return await super().get(key, prototype, byte_range)
        found = self.listed(key)
        return None if found is None else prototype.buffer.from_bytes(found)

    def listed(self, key: str) -> bytes | None:
        """Return the verified bytes of a file that is listed, None for any other."""
        size, known = self._size(key), (self._files or {}).get(key)
        if known is None:
            return None
        if size != known[0]:
            raise self._damaged(key, "is missing" if size is None else f"has {size} bytes, not {known[0]}")
        found = (self._folder / key).read_bytes()
        if file_digest(key, found) != known[1]:
            raise self._damaged(key, "is not what was written")
        return found

    def _size(self, key: str) -> int | None:
        """Return the size of a file, or raise unless it is a regular one within the folder."""
        try:
            return regular_size(self._folder / key, self._resolved)
        except FileFormatError as error:
            raise FileFormatError(f"{error} {self._remedy}".rstrip()) from None

    def _damaged(self, key: str, what: str) -> FileFormatError:
        return FileFormatError(f"{self._folder} is damaged: {key} {what}. {self._remedy}")


def advice(part: Path) -> str:
    """Say how a damaged part is replaced."""
    return (
        f"Delete the folder {part} and run the command that wrote it again: only this part is computed again."
    )


@dataclass(frozen=True)
class PartWriter:
    """Takes the arrays and attributes of one part while it is being written."""

    folder: Path
    name: str
    _arrays: dict[str, dict[str, Any]] = field(default_factory=dict)
    _attributes: dict[str, Any] = field(default_factory=dict)
    _files: dict[str, tuple[int, str]] = field(default_factory=dict)

    def array(self, name: str, data: NDArray[Any], chunks: tuple[int, ...] | None = None) -> None:
        """Write one array, compressed, with a checksum on every chunk."""
        data = np.asarray(data, order="C")
        before = len(self._files)
        for path, content in array_files(data, chunks or _default_chunks(data.shape, data.itemsize)):
            self._write(f"{name}/{path}", content)
        written = len(self._files) - before - 1  # without the metadata
        self._arrays[name] = {"shape": list(data.shape), "dtype": str(data.dtype), "chunks": written}

    def attributes(self, **values: Any) -> None:
        """Add attributes: anything JSON can hold."""
        self._attributes.update(values)

    def finish(self) -> None:
        """Write the attributes and the marker: the part is complete."""
        self._write(METADATA, group_file(self._attributes))
        marker: dict[str, Any] = {
            "format": _FORMAT,
            "name": self.name,
            "arrays": self._arrays,
            "files": self._files,
        }
        text = json.dumps({**marker, "digest": json_digest(marker)}, sort_keys=True)
        (self.folder / MARKER).write_text(text, encoding="utf-8")

    def _write(self, key: str, content: bytes) -> None:
        """Write a file, and note its size and digest for the marker."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
        self._files[key] = (len(content), file_digest(key, content))


@dataclass(frozen=True)
class Part:
    """A finished part: arrays are read, and verified, when they are indexed."""

    path: Path
    files: SafeFiles
    group: zarr.Group
    arrays: Mapping[str, Mapping[str, Any]] | None
    """What the marker says of the arrays; None if there is no marker."""

    @classmethod
    def open(cls, path: Path) -> "Part":
        """Open a finished part; its attributes are read and verified."""
        with explain_read_errors(path, advice(path)):
            try:
                marker = read_json_object(path / MARKER, path)
            except FileFormatError as error:
                raise FileFormatError(f"{error} {advice(path)}") from None
            if marker is not None and (marker["format"], marker["digest"]) != (_FORMAT, json_digest(marker)):
                raise FileFormatError(f"{path} is damaged: {MARKER} is not what was written. {advice(path)}")
            if marker is not None and marker.get("name", path.name) != path.name:
                raise FileFormatError(
                    f"{path} is damaged: it holds the part {marker['name']!r}. {advice(path)}"
                )
            files = SafeFiles(path, None if marker is None else marker["files"], advice(path))
            group = zarr.open_group(files, mode="r", zarr_format=3)
            return cls(path, files, group, None if marker is None else marker["arrays"])

    def verify(self) -> None:
        """Raise unless every file that the marker lists is there, unchanged."""
        marker = read_json_object(self.path / MARKER, self.path) or {"files": {}}
        for key, (size, digest) in marker["files"].items():
            file = self.path / key
            with explain_read_errors(file, advice(self.path)):
                there = regular_size(file, self.path.resolve()) == size
                data = file.read_bytes() if there else None
                if data is None or (len(data), file_digest(key, data)) != (size, digest):
                    raise FileFormatError(f"{file} is missing or damaged.")

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that were written with the part."""
        return dict(self.group.attrs)

    def names(self) -> list[str]:
        """Return the names of the arrays."""
        if self.arrays is not None:
            return sorted(self.arrays)
        return sorted(path.parent.name for path in self.path.glob("*/zarr.json"))

    def array(self, name: str, index: Any = ...) -> NDArray[Any]:
        """Read an array, or the slice ``index`` of it, verifying the chunks that are read."""
        if name not in self.names():
            raise FileFormatError(f"{self.path} holds no array {name!r}, only {', '.join(self.names())}.")
        with explain_read_errors(f"the array {name!r} in {self.path}", advice(self.path)):
            metadata = self.files.listed(f"{name}/{METADATA}")
            if metadata is not None and (index is ... or isinstance(index, slice)):
                rows = slice(None) if index is ... else index
                own = read_array(metadata, lambda path: self.files.listed(f"{name}/{path}"), rows)
                if own is not None:
                    return own
            found = self.group[name]
            if not isinstance(found, zarr.Array):
                raise TypeError("it is a group")
            if self.arrays is None:
                require_plausible_array(found, self.path / name)
            return np.asarray(found[index])


def require_plausible_array(array: zarr.Array[Any], folder: Path) -> tuple[int, int]:
    """Return how many chunks an array has and how many files hold them; raise if these cannot be its chunks."""
    sizes = [p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.name[:1] not in "z."]
    largest = max(math.prod(array.shape), math.prod(array.chunks))
    require_plausible(largest * array.dtype.itemsize, sum(sizes), folder)
    n_chunks = int(array.nchunks)
    if n_chunks > _CHUNKS_PER_FILE * (len(sizes) + 1):
        raise FileFormatError(f"{folder} claims {n_chunks:,} chunks, but {len(sizes):,} are there.")
    return n_chunks, len(sizes)


def _default_chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Cut the first axis so that a chunk stays near 16 MB; other axes stay whole."""
    row = max(1, int(np.prod(shape[1:], dtype=np.int64)) * itemsize)
    rows = max(1, min(shape[0], _CHUNK_BYTES // row)) if shape else 1
    return (rows, *(max(1, n) for n in shape[1:])) if shape else ()
