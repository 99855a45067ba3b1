"""Where headscape keeps what is costly to make again (converted default models)."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """Return ``HEADSCAPE_CACHE`` if it is set, else the user's cache folder of this platform."""
    wish = os.environ.get("HEADSCAPE_CACHE")
    if wish:
        return Path(wish).expanduser()
    return user_cache_path("headscape", appauthor=False)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder (0 if there is none)."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
