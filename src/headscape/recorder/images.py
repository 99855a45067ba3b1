"""Images as pixel values: files, PIL images and arrays, resized and normalized for a model.

An image is taken as people see it: turned as its EXIF data say, transparent parts on white, the first frame of an
animation. Sixteen bits per channel are rounded to eight. Files larger than Pillow's limit on pixels
(``PIL.Image.MAX_IMAGE_PIXELS``, 89 million unless it was changed) are refused before they are decoded.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from stat import S_ISREG
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from headscape.errors import InputError
from headscape.models.lazy_torch import torch

_MODES = {1: "L", 3: "RGB"}


def image_windows(images: Sequence[Any], model: Any, processor: Any = None) -> Iterator[torch.Tensor]:
    """Yield pixel values (1, channel, height, width), one image at a time.

    Images are files, PIL images, arrays (height, width, 3) or (image, height, width, 3) of bytes or of floats from 0
    to 1, or arrays (image, channel, height, width) of floats that are pixel values already. Without the model's image
    processor (anything that takes ``images=``) they are resized to the model's size and brought from 0..1 to -1..1.
    """
    config = vision_config(model.config)
    height, width = pair(config.image_size)
    channels = int(getattr(config, "num_channels", 3))
    for item in images:
        if isinstance(item, (np.ndarray, torch.Tensor)):
            array = np.asarray(item.detach().cpu() if isinstance(item, torch.Tensor) else item)
            if array.ndim == 4 and array.shape[1:] == (channels, height, width) and array.dtype.kind == "f":
                ready = torch.from_numpy(array.astype(np.float32))
                yield from (ready[i : i + 1] for i in range(len(ready)))
                continue
            pictures = [_from_array(one, channels) for one in (array if array.ndim == 4 else array[None])]
        else:
            pictures = [_from_file(item) if isinstance(item, (str, os.PathLike)) else _picture(item)]
        for picture in pictures:
            yield _pixels(picture.convert(_mode(channels)), (width, height), processor)


def _mode(channels: int) -> str:
    """Return the mode of pictures with so many channels."""
    if channels not in _MODES:
        raise InputError(
            f"this model takes images of {channels} channels: pass arrays of pixel values (image, channel, height, "
            "width) in place of pictures."
        )
    return _MODES[channels]


def _pixels(picture: Any, size: tuple[int, int], processor: Any) -> torch.Tensor:
    # A tokenizer is callable too, and comes with models of images and text.
    if callable(processor) and not hasattr(processor, "convert_ids_to_tokens"):
        values = processor(images=picture, return_tensors="pt")["pixel_values"]
        return torch.as_tensor(values, dtype=torch.float32)
    resized = np.asarray(picture.resize(size, Image.Resampling.BILINEAR), dtype=np.float32)
    planes = resized[None] if resized.ndim == 2 else np.moveaxis(resized, 2, 0)
    return torch.from_numpy(planes / np.float32(127.5) - np.float32(1.0))[None]


def _picture(item: Any) -> Any:
    """Return a picture as people see it, in eight bits: gray or RGB."""
    if not hasattr(item, "convert"):
        raise InputError(f"an image must be a file, an array or a PIL image, but is {type(item).__name__}.")
    turned = ImageOps.exif_transpose(item)
    if turned.mode.startswith("I;16"):
        wide = np.asarray(turned).astype(np.uint32)  # 65535 is white, which Pillow would clip to 255
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if turned.mode in ("I", "F"):
        raise InputError(
            "an image must have 8 or 16 bits per channel, but this one has 32: convert it first."
        )
    if turned.has_transparency_data:
        seen = turned.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    return turned


def _from_file(path: str | os.PathLike[str]) -> Any:
    try:
        if not S_ISREG(os.stat(path).st_mode):
            raise OSError("it is not a regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(path)
        with picture, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture.load()
            return _picture(picture)
    except FileNotFoundError:
        raise InputError(f"the image {path} does not exist.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"the image {path} is too large to be decoded safely: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # decoders of damaged files end in every kind of exception
        raise InputError(f"{path} is not a readable image ({error}).") from error


def _from_array(array: NDArray[Any], channels: int) -> Any:
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise InputError(
            "an image array must be (height, width, 3), or a batch of pixel values of the model's own size "
            f"({channels} channels), but its shape is {array.shape}."
        )
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise InputError(
                "an image array of floats must lie between 0 and 1; bytes (uint8) are taken as they are."
            )
        array = np.rint(array * 255)
    elif array.dtype != np.uint8:
        raise InputError(f"an image array must hold bytes (uint8) or floats, but its dtype is {array.dtype}.")
    return Image.fromarray(array.astype(np.uint8))


def vision_config(config: Any) -> Any:
    """Return the vision part of a config."""
    return getattr(config, "vision_config", config)


def pair(size: Any) -> tuple[int, int]:
    """Return (height, width) of a size that may be one number."""
    height, width = (size, size) if isinstance(size, (int, np.integer)) else size
    return int(height), int(width)


def image_labels(config: Any) -> tuple[str, ...]:
    """Return a label "row,column" per patch; the capture labels the special tokens before them."""
    vision = vision_config(config)
    patch = getattr(vision, "patch_size", None)
    if patch is None or not hasattr(vision, "image_size"):
        return ()
    (height, width), (tall, wide) = pair(vision.image_size), pair(patch)
    return tuple(f"{row},{column}" for row in range(height // tall) for column in range(width // wide))
