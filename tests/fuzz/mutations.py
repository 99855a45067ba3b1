"""Small damages to files and folders. A mutation takes a random generator and a folder, and says what it did.

A mutation returns None where the folder has nothing it applies to. None of them follows links or leaves the folder.
"""

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

Mutation = Callable[[random.Random, Path], str | None]

DEVICES = ("/dev/zero", "/dev/null", "/dev/urandom")


def files_in(root: Path, *endings: str) -> list[Path]:
    """Return the regular files below a folder that have one of the endings, sorted; write-protected ones aside."""
    found = (p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and p.name != ".lock")
    return sorted(p for p in found if p.stat().st_mode & stat.S_IWUSR and p.name.endswith(endings or ("",)))


def _bytes(name: str, change: Callable[[random.Random, bytearray], bytes | bytearray]) -> Mutation:
    """Return the mutation that changes the bytes of one random file."""

    def mutate(rng: random.Random, root: Path) -> str | None:
        files = [path for path in files_in(root) if path.stat().st_size]
        if not files:
            return None
        path = rng.choice(files)
        path.write_bytes(change(rng, bytearray(path.read_bytes())))
        return f"{name} {path.relative_to(root)}"

    mutate.__name__, mutate.__doc__ = name, change.__doc__
    return mutate


def _span(rng: random.Random, data: bytearray) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.choice((1, 4, 16, 256, 4096)))


def _flip(rng: random.Random, data: bytearray) -> bytearray:
    """Flip one bit."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _scribble(rng: random.Random, data: bytearray) -> bytearray:
    """Overwrite some bytes with random ones."""
    start, stop = _span(rng, data)
    data[start:stop] = rng.randbytes(stop - start)
    return data


def _zero(rng: random.Random, data: bytearray) -> bytearray:
    """Overwrite some bytes with zeros, as a file system does after a crash."""
    start, stop = _span(rng, data)
    data[start:stop] = bytes(stop - start)
    return data


def _truncate(rng: random.Random, data: bytearray) -> bytearray:
    """Cut the end off."""
    return data[: rng.randrange(len(data))]


def _delete(rng: random.Random, data: bytearray) -> bytearray:
    """Take some bytes out."""
    start, stop = _span(rng, data)
    del data[start:stop]
    return data


def _duplicate(rng: random.Random, data: bytearray) -> bytearray:
    """Repeat some bytes."""
    start, stop = _span(rng, data)
    data[stop:stop] = data[start:stop]
    return data


def _insert(rng: random.Random, data: bytearray) -> bytearray:
    """Put random bytes in between."""
    start, _ = _span(rng, data)
    data[start:start] = rng.randbytes(rng.choice((1, 7, 64)))
    return data


def _append(rng: random.Random, data: bytearray) -> bytearray:
    """Put random bytes at the end."""
    return data + rng.randbytes(rng.choice((1, 8, 1000)))


def _swap(rng: random.Random, data: bytearray) -> bytes:
    """Exchange two blocks."""
    a, b, c, d = sorted(rng.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _empty(rng: random.Random, data: bytearray) -> bytes:
    """Leave nothing."""
    return b""


BYTES = tuple(
    _bytes(change.__name__.strip("_"), change)
    for change in (_flip, _scribble, _zero, _truncate, _delete, _duplicate, _insert, _append, _swap, _empty)
)


def _a_file(rng: random.Random, root: Path) -> Path | None:
    files = files_in(root)
    return rng.choice(files) if files else None


def lose_file(rng: random.Random, root: Path) -> str | None:
    """Delete a file."""
    if path := _a_file(rng, root):
        path.unlink()
    return path and f"lose_file {path.relative_to(root)}"


def rename_file(rng: random.Random, root: Path) -> str | None:
    """Give a file another name."""
    if path := _a_file(rng, root):
        path.rename(path.with_name(rng.choice(("another", path.name + "~", "0" + path.name))))
    return path and f"rename_file {path.relative_to(root)}"


def file_to_folder(rng: random.Random, root: Path) -> str | None:
    """Put a folder in place of a file."""
    if path := _a_file(rng, root):
        path.unlink()
        path.mkdir()
    return path and f"file_to_folder {path.relative_to(root)}"


def dangling_link(rng: random.Random, root: Path) -> str | None:
    """Put a link to nothing in place of a file."""
    if path := _a_file(rng, root):
        path.unlink()
        path.symlink_to(rng.choice(("nowhere", "/nowhere/at/all", path.name)))
    return path and f"dangling_link {path.relative_to(root)}"


def link_out(rng: random.Random, root: Path) -> str | None:
    """Move a file out of the folder and leave a link to it, or to a damaged copy."""
    if path := _a_file(rng, root):
        outside = root.with_name(f"{root.name}-outside")
        shutil.move(path, outside)
        if rng.random() < 0.5:
            outside.write_bytes(_flip(rng, bytearray(outside.read_bytes() or b"x")))
        path.symlink_to(outside)
    return path and f"link_out {path.relative_to(root)}"


def link_to_device(rng: random.Random, root: Path) -> str | None:
    """Put a link to a device without end in place of a file."""
    if path := _a_file(rng, root):
        path.unlink()
        path.symlink_to(rng.choice(DEVICES))
    return path and f"link_to_device {path.relative_to(root)}"


def file_to_fifo(rng: random.Random, root: Path) -> str | None:
    """Put a pipe that nobody writes to in place of a file."""
    if path := _a_file(rng, root):
        path.unlink()
        os.mkfifo(path)
    return path and f"file_to_fifo {path.relative_to(root)}"


def swap_files(rng: random.Random, root: Path) -> str | None:
    """Exchange two files of one name or one folder, such as two chunks of one array."""
    first = _a_file(rng, root)
    alike = [
        p
        for p in files_in(root)
        if p != first and first and (p.name == first.name or p.parent == first.parent)
    ]
    if first is None or not alike:
        return None
    second = rng.choice(alike)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    return f"swap_files {first.relative_to(root)} {second.relative_to(root)}"


def copy_over(rng: random.Random, root: Path) -> str | None:
    """Copy one file over another."""
    files = files_in(root)
    if len(files) < 2:
        return None
    first, second = rng.sample(files, 2)
    shutil.copyfile(first, second)
    return f"copy_over {first.relative_to(root)} {second.relative_to(root)}"


def _a_folder(rng: random.Random, root: Path) -> Path | None:
    folders = sorted(p for p in root.rglob("*") if p.is_dir() and not p.is_symlink())
    return rng.choice(folders) if folders else None


def lose_folder(rng: random.Random, root: Path) -> str | None:
    """Delete a folder with all that is in it."""
    if path := _a_folder(rng, root):
        shutil.rmtree(path)
    return path and f"lose_folder {path.relative_to(root)}"


def swap_folders(rng: random.Random, root: Path) -> str | None:
    """Exchange two folders that lie side by side, such as two windows or two arrays."""
    first = _a_folder(rng, root)
    beside = [p for p in sorted(first.parent.iterdir()) if p.is_dir() and p != first] if first else []
    if first is None or not beside:
        return None
    second, aside = rng.choice(beside), first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    return f"swap_folders {first.relative_to(root)} {second.relative_to(root)}"


def file_in_folders_place(rng: random.Random, root: Path) -> str | None:
    """Put a file in place of a folder."""
    if path := _a_folder(rng, root):
        shutil.rmtree(path)
        path.write_bytes(rng.randbytes(rng.choice((0, 10, 1000))))
    return path and f"file_in_folders_place {path.relative_to(root)}"


def add_foreign_file(rng: random.Random, root: Path) -> str | None:
    """Add a file that does not belong there."""
    folder = _a_folder(rng, root) or root
    name = rng.choice((".DS_Store", "Thumbs.db", "zarr.json.bak", "0", "notes.txt", ".partial-x", "ü\n.json"))
    if (folder / name).exists():
        return None
    (folder / name).write_bytes(rng.randbytes(100))
    return f"add_foreign_file {(folder / name).relative_to(root)!s}"


PLACES: tuple[Mutation, ...] = (
    *(lose_file, rename_file, file_to_folder, dangling_link, link_out, link_to_device, file_to_fifo),
    *(swap_files, copy_over),
)
FOLDERS: tuple[Mutation, ...] = (lose_folder, swap_folders, file_in_folders_place, add_foreign_file)
