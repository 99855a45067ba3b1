"""Images for a vision network: drawn at random from a folder, or colored shapes where none are given."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.recorder.image_files import images_in


def random_images(path: Path, count: int, seed: int = 0) -> list[Any]:
    """Return up to ``count`` images of a folder in random order, with labels if it has some, or a single file."""
    if not path.is_dir():
        return [path]
    images = images_in(path)
    order = np.random.default_rng(seed).permutation(len(images))
    return [images[i] for i in order[:count]]


def drawn_images(count: int, size: int, seed: int = 0) -> list[NDArray[np.uint8]]:
    """Return images (size, size, 3) of ellipses and rectangles on a ground that changes slowly.

    Examples
    --------
    >>> images = drawn_images(2, 8)
    >>> images[0].shape, images[0].dtype.name, (images[0] == images[1]).all()
    ((8, 8, 3), 'uint8', np.False_)
    """
    rng = np.random.default_rng(seed)
    return [_image(size, rng) for _ in range(count)]


def _image(size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    row, column = np.mgrid[0:size, 0:size] / size
    slope, tint = rng.uniform(-1, 1, 2), rng.uniform(60, 190, 3)
    picture = tint + 50 * (slope[0] * (row - 0.5) + slope[1] * (column - 0.5))[..., None]
    for _ in range(rng.integers(2, 6)):
        y, x = rng.uniform(0.1, 0.9, 2)
        height, width = rng.uniform(0.08, 0.35, 2)
        down, across = abs(row - y) / height, abs(column - x) / width
        inside = down**2 + across**2 < 1 if rng.random() < 0.5 else np.maximum(down, across) < 1
        picture[inside] = rng.uniform(0, 255, 3)
    noisy: NDArray[np.float64] = np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255)
    return noisy.astype(np.uint8)
