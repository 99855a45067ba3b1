"""Which files are images: their endings, and the images of a folder (without importing torch)."""

import os
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from headscape.errors import InputError

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def is_image_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file name ends like that of an image.

    Examples
    --------
    >>> is_image_file("cat.PNG"), is_image_file("book.txt")
    (True, False)
    """
    return Path(path).suffix.lower() in IMAGE_ENDINGS


def images_in(folder: Path) -> list[Any]:
    """Return the images of a folder as paths, sorted by name.

    A folder with a subfolder per label gives rows ``{"image": path, "label": name}``, one of each label in turn.
    """
    try:
        with os.scandir(folder) as entries:
            labels = sorted(entry.name for entry in entries if entry.is_dir())
        labeled = [
            [{"image": path, "label": label} for path in _sorted_images(folder / label)] for label in labels
        ]
        flat = _sorted_images(folder)
    except OSError as error:
        raise InputError(f"the image folder {folder} cannot be read ({error.strerror}).") from error
    # In turn, so that any part of the list has all labels.
    mixed = [row for row in chain.from_iterable(zip_longest(*labeled)) if row is not None]
    if flat and mixed:
        raise InputError(
            f"the folder {folder} has {len(flat)} images directly and {len(mixed)} in subfolders named after labels: "
            "keep one of both."
        )
    if not (flat or mixed):
        raise InputError(
            f"the folder {folder} has no images ({', '.join(IMAGE_ENDINGS)}), neither directly nor in subfolders "
            "named after labels."
        )
    return mixed or flat


def _sorted_images(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(Path(entry) for entry in entries if is_image_file(entry.name) and not entry.is_dir())
