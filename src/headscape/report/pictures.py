"""Small gray pictures for the page: values as 8-bit numbers, packed as PNG inside base64."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]


def gray_png(values: Bytes) -> str:
    """Return a (row, column) array of bytes as a base64 gray PNG, which every browser unpacks.

    Examples
    --------
    >>> gray_png(np.zeros((2, 2), dtype=np.uint8))[:11]
    'iVBORw0KGgo'
    """
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG", compress_level=9)
    return base64.b64encode(file.getvalue()).decode("ascii")


def root_bytes(values: NDArray[Any]) -> tuple[Bytes, float]:
    """Return nonnegative values as bytes of their square roots, and the largest value.

    The byte b stands for (b / 255)^2 times the largest value: small probabilities stay apart. Only every
    third byte occurs, which the eye does not see and which packs better.

    Examples
    --------
    >>> root_bytes(np.array([[0.0, 0.25, 1.0]]))[0].tolist()
    [[0, 126, 255]]
    """
    high = float(values.max(initial=0.0))
    if high <= 0:
        return np.zeros(values.shape, dtype=np.uint8), 0.0
    return (3 * np.round(85 * np.sqrt(np.clip(values / high, 0, 1)))).astype(np.uint8), high


def signed_bytes(values: NDArray[Any], visible: NDArray[np.bool_]) -> tuple[Bytes, float]:
    """Return signed values as bytes 1 to 255 around 128, 0 where they are not visible, and the limit.

    The byte b stands for (b - 128) / 126 times the limit, in steps of 3; the outermost half percent is cut at
    the limit.

    Examples
    --------
    >>> signed_bytes(np.array([[-1.0, 0.0, 1.0]]), np.array([[True, True, False]]))[0].tolist()
    [[2, 128, 0]]
    """
    limit = float(np.quantile(np.abs(values[visible]), 0.995)) if visible.any() else 0.0
    scaled = np.clip(values / limit, -1, 1) if limit > 0 else np.zeros(values.shape)
    return np.where(visible, 128 + 3 * np.round(42 * scaled), 0).astype(np.uint8), limit


def float_text(values: NDArray[Any]) -> str:
    """Return an array as base64 of its little-endian float32 values."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")


def block_edges(n: int, blocks: int) -> NDArray[np.int64]:
    """Return where the blocks of an axis begin; they are as equal as whole numbers can be.

    Examples
    --------
    >>> block_edges(7, 3).tolist()
    [0, 2, 4]
    """
    return (np.arange(blocks) * n) // blocks


def block_means(
    values: NDArray[Any], visible: NDArray[np.bool_], shape: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the means of a matrix over blocks, of what is visible in each, and which blocks show something.

    Examples
    --------
    >>> means, shown = block_means(np.arange(16.0).reshape(4, 4), np.ones((4, 4), bool), (2, 2))
    >>> means.tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    down, across = (block_edges(n, blocks) for n, blocks in zip(values.shape, shape, strict=True))

    def sums(x: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(np.add.reduceat(x, across, axis=1, dtype=np.float64), down, axis=0))

    count = sums(visible)
    return sums(np.where(visible, values, 0)) / np.maximum(count, 1), count > 0
