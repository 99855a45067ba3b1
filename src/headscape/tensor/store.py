"""The store: a folder of finished parts, written atomically, resumable, with one writer at a time.

    OUT/
      headscape.json      header: format, versions, parameters, seed, hash of the input
      parts/NAME/         one finished part: a zarr v3 group (arrays with checksums, attributes)
      parts/.partial-*    a part that is being written, or that a killed run left behind

A part is written under a ``.partial-`` name and renamed into place, so what has its final name is whole: a
run that is killed loses at most the part it was writing, and the next run goes on after the last finished
one. A lock file keeps two writers apart; readers need no lock, because finished parts never change.
"""

import errno
import hashlib
import json
import os
import platform
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape._version import __version__
from headscape.errors import FileFormatError, StorageError

if TYPE_CHECKING:
    import zarr
    from filelock import BaseFileLock

HEADER = "headscape.json"
_PARTIAL = ".partial-"
_CHUNK_BYTES = 1 << 24


def software_versions(*packages: str) -> dict[str, str]:
    """Return the versions that make a result repeatable: headscape, Python, numpy, scipy and ``packages``."""
    versions = {"headscape": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", *packages):
        versions[package] = metadata.version(package)
    return versions


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


def check_format(found: object, kind: str, newest: int, path: Path) -> int:
    """Return the format's number, or raise if it is of another kind or newer than this headscape reads."""
    words = str(found).split("/")
    if len(words) != 3 or words[0] != "headscape" or not words[2].isdigit():
        raise FileFormatError(
            f"{path} must have a header 'format: headscape/{kind}/N', but it says {found!r}."
        )
    if words[1] != kind:
        raise FileFormatError(
            f"{path} holds a headscape {words[1]}, but a {kind} is wanted here. Give the path of a {kind}."
        )
    if int(words[2]) > newest:
        raise FileFormatError(
            f"{path} has format {found}, but this headscape {__version__} reads {kind} only up to number "
            f"{newest}. Update headscape (pip install -U headscape)."
        )
    return int(words[2])


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a store, or raise if there is none or it is damaged."""
    try:
        header = json.loads((path / HEADER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(
            f"{path} is not a headscape folder: it has no {HEADER}. Give a folder that headscape wrote."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, NotADirectoryError) as error:
        raise FileFormatError(f"{path / HEADER} is damaged ({error}). Write the folder again.") from error
    if not isinstance(header, dict):
        raise FileFormatError(f"{path / HEADER} is damaged: it is no JSON object. Write the folder again.")
    return header


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's write errors into one clear StorageError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"the disk is full while writing {path}. What was finished is kept: free some space and run "
                "the same command again."
            ) from error
        raise StorageError(f"{path} could not be written: {error.strerror or error}.") from error


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file so that readers see either the old or the whole new content."""
    partial = path.with_name(f"{_PARTIAL}{uuid.uuid4().hex[:8]}-{path.name}")
    with explain_write_errors(path):
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class PartWriter:
    """Takes the arrays and attributes of one part while it is being written."""

    group: "zarr.Group"

    def array(self, name: str, data: NDArray[Any], chunks: tuple[int, ...] | None = None) -> None:
        """Write one array, compressed, with a checksum on every chunk."""
        from zarr.codecs import Crc32cCodec, ZstdCodec

        self.group.create_array(
            name,
            data=np.asarray(data, order="C"),
            chunks=chunks or _default_chunks(data.shape, data.itemsize),
            compressors=[ZstdCodec(level=1), Crc32cCodec()],
        )

    def attributes(self, **values: Any) -> None:
        """Write attributes: anything JSON can hold."""
        self.group.update_attributes(values)


@dataclass(frozen=True)
class Part:
    """A finished part: arrays are read when they are indexed."""

    path: Path
    group: "zarr.Group"

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that were written with the part."""
        return dict(self.group.attrs)

    def names(self) -> list[str]:
        """Return the names of the arrays."""
        return sorted(self.group.array_keys())

    def array(self, name: str, index: Any = ...) -> NDArray[Any]:
        """Read an array, or the slice ``index`` of it, checking its checksums."""
        try:
            return np.asarray(self.group[name][index])
        except KeyError:
            raise FileFormatError(
                f"{self.path} holds no array {name!r}, only {', '.join(self.names())}."
            ) from None
        except (ValueError, RuntimeError, OSError) as error:
            raise FileFormatError(
                f"the array {name!r} in {self.path} is damaged ({error}). Delete that folder and run again: "
                "only this part is made anew."
            ) from error


class Store:
    """A folder of finished parts.

    Use :meth:`create` to write (as a context manager: it holds the lock) and :meth:`open` to read.
    """

    def __init__(self, path: Path, header: dict[str, Any], lock: "BaseFileLock | None" = None) -> None:
        self.path = path
        self.header = header
        self._lock = lock

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        kind: str,
        number: int = 1,
        *,
        parameters: Mapping[str, Any],
        input_hash: str,
        seed: int | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> Self:
        """Open a store for writing: a new one, or an unfinished one of the same input and parameters.

        Raises
        ------
        StorageError
            If another run is writing there, the folder holds something else, or it cannot be written.
        """
        folder = Path(path)
        header = {
            "format": f"headscape/{kind}/{number}",
            "versions": dict(versions or software_versions()),
            "parameters": json.loads(json.dumps(dict(parameters))),
            "seed": seed,
            "input_hash": input_hash,
        }
        with explain_write_errors(folder):
            if folder.is_dir() and not (folder / HEADER).exists():
                foreign = [p.name for p in folder.iterdir() if p.name not in (".lock", "parts")]
                if foreign:
                    raise StorageError(
                        f"{folder} holds other files ({', '.join(sorted(foreign)[:3])}, ...): give an empty or "
                        "a new folder."
                    )
            (folder / "parts").mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder)
        try:
            found = read_header(folder) if (folder / HEADER).exists() else None
            # A run that ended before its first part leaves nothing to go on with: it may be begun anew.
            if found is not None and (cls(folder, found).parts() or found.get("format") != header["format"]):
                _require_same(found, header, folder)
            else:
                write_text_atomically(folder / HEADER, json.dumps(header, indent=2) + "\n")
            for rest in (folder / "parts").glob(f"{_PARTIAL}*"):
                shutil.rmtree(rest, ignore_errors=True)
        except BaseException:
            lock.release()
            raise
        return cls(folder, header, lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], kind: str, newest: int = 1) -> Self:
        """Open a store for reading."""
        folder = Path(path)
        header = read_header(folder)
        check_format(header.get("format"), kind, newest, folder)
        return cls(folder, header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.release()

    def parts(self) -> list[str]:
        """Return the names of the finished parts."""
        folder = self.path / "parts"
        return (
            sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) if folder.is_dir() else []
        )

    def has(self, name: str) -> bool:
        """Tell whether a part is finished."""
        return (self.path / "parts" / name).is_dir()

    @contextmanager
    def writing(self, name: str) -> Iterator[PartWriter]:
        """Write a part; it appears whole when the block ends, or not at all."""
        import zarr

        if self._lock is None:
            raise StorageError(f"{self.path} was opened for reading; open it with Store.create to write.")
        final = self.path / "parts" / name
        partial = self.path / "parts" / f"{_PARTIAL}{uuid.uuid4().hex[:8]}-{name}"
        with explain_write_errors(final):
            try:
                yield PartWriter(zarr.open_group(partial, mode="w", zarr_format=3))
                partial.rename(final)
            finally:
                if partial.exists():
                    shutil.rmtree(partial, ignore_errors=True)

    def read(self, name: str) -> Part:
        """Return a finished part."""
        import zarr

        path = self.path / "parts" / name
        if not self.has(name):
            have = ", ".join(self.parts()) or "none"
            raise FileFormatError(f"{self.path} has no finished part {name!r} (finished: {have}).")
        try:
            return Part(path, zarr.open_group(path, mode="r", zarr_format=3))
        except (FileNotFoundError, ValueError, KeyError) as error:
            raise FileFormatError(f"{path} is damaged ({error}). Delete it and run again.") from error


def _default_chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Cut the first axis so that a chunk stays near 16 MB; other axes stay whole."""
    row = max(1, int(np.prod(shape[1:], dtype=np.int64)) * itemsize)
    rows = max(1, min(shape[0], _CHUNK_BYTES // row)) if shape else 1
    return (rows, *(max(1, n) for n in shape[1:])) if shape else ()


def _acquire(folder: Path) -> "BaseFileLock":
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StorageError(
            f"another run is writing to {folder}. Wait for it to end, or give another output folder."
        ) from None
    return lock


def _require_same(found: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Resume only what was begun with the same kind, input and parameters."""
    for key in ("format", "input_hash", "parameters", "seed"):
        if found.get(key) != wanted[key]:
            what = "input hash, that is other text, images or windows" if key == "input_hash" else key
            raise StorageError(
                f"{folder} was begun with another {what} ({found.get(key)!r} there, "
                f"{wanted[key]!r} now). Give another output folder, or delete this one."
            )
