"""Any input - text, files, rows, token ids, images - as windows: the arguments of forward passes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headscape.errors import InputError
from headscape.models.adapters.families import task_of
from headscape.models.forward_pass import MEMORY
from headscape.models.lazy_torch import torch
from headscape.models.plain_arguments import main_argument, rows_first
from headscape.models.plain_facts import config_of, is_plain
from headscape.output import counted
from headscape.recorder.image_files import images_in, is_image_file
from headscape.recorder.images import image_labels, image_windows
from headscape.recorder.text import Text, column_of, texts_of, token_labels
from headscape.recorder.window_sampling import WindowSampler, special_token_names
from headscape.tensor.store import content_hash

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels")
DEFAULT_WINDOWS = 6
"""Windows of one text, if the number is not given."""


@dataclass(frozen=True, eq=False)
class WindowInput:
    """One window: the arguments of its forward pass (batch of 1), labels of input, decoder and memory, its text.

    ``reading`` tells what became of the text: the special tokens around it, and line ends if they were changed.
    """

    arguments: Mapping[str, torch.Tensor]
    labels: Mapping[str, tuple[str, ...]]
    source: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)

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
        Tokens per window, special tokens included; None takes every text whole.
    windows
        How many; by default all of a list or batch, and up to 6 of a text. Several texts share them evenly.
    join
        Join the texts of a list into one, instead of one window per text.
    at_most
        Accept fewer windows than ``windows``.
    sample, seed
        Which windows of a text or run of token ids: "spread" evenly over it, the "first" ones, or "random" ones
        drawn with this seed.
    labels
        Whether the labels of dataset rows are passed to a classifier.
    """

    model: Any
    tokenizer: Any = None
    length: int | None = 256
    windows: int | None = None
    join: bool = False
    at_most: bool = False
    sample: str = "spread"
    seed: int = 0
    labels: bool = True

    def __post_init__(self) -> None:
        for name in ("length", "windows"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a positive integer, but is {value!r}.")
        self._sampler  # noqa: B018  raises for an unknown sample, whatever the inputs

    def read(self, inputs: Any) -> list[WindowInput]:
        """Return the windows of any kind of input, or raise one clear error."""
        windows = list(islice(self._any(inputs), self.windows))
        self._require_enough(len(windows), self.windows, "the input")
        if not windows:
            raise InputError("the input is empty: pass text, token ids or images.")
        return windows

    def _require_enough(self, found: int, wanted: int | None, what: str) -> None:
        if wanted is not None and found < wanted and not self.at_most:
            raise InputError(
                f"expected {counted(wanted, 'window')}{'' if self.length is None else f' of {self.length} tokens'}, "
                f"but {what} has only {found}: pass more input or fewer windows."
            )

    @property
    def _sampler(self) -> WindowSampler:
        return WindowSampler(self.length, self.sample, self.seed)

    def _any(self, inputs: Any) -> Iterator[WindowInput]:
        if isinstance(inputs, Mapping) or hasattr(inputs, "input_ids"):
            return self._rows(dict(inputs))
        if isinstance(inputs, Text):
            return self._sampled([inputs])
        if isinstance(inputs, (str, os.PathLike)):
            return self._text_or_file(inputs)
        if isinstance(inputs, (torch.Tensor, np.ndarray)):
            return self._array(inputs)
        if hasattr(inputs, "convert") and hasattr(inputs, "size"):  # a PIL image
            return self._images([inputs])
        if isinstance(inputs, Iterable):
            return self._collection(inputs)
        raise InputError(
            f"inputs must be text, text files, dataset rows, token ids or images, but is {type(inputs).__name__}."
        )

    def _text_or_file(self, inputs: str | os.PathLike[str]) -> Iterator[WindowInput]:
        if looks_at_images(self.model):
            if os.path.isdir(inputs):
                return self._collection(images_in(Path(inputs)))
            if isinstance(inputs, str) and not os.path.isfile(inputs):
                raise InputError(
                    f"{type(self.model).__name__} reads images, but {inputs[:60]!r} is not an image file."
                )
            return self._images([inputs])
        texts = texts_of(inputs)
        if texts is not None:
            return self._sampled(texts)
        if os.path.isdir(inputs):
            raise InputError(f"expected a text file, but {inputs} is a folder.")
        return self._images([inputs])

    def _collection(self, inputs: Iterable[Any]) -> Iterator[WindowInput]:
        if is_run_of_ids(inputs):  # the number of windows is not a number of tokens
            return self._array(np.asarray(inputs))
        sized = isinstance(inputs, Sequence) or hasattr(inputs, "__len__")
        limit = self.windows if self.windows is not None or sized else DEFAULT_WINDOWS
        rest = iter(inputs)
        # Joined texts may be short, so that the number of windows says nothing about how many are needed.
        items = list(rest if self.join else islice(rest, limit))
        if not items:
            raise InputError("the list of inputs is empty: pass texts, token ids or images.")
        first = items[0]
        if isinstance(first, (int, np.integer)):
            return self._array(np.asarray(items))
        if isinstance(first, Mapping) and "input_ids" in first:
            return (window for item in items for window in self._rows(_batched(item)))
        if isinstance(first, Mapping):
            return self._dataset_rows(items)
        if isinstance(first, (str, os.PathLike, Text)):
            # Windows of files are shared by all of them; strings are a window each.
            return self._texts(items if isinstance(first, str) else [*items, *rest])
        if isinstance(first, (Sequence, np.ndarray, torch.Tensor)) and np.ndim(np.asarray(first)) == 1:
            return (window for item in items for window in self._ids_as_row(item))
        if is_plain(self.model) and isinstance(first, (torch.Tensor, np.ndarray)):
            return (window for item in items for window in self._array(item))
        return self._images(items)

    def _texts(self, items: Sequence[Any]) -> Iterator[WindowInput]:
        """Sample files, all of them joined or each by itself; make one window of every string."""
        if looks_at_images(self.model) or all(_names_image(item) for item in items):
            return self._images(items)
        texts = texts_of(items)
        if self.join:
            contents = items if texts is None else [text.decoded(text.start, text.stop) for text in texts]
            joined = Text.of_string("\n\n".join(str(content) for content in contents))
            joined.changes.update(*(text.changes for text in texts or ()))
            texts = [joined]
        return self._each(items) if texts is None else self._sampled(texts)

    def _sampled(self, texts: Sequence[Text]) -> Iterator[WindowInput]:
        """Divide the windows evenly among texts, and take those of each text by the rule of the sample."""
        n = len(texts)
        if self.windows is not None and self.windows < n:
            raise InputError(
                f"windows (--windows) must be at least {n} for {n} texts, but is {self.windows}."
            )
        total = -(-DEFAULT_WINDOWS // n) * n if self.windows is None else self.windows
        for number, text in enumerate(texts):
            share = total // n + (number < total % n)
            found = self._sampler.of_text(text, self.tokenizer, share)
            self._require_enough(len(found), self.windows and share, str(text))
            yield from (self._window(ids, text) for ids in found)

    def _each(self, texts: Sequence[Any]) -> Iterator[WindowInput]:
        sampler = WindowSampler(self.length, "first")
        for number, content in enumerate(texts):
            text = Text.of_string(str(content))
            try:
                yield self._window(sampler.of_text(text, self.tokenizer, 1)[0], text)
            except InputError as error:
                raise InputError(
                    f"text {number} of the list: {error} (join=True joins the texts; length=None takes each whole.)"
                ) from error

    def _dataset_rows(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[WindowInput]:
        """Make one window of every row of a dataset, with its label where the model is a classifier."""
        column = next((name for name in IMAGE_COLUMNS if name in rows[0]), None) or column_of(rows[0])
        items = [row[column] for row in rows]
        windows = self._images(items) if column in IMAGE_COLUMNS else self._texts(items)
        label = next((name for name in LABEL_COLUMNS if name in rows[0]), None)
        if label is None or not self.labels or self.join or task_of(self.model) != "label":
            return windows
        numbers = [self._label_number(row[label]) for row in rows]
        return (
            replace(window, arguments={**window.arguments, "labels": torch.tensor([number])})
            for window, number in zip(windows, numbers, strict=True)
        )

    def _label_number(self, label: Any) -> int:
        known = dict(getattr(config_of(self.model), "label2id", None) or {})
        if isinstance(label, str):
            if label not in known:
                raise InputError(f"labels must be among {', '.join(map(str, known))}, but one is {label!r}.")
            return int(known[label])
        return int(label)

    def _array(self, inputs: Any) -> Iterator[WindowInput]:
        array = inputs.detach().cpu().numpy() if isinstance(inputs, torch.Tensor) else inputs
        if array.dtype.kind in "iu" and array.ndim == 1 and array.size:
            found = self._sampler.of_ids(array, self.windows or DEFAULT_WINDOWS)
            return (self._window(ids) for ids in found)
        if array.dtype.kind in "iu" and array.ndim == 2 and array.size:
            return (window for row in array for window in self._ids_as_row(row))
        if is_plain(self.model):
            return self._rows({main_argument(self.model): inputs})
        return self._images([array])

    def _ids_as_row(self, row: Any) -> Iterator[WindowInput]:
        ids = np.asarray(row)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or not ids.size:
            raise InputError(f"token ids must be rows of integers, but one row is {str(row)[:60]}.")
        yield self._window(ids.astype(np.int64))

    def _window(self, ids: np.ndarray, text: Text | None = None) -> WindowInput:
        window = next(self._rows({"input_ids": torch.from_numpy(np.ascontiguousarray(ids))[None]}))
        if text is None:
            return window
        reading: dict[str, Any] = {"special_tokens": special_token_names(self.tokenizer)}
        if text.changes:
            reading["newlines"] = ", ".join(sorted(text.changes))
        return replace(window, source=text.name, reading=reading)

    def _rows(self, batch: dict[str, Any]) -> Iterator[WindowInput]:
        """Cut a batch of forward arguments into its rows, taken as they are."""
        batch = dict(rows_first(self.model, batch)) if is_plain(self.model) else batch
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
        config = config_of(self.model).get_text_config()
        for name in ("input_ids", "decoder_input_ids", MEMORY):
            ids = arguments.get(name)
            if ids is None:
                continue
            vocabulary = getattr(config, "vocab_size", None)
            if vocabulary is not None and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
                raise InputError(
                    f"token ids must be from 0 to {vocabulary - 1}, but range from {int(ids.min())} to "
                    f"{int(ids.max())}: use this model's own tokenizer."
                )
            places = getattr(config, "max_position_embeddings", None)
            if isinstance(places, int) and 0 < places < ids.shape[1]:  # XLNet says -1: no limit
                raise InputError(
                    f"this model takes at most {places} tokens, but a window has {ids.shape[1]}: choose a length "
                    f"(--length) of {places} or less."
                )

    def _add_decoder(self, arguments: dict[str, torch.Tensor]) -> None:
        """Let an encoder-decoder model repeat its input: the decoder sees the same tokens, one place later."""
        config = config_of(self.model)
        missing = "input_ids" in arguments and "decoder_input_ids" not in arguments
        if missing and getattr(config, "is_encoder_decoder", False):
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
            ("memory", MEMORY, ""),
        ):
            if name in arguments:
                ids = arguments[name][0]
                if mask in arguments and arguments[mask].shape[1] == len(ids):
                    ids = ids[arguments[mask][0].bool().cpu()]
                labels[side] = token_labels(ids.tolist(), self.tokenizer)
        if "pixel_values" in arguments and not is_plain(self.model):
            labels["pixels"] = image_labels(self.model.config)
        return labels

    def _images(self, images: Sequence[Any]) -> Iterator[WindowInput]:
        if not looks_at_images(self.model):
            raise InputError(
                f"images need a vision model, but {type(self.model).__name__} reads "
                f"{getattr(self.model, 'main_input_name', 'something else')}."
            )
        for pixels in image_windows(images, self.model, self.tokenizer):
            arguments = {"pixel_values": pixels}
            yield WindowInput(arguments, self._labels(arguments))


def _names_image(item: Any) -> bool:
    return isinstance(item, (str, os.PathLike)) and is_image_file(item)


def looks_at_images(model: Any) -> bool:
    """Tell whether the main input of a model is an image."""
    return str(getattr(model, "main_input_name", "")) == "pixel_values"


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
