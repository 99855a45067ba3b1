"""Full disks: a command gets too little space, must say so in one line, and complete once there is more.

The disk is a small tmpfs where mounting one is allowed. Elsewhere writes are counted in this process, and the one
that does not fit fails as on a full disk.
"""

import builtins
import errno
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import safetensors.torch

from fuzz.commands import WRITING, finished_parts, results, words
from fuzz.program import Ended, headscape_here

ROOMY = 1 << 28
BLOCK = 4096
_open, _serialize = builtins.open, safetensors.torch.serialize_file


class Disk(Protocol):
    """A folder in which a limited number of bytes fits."""

    path: Path

    def resize(self, size: int) -> None:
        """Change how many bytes fit in all."""


class Mounted:
    """A tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: int) -> None:
        # Nothing is smaller than a block, and 0 would mean no limit.
        option = f"remount,size={max(BLOCK, size)}"
        subprocess.run(["mount", "-o", option, str(self.path)], check=True, capture_output=True)


@contextmanager
def mounted() -> Iterator[Mounted]:
    """Mount a small disk for the length of a block; raises PermissionError where that is not allowed."""
    with tempfile.TemporaryDirectory(prefix="headscape-disk-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "tmpfs", folder]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
            raise PermissionError("mounting a tmpfs is not allowed here")
        try:
            yield Mounted(Path(folder))
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


class Counted:
    """A folder whose files count what is written to them: through Python's ``open``, and by safetensors."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, ROOMY

    def resize(self, size: int) -> None:
        self.left = size - sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def take(self, count: int) -> None:
        """Use some bytes up, or fail as the operating system does."""
        if count > self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= count

    def open(self, file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        """Open a file; one that is written to this disk counts."""
        opened = _open(file, mode, *rest, **options)
        here = isinstance(file, (str, os.PathLike)) and self.path in Path(file).parents
        return CountedFile(opened, self) if here and set(mode) & set("wax+") else opened

    def serialize_file(self, tensors: Any, path: Any, *rest: Any, **options: Any) -> Any:
        """Write weights, or fail in the words of safetensors."""
        _serialize(tensors, path, *rest, **options)
        try:
            self.take(Path(path).stat().st_size)
        except OSError as error:
            Path(path).unlink()
            raise safetensors.SafetensorError(
                f"I/O error: {error.strerror} (os error {error.errno})"
            ) from error


class CountedFile:
    """A file that counts what is written to it."""

    def __init__(self, file: Any, disk: Counted) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        self._disk.take(len(data.encode()) if isinstance(data, str) else memoryview(data).nbytes)
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "CountedFile":
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()


@contextmanager
def counted() -> Iterator[Counted]:
    """Count what is written to a folder for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="headscape-disk-") as folder:
        disk = Counted(Path(folder))
        with (
            mock.patch.object(builtins, "open", disk.open),
            mock.patch.object(io, "open", disk.open),
            mock.patch.object(safetensors.torch, "serialize_file", disk.serialize_file),
        ):
            yield disk


@contextmanager
def small_disk() -> Iterator[Disk]:
    """Give a disk of one kind or the other."""
    try:
        with mounted() as disk:
            yield disk
    except PermissionError:
        with counted() as other:
            yield other


def undisturbed(command: str, disk: Disk) -> tuple[dict[str, str], int]:
    """Return what a command leaves when there is space, and how many bytes that takes."""
    out = _emptied(disk)
    ended = headscape_here(words(command, out))
    assert ended.code == 0, f"{command}: {ended.err}"
    used = sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in disk.path.rglob("*") if path.is_file())
    return results(command, out), used


def disk_problem(command: str, disk: Disk, size: int, wanted: dict[str, str]) -> str:
    """Run a command with too little space, then with enough; return what is wrong, or nothing."""
    out = _emptied(disk)
    disk.resize(size)
    ended = headscape_here(words(command, out))
    problem = "" if ended.code == 0 else _ending(ended)
    before = finished_parts(out)
    disk.resize(ROOMY)
    again = headscape_here(words(command, out))
    if problem or again.code != 0:
        return problem or f"with space the rerun ended with {again.code}: {again.err[-300:]}"
    if not before.items() <= finished_parts(out).items():
        return "the rerun computed finished parts again"
    return "" if results(command, out) == wanted else "other results than with enough space"


def _ending(ended: Ended) -> str:
    """Return what is wrong with how a command ended on a full disk."""
    wrong = ended.line_problem
    return wrong or (
        "" if "disk is full" in ended.err else f"does not say that the disk is full: {ended.err!r}"
    )


def _emptied(disk: Disk) -> Path:
    for path in disk.path.iterdir():
        shutil.rmtree(path)
    disk.resize(ROOMY)
    return disk.path / "out"


def disk_trials(count: int) -> dict[str, str]:
    """Run every command that writes on disks of ``count`` sizes; return what is wrong by case."""
    problems = {}
    with small_disk() as disk:
        for command in WRITING:
            wanted, used = undisturbed(command, disk)
            for number in range(count):
                size = used * number // count
                try:
                    problem = disk_problem(command, disk, size, wanted)
                except AssertionError as error:
                    problem = str(error)
                problems[f"{command} with {size} of {used} bytes ({type(disk).__name__.lower()})"] = problem
    return problems
