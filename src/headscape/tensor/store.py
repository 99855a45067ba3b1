"""The store: a folder of finished parts, written atomically, resumable, with one writer at a time.

    OUT/
      headscape.json      header: format, versions, parameters, seed, hash of the input
      parts/NAME/         one finished part: a zarr v3 group (arrays with checksums, attributes)
      parts/.partial-*    a part that is being written, or that a killed run left behind

A part is written under a ``.partial-`` name and renamed into place, so what has its final name is whole: a
run that is killed loses at most the part it was writing, and the next run resumes after the last finished
one. A lock file keeps two writers apart; readers need no lock, because finished parts never change. The header
and every file of a part have digests, which are compared when they are read.
"""

import errno
import json
import logging
import os
import platform
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import BaseFileLock, FileLock, Timeout

from headscape._version import __version__
from headscape.errors import FileFormatError, StorageError
from headscape.tensor.digests import content_hash as content_hash
from headscape.tensor.digests import json_digest
from headscape.tensor.part import MARKER, advice
from headscape.tensor.part import Part as Part
from headscape.tensor.part import PartWriter as PartWriter
from headscape.tensor.safe_reading import read_json_object

HEADER = "headscape.json"
_PARTIAL = ".partial-"
logger = logging.getLogger(__name__)


def software_versions(*packages: str) -> dict[str, str]:
    """Return the versions that make a result repeatable: headscape, Python, numpy, scipy and ``packages``."""
    versions = {"headscape": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", *packages):
        versions[package] = metadata.version(package)
    return versions


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
    header = read_json_object(path / HEADER, path)
    if header is None:
        raise FileFormatError(
            f"{path} is not a headscape folder: it has no {HEADER}. Give a folder that headscape wrote."
        )
    return header


def _verify_header(header: dict[str, Any], path: Path) -> None:
    """Raise unless a header has all that every store has, unchanged (older ones have no digest)."""
    for name, wanted in (("versions", dict), ("parameters", dict), ("input_hash", str)):
        if not isinstance(header.get(name), wanted):
            raise FileFormatError(f"{path / HEADER} is damaged: {name!r} is missing or of a wrong type.")
    if "digest" in header and header["digest"] != json_digest(header):
        raise FileFormatError(
            f"{path / HEADER} is damaged or was edited: it is not what was written. Restore it, or write the folder "
            "again."
        )


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


class Store:
    """A folder of finished parts.

    Use :meth:`create` to write (as a context manager: it holds the lock) and :meth:`open` to read.
    """

    def __init__(self, path: Path, header: dict[str, Any], lock: BaseFileLock | None = None) -> None:
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
        header["digest"] = json_digest(header)
        with explain_write_errors(folder):
            if folder.is_dir() and not (folder / HEADER).exists():
                foreign = [p.name for p in folder.iterdir() if not _is_own(p.name)]
                if foreign:
                    raise StorageError(
                        f"{folder} holds other files ({', '.join(sorted(foreign)[:3])}, ...): give an empty or "
                        "a new folder."
                    )
            (folder / "parts").mkdir(parents=True, exist_ok=True)
        lock = acquire_lock(folder, folder / ".lock")
        try:
            found = read_header(folder) if (folder / HEADER).exists() else None
            # A run that ended before its first part leaves nothing to go on with: it may be begun anew.
            if found is not None and (cls(folder, found).parts() or found.get("format") != header["format"]):
                _require_same(found, header, folder)
                _verify_header(found, folder)
                header = found
            else:
                write_text_atomically(folder / HEADER, json.dumps(header, indent=2) + "\n")
            for rest in (folder / "parts").glob(f"{_PARTIAL}*"):
                shutil.rmtree(rest, ignore_errors=True)
            for rest in folder.glob(f"{_PARTIAL}*-{HEADER}"):
                rest.unlink()
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
        _verify_header(header, folder)
        return cls(folder, header)

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same folder, for reading."""
        return type(self), (self.path.absolute(), self.header)

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

    def sound(self, name: str) -> bool:
        """Tell whether a part is finished and all its files are as they were written; one that is not is discarded.

        What a disk lost or tore is then computed again, as what was never finished.
        """
        if not self.has(name):
            return False
        try:
            self.read(name).verify()
        except FileFormatError as error:
            logger.warning("%s It is computed again.", error)
            self.discard(name)
            return False
        return True

    def discard(self, name: str) -> None:
        """Remove a part; it disappears whole."""
        part = self.path / "parts" / name
        with explain_write_errors(part):
            aside = part.with_name(f"{_PARTIAL}{uuid.uuid4().hex[:8]}-{name}")
            part.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    @contextmanager
    def writing(self, name: str) -> Iterator[PartWriter]:
        """Write a part; it appears whole when the block ends, or not at all."""
        if self._lock is None:
            raise StorageError(f"{self.path} was opened for reading; open it with Store.create to write.")
        final = self.path / "parts" / name
        partial = self.path / "parts" / f"{_PARTIAL}{uuid.uuid4().hex[:8]}-{name}"
        with explain_write_errors(final):
            try:
                part = PartWriter(partial, name)
                yield part
                part.finish()
                partial.rename(final)
            finally:
                if partial.exists():
                    shutil.rmtree(partial, ignore_errors=True)

    def read(self, name: str) -> Part:
        """Return a finished part."""
        path = self.path / "parts" / name
        if not self.has(name):
            have = ", ".join(self.parts()) or "none"
            raise FileFormatError(f"{self.path} has no finished part {name!r} (finished: {have}).")
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise FileFormatError(f"{path} is a link that leads out of {self.path}.")
        part = Part.open(path)
        if part.arrays is None:
            if "digest" in self.header:
                raise FileFormatError(f"{path} is damaged: {MARKER} is missing. {advice(path)}")
            _warn_unverified(self.path)
        return part


@cache
def _warn_unverified(path: Path) -> None:
    """Warn once per store."""
    logger.warning(
        "%s was written by an older headscape: its parts have no digests and are not verified", path
    )


def _is_own(name: str) -> bool:
    """Tell whether a file may be in a folder whose header was never finished."""
    return name in (".lock", "parts") or name.startswith(_PARTIAL)


def acquire_lock(folder: Path, file: Path) -> BaseFileLock:
    """Return the lock of the one run that may write to a folder, kept in a file, or raise."""
    lock = FileLock(file)
    with explain_write_errors(folder):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StorageError(
                f"another run is writing to {folder}. Wait for it to end, or give another output folder."
            ) from None
    return lock


def _require_same(found: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Resume only what was started with the same kind, input, parameters and seed."""
    advice = "Use another folder or delete this one."
    if found.get("format") != wanted["format"]:
        raise StorageError(f"{folder} holds {found.get('format')!r}, not {wanted['format']!r}. {advice}")
    old, new = (_flat({"seed": h.get("seed"), **(h.get("parameters") or {})}) for h in (found, wanted))
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if changed:
        before, now = (", ".join(f"{name}={of.get(name)!r}" for name in changed) for of in (old, new))
        raise StorageError(f"{folder} was started with {before}, now {now}. {advice}")
    if found.get("input_hash") != wanted["input_hash"]:
        raise StorageError(f"{folder} was started with other inputs (text, images or windows). {advice}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested parameters under dotted names, so that each can be compared and named."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
