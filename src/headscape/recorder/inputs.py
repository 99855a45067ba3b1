"""Whatever a user has - text, files, rows, token ids, images - as windows: the arguments of forward passes."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headscape.errors import InputError
from headscape.recorder.images import IMAGE_ENDINGS, image_labels, image_windows
from headscape.recorder.text import (
    Tokens,
    column_of,
    read_text,
    require_text,
    special_tokens,
    token_labels,
)
from headscape.tensor.store import content_hash

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels")
DEFAULT_WINDOWS = 6
"""Windows of one text, if the number is not given."""


@dataclass(frozen=True, eq=False)
class WindowInput:
    """One window: the arguments of its forward pass (batch of 1), and labels of the input and the decoder."""

    arguments: Mapping[str, torch.Tensor]
    labels: Mapping[str, tuple[str, ...]]

    def hash(self) -> str:
        """Return a hash of everything the model is given."""
        return content_hash(*(self.arguments[name].cpu().numpy() for name in sorted(self.arguments)))


@dataclass(frozen=True)
class InputReader:
    """Turns inputs into windows for one model.

    Parameters
    ----------
    model, tokenizer
        The model, and its tokenizer (or, for images, its processor).
    length
        Tokens per window, special ones included; None takes every text whole.
    windows
        How many; None takes all of a list or batch, and up to 6 of one long text.
    join
        Run the texts of a list together into one, in place of one window per text.
    at_most
        Whether fewer windows than ``windows`` will do.
    """

    model: Any
    tokenizer: Any = None
    length: int | None = 256
    windows: int | None = None
    join: bool = False
    at_most: bool = False

    def __post_init__(self) -> None:
        for name in ("length", "windows"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number from 1 up, but is {value!r}.")

    def read(self, inputs: Any) -> list[WindowInput]:
        """Return the windows of any kind of input, or raise one clear error."""
        windows = list(islice(self._any(inputs), self.windows))
        if self.windows is not None and len(windows) < self.windows and not self.at_most:
            raise InputError(
                f"{self.windows} windows were asked for, but the input has only {len(windows)}"
                f"{'' if self.length is None else f' (of {self.length} tokens)'}. Give more, or ask for fewer."
            )
        if not windows:
            raise InputError("the input is empty: text, token ids or images are wanted.")
        return windows

    @property
    def _for_images(self) -> bool:
        return str(getattr(self.model, "main_input_name", "")) == "pixel_values"

    def _any(self, inputs: Any) -> Iterator[WindowInput]:
        if isinstance(inputs, Mapping) or hasattr(inputs, "input_ids"):
            return self._rows(dict(inputs))
        if isinstance(inputs, (str, os.PathLike)):
            return self._text_or_file(inputs)
        if isinstance(inputs, (torch.Tensor, np.ndarray)):
            return self._array(inputs)
        if hasattr(inputs, "convert") and hasattr(inputs, "size"):  # a PIL image
            return self._images([inputs])
        if isinstance(inputs, Iterable):
            return self._collection(inputs)
        raise InputError(
            "inputs must be text, a file, a list of texts, token ids or images, but is "
            f"{type(inputs).__name__}."
        )

    def _collection(self, inputs: Iterable[Any]) -> Iterator[WindowInput]:
        if is_run_of_ids(inputs):  # the number of windows is no number of tokens
            return self._array(np.asarray(inputs))
        sized = isinstance(inputs, Sequence) or hasattr(inputs, "__len__")
        limit = self.windows if self.windows is not None or sized else DEFAULT_WINDOWS
        # Joined texts may be short, so that the number of windows says nothing about how many are needed.
        items = list(inputs if self.join else islice(inputs, limit))
        if not items:
            raise InputError("the list of inputs is empty: give texts, token ids or images.")
        first = items[0]
        if isinstance(first, (int, np.integer)):
            return self._array(np.asarray(items))
        if isinstance(first, Mapping) and "input_ids" in first:
            return (window for item in items for window in self._rows(_batched(item)))
        if isinstance(first, Mapping):
            return self._dataset_rows(items)
        if isinstance(first, (str, os.PathLike)):
            if self._for_images or all(_is_image_file(item) for item in items):
                return self._images(items)
            return self._texts([self._content(item) for item in items])
        if isinstance(first, (Sequence, np.ndarray, torch.Tensor)) and np.ndim(np.asarray(first)) == 1:
            return (window for item in items for window in self._ids_as_row(item))
        return self._images(items)

    def _dataset_rows(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[WindowInput]:
        """Make one window of every row of a dataset, with its label where the model is a classifier."""
        column = next((name for name in IMAGE_COLUMNS if name in rows[0]), None) or column_of(rows[0])
        items = [row[column] for row in rows]
        windows = self._images(items) if column in IMAGE_COLUMNS else self._texts(items)
        label = next((name for name in LABEL_COLUMNS if name in rows[0]), None)
        if label is None or self.join or "Classification" not in type(self.model).__name__:
            return windows
        numbers = [self._label_number(row[label]) for row in rows]
        return (
            WindowInput({**window.arguments, "labels": torch.tensor([number])}, window.labels)
            for window, number in zip(windows, numbers, strict=True)
        )

    def _label_number(self, label: Any) -> int:
        known = dict(getattr(self.model.config, "label2id", None) or {})
        if isinstance(label, str):
            if label not in known:
                raise InputError(f"a label must be one of {', '.join(map(str, known))}, but is {label!r}.")
            return int(known[label])
        return int(label)

    def _content(self, item: Any) -> str:
        return read_text(Path(item)) if isinstance(item, os.PathLike) else str(item)

    def _text_or_file(self, inputs: str | os.PathLike[str]) -> Iterator[WindowInput]:
        path = Path(inputs) if isinstance(inputs, os.PathLike) or len(inputs) < 1024 else None
        try:
            is_file = path is not None and path.is_file()
        except (OSError, ValueError):
            is_file = False
        if path is not None and (is_file or isinstance(inputs, os.PathLike)):
            if self._for_images or _is_image_file(path):
                return self._images([path])
            return self._stream(self._tokens(read_text(path)), f"{path.name}")
        if self._for_images:
            raise InputError(f"the model looks at images, but {str(inputs)[:60]!r} is no image file.")
        require_text(str(inputs))
        return self._stream(self._tokens(str(inputs)), "the text")

    def _array(self, inputs: Any) -> Iterator[WindowInput]:
        array = inputs.detach().cpu().numpy() if isinstance(inputs, torch.Tensor) else inputs
        if array.dtype.kind in "iu" and array.ndim == 1 and array.size:
            return self._stream(Tokens(array.astype(np.int64)), "the token ids")
        if array.dtype.kind in "iu" and array.ndim == 2 and array.size:
            return (window for row in array for window in self._ids_as_row(row))
        return self._images([array])

    def _tokens(self, text: str) -> Tokens:
        if self.tokenizer is None:
            raise InputError("text needs a tokenizer: give tokenizer=..., or token ids in place of text.")
        if not text.strip():
            raise InputError("the text is empty.")
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return Tokens(np.asarray(ids, dtype=np.int64), *special_tokens(self.tokenizer))

    def _stream(self, tokens: Tokens, what: str) -> Iterator[WindowInput]:
        """Cut one long run of tokens into windows."""
        pieces = tokens.pieces(self.length, what)
        return (self._window(ids) for ids in islice(pieces, self.windows or DEFAULT_WINDOWS))

    def _texts(self, texts: Sequence[Any]) -> Iterator[WindowInput]:
        """Make one window of every text, or of all of them together."""
        if self.join:
            yield from self._stream(self._tokens("\n\n".join(str(text) for text in texts)), "the joined text")
            return
        for number, text in enumerate(texts):
            what = (
                f"text {number} of the list (join=True runs the texts together, length=None takes each whole)"
            )
            yield self._window(next(self._tokens(str(text)).pieces(self.length, what)))

    def _ids_as_row(self, row: Any) -> Iterator[WindowInput]:
        ids = np.asarray(row)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or not ids.size:
            raise InputError(f"token ids must be rows of whole numbers, but one row is {str(row)[:60]}.")
        yield self._window(ids.astype(np.int64))

    def _window(self, ids: np.ndarray) -> WindowInput:
        return next(self._rows({"input_ids": torch.from_numpy(np.ascontiguousarray(ids))[None]}))

    def _rows(self, batch: dict[str, Any]) -> Iterator[WindowInput]:
        """Cut a batch of forward arguments into its rows, taken as they are."""
        tensors = {name: torch.as_tensor(value) for name, value in batch.items() if value is not None}
        sizes = {len(value) if value.dim() else 0 for value in tensors.values()}
        if len(sizes) != 1 or 0 in sizes:
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in tensors.items())
            raise InputError(f"a batch must have the same number of rows in every entry, but has {shapes}.")
        for row in range(sizes.pop()):
            arguments = {name: value[row : row + 1] for name, value in tensors.items()}
            self._check_ids(arguments)
            self._add_decoder(arguments)
            yield WindowInput(arguments, self._labels(arguments))

    def _check_ids(self, arguments: dict[str, torch.Tensor]) -> None:
        config = self.model.config.get_text_config()
        for name in ("input_ids", "decoder_input_ids"):
            ids = arguments.get(name)
            if ids is None:
                continue
            vocabulary = getattr(config, "vocab_size", None)
            if vocabulary is not None and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
                raise InputError(
                    f"token ids must be from 0 to {vocabulary - 1}, but they go from {int(ids.min())} to "
                    f"{int(ids.max())}. Do they come from another model's tokenizer?"
                )
            places = getattr(config, "max_position_embeddings", None)
            if isinstance(places, int) and ids.shape[1] > places:
                raise InputError(
                    f"this model takes at most {places} tokens, but a window has {ids.shape[1]}. Give a smaller "
                    "length (--length)."
                )

    def _add_decoder(self, arguments: dict[str, torch.Tensor]) -> None:
        """Let an encoder-decoder model repeat its input: the decoder sees the same tokens, one place later."""
        config = self.model.config
        if not getattr(config, "is_encoder_decoder", False) or "input_ids" not in arguments:
            return
        if "decoder_input_ids" not in arguments:
            names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
            starts = [getattr(config, name, None) for name in names]
            start = next((token for token in starts if token is not None), 0)
            shifted = arguments["input_ids"].roll(1, dims=1)
            shifted[:, 0] = start
            arguments["decoder_input_ids"] = shifted

    def _labels(self, arguments: Mapping[str, torch.Tensor]) -> dict[str, tuple[str, ...]]:
        labels = {}
        for side, name, mask in (
            ("input", "input_ids", "attention_mask"),
            ("decoder", "decoder_input_ids", "decoder_attention_mask"),
        ):
            if name in arguments:
                ids = arguments[name][0]
                if mask in arguments and arguments[mask].shape[1] == len(ids):
                    ids = ids[arguments[mask][0].bool().cpu()]
                labels[side] = token_labels(ids.tolist(), self.tokenizer)
        if "pixel_values" in arguments:
            labels["pixels"] = image_labels(self.model.config)
        return labels

    def _images(self, images: Sequence[Any]) -> Iterator[WindowInput]:
        if not self._for_images:
            raise InputError(
                f"images need a model that looks at images, but {type(self.model).__name__} reads "
                f"{getattr(self.model, 'main_input_name', 'something else')}."
            )
        for pixels in image_windows(images, self.model, self.tokenizer):
            arguments = {"pixel_values": pixels}
            yield WindowInput(arguments, self._labels(arguments))


def is_run_of_ids(inputs: Any) -> bool:
    """Tell whether inputs are one row of token ids, to be cut into windows.

    Examples
    --------
    >>> is_run_of_ids([5, 6, 7]), is_run_of_ids(np.arange(3)), is_run_of_ids([[5, 6, 7]])
    (True, True, False)
    """
    if isinstance(inputs, (torch.Tensor, np.ndarray)):
        return inputs.ndim == 1
    return isinstance(inputs, Sequence) and len(inputs) > 0 and isinstance(inputs[0], (int, np.integer))


def _batched(item: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Give a single row of a dataset the axis of a batch."""
    values = {name: torch.as_tensor(value) for name, value in item.items() if not isinstance(value, str)}
    return {name: value[None] if value.dim() == 1 else value for name, value in values.items()}


def _is_image_file(item: Any) -> bool:
    return Path(str(item)).suffix.lower() in IMAGE_ENDINGS
