"""Reading what nobody vouches for: regular files only, sizes checked before memory is taken, one family of errors."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscape.errors import FileFormatError, HeadscapeError

_JSON_BYTES = 1 << 28
# Attention compresses a few times, with narrow bands of visible keys some dozen times; bombs a thousand times.
_LARGEST_RATIO = 100
_ALWAYS_ALLOWED = 1 << 26


def regular_size(path: Path, folder: Path | None = None) -> int | None:
    """Return the size of a regular file, None if there is nothing at ``path``, and raise for everything else.

    Devices and pipes would block or never end. With ``folder`` (resolved), links that lead out of it are refused too.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise FileFormatError(f"{path} is a link that leads nowhere.") from None
        return None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{str(path)[:200]} cannot be read ({error}).") from error
    if not stat.S_ISREG(status.st_mode):
        raise FileFormatError(f"{path} must be a regular file, but is a folder, a pipe or a device.")
    if folder is not None and not Path(os.path.realpath(path)).is_relative_to(folder):
        raise FileFormatError(f"{path} is a link that leads out of {folder}.")
    return status.st_size


def read_json_object(path: Path, folder: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file of a folder, None if there is no such file."""
    size = regular_size(path, folder.resolve())
    if size is None:
        return None
    if size > _JSON_BYTES:
        raise FileFormatError(f"{path} is damaged: {size:,} bytes are too many for it.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise FileFormatError(f"{path} is damaged ({error}).") from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path} is damaged: it must hold a JSON object.")
    return found


def require_plausible(claimed: int, stored: int, path: str | os.PathLike[str]) -> None:
    """Raise if a few stored bytes claim to be a large array: memory is taken only after this."""
    if claimed > max(_ALWAYS_ALLOWED, _LARGEST_RATIO * stored):
        raise FileFormatError(
            f"{path} claims {claimed:,} bytes, but holds {stored:,}: its shape does not fit its data. An array that "
            "compresses so well can be saved uncompressed, with np.save."
        )


@contextmanager
def explain_read_errors(path: str | os.PathLike[str], advice: str = "Write it again.") -> Iterator[None]:
    """Turn whatever damaged content leads to (missing keys, wrong types) into one FileFormatError."""
    try:
        yield
    except (HeadscapeError, MemoryError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path} is damaged ({what[:300]}). {advice}") from error
