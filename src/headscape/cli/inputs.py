"""What the commands read: text, a folder of images (with a subfolder per label), scores of the user's own."""

from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from headscape.errors import InputError

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def images_of(folder: Path) -> list[Any]:
    """Return the images of a folder; where it has a subfolder per label, rows with image and label, mixed."""
    if not folder.is_dir():
        raise InputError(f"--images must be a folder with images, but {folder} is none.")
    flat = _images_in(folder)
    labeled = [
        [{"image": path, "label": sub.name} for path in _images_in(sub)]
        for sub in sorted(folder.iterdir())
        if sub.is_dir()
    ]
    # One of each label in turn: a part of the list has all labels, like the whole.
    mixed = [row for row in chain.from_iterable(zip_longest(*labeled)) if row is not None]
    if not (flat or mixed):
        raise InputError(
            f"--images must be a folder with images ({', '.join(IMAGE_ENDINGS)}), or with a subfolder of them per "
            f"label, but {folder} has none."
        )
    return mixed or flat


def windows_inputs(
    text: Path | None, images: Path | None, calibrate: Path | None, evaluate: Path | None
) -> tuple[Any, Any]:
    """Return what evaluates and what calibrates; None calibrates on the first half of what evaluates."""
    given = [option for option in (text, images, evaluate) if option is not None]
    if len(given) > 1 or (calibrate is not None and evaluate is None):
        raise InputError(
            "give one of --text FILE (its first half calibrates, its second evaluates), --images DIR, or "
            "--calibrate FILE together with --evaluate FILE."
        )
    if images is not None:
        return images_of(images), None
    if not given:
        from headscape.models.sample_text import sample_text

        return sample_text(), None
    return given[0], calibrate


def methods_of(names: str, table: Path | None) -> dict[str, Any]:
    """Return methods by name; what is no method of headscape is a column of the table."""
    from headscape.ablation.ablation_result import REPAIRED
    from headscape.ablation.rankings import METHODS, REVERSED, read_scores

    found: dict[str, Any] = {}
    for word in (word.strip() for word in names.split(",")):
        column = word.removesuffix(REPAIRED).removesuffix(REVERSED)
        if column in METHODS or table is None:
            found[word] = word
        else:
            scores = read_scores(table, column)
            found[word] = -scores if REVERSED in word else scores
    return found


def counts_of(text: str | None, option: str = "--counts") -> list[str] | None:
    """Return the words of a list of numbers and percentages.

    Examples
    --------
    >>> counts_of("3, 10%")
    ['3', '10%']
    """
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not word.removesuffix("%").replace(".", "", 1).isdigit() or ("." in word and "%" not in word):
            raise InputError(f"{option} must be numbers or shares such as 3,14,10%, but is {text!r}.")
    return words


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_ENDINGS)
