"""Network tensors from elsewhere, one per window: what a capture offers, as far as tensors can offer it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from headscape.errors import FileFormatError, InputError
from headscape.tensor.capture import window_name
from headscape.tensor.files import load_tensor, save_tensor
from headscape.tensor.network_tensor import WITHOUT_SINKS, NetworkTensor
from headscape.tensor.sinks import without_sinks
from headscape.tensor.store import content_hash

Loader = Callable[[], NetworkTensor]


class TensorWindows:
    """The windows of an analysis that starts from tensors in place of queries and keys.

    Parameters
    ----------
    tensors
        One network tensor per window, all with the same heads, or functions that load them; of those only the
        last stays in memory.
    provenance
        Where they come from.

    Examples
    --------
    >>> windows = TensorWindows([NetworkTensor(np.ones((4, 4, 2)), field="probs")])
    >>> windows.n_windows, windows.heads, windows.field
    (1, ((0, 0), (0, 1)), 'probs')
    """

    stack = "self"

    def __init__(
        self, tensors: Sequence[NetworkTensor | Loader], provenance: Mapping[str, Any] | None = None
    ) -> None:
        if not tensors:
            raise InputError("an analysis needs at least one tensor, but none was given.")
        self._tensors = tuple(tensors)
        self._loaded: tuple[int, NetworkTensor] | None = None
        self.provenance: Mapping[str, Any] = dict(provenance or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open the windows that :meth:`save` wrote."""
        folders = sorted(folder for folder in Path(path).glob("window-*") if folder.is_dir())
        if [folder.name for folder in folders] != [window_name(i) for i in range(len(folders))]:
            raise FileFormatError(f"{path} lacks a window between others: run the same analysis again.")
        return cls([partial(load_tensor, folder.absolute()) for folder in folders])

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return len(self._tensors)

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """All (layer, head) pairs, layer-major."""
        return tuple(self._read(0).heads)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers."""
        return tuple(dict.fromkeys(layer for layer, _ in self.heads))

    @cached_property
    def field(self) -> str:
        """What the numbers are."""
        return self._read(0).field

    @cached_property
    def input_hash(self) -> str:
        """A hash of all windows."""
        hashes = "".join(content_hash(self._read(window).data) for window in range(self.n_windows))
        return content_hash(np.frombuffer(hashes.encode(), dtype=np.uint8))

    def window(self, window: int) -> "TensorWindows":
        """Return one window as windows of its own."""
        return TensorWindows([self._tensor(window)], self.provenance)

    def select(
        self,
        stack: str | None = None,
        *,
        heads: Iterable[tuple[int, int]] | None = None,
        windows: Sequence[int] | None = None,
    ) -> "TensorWindows":
        """Return the same limited to some windows or heads."""
        if stack not in (None, self.stack):
            raise InputError(f"tensors have one stack, {self.stack!r}, but {stack!r} was asked for.")
        chosen = self._tensors if windows is None else [self._tensors[window] for window in windows]
        if heads is not None:
            pairs = sorted((int(layer), int(head)) for layer, head in heads)
            chosen = [_limited(self._tensor(w), pairs) for w in (windows or range(self.n_windows))]
        return TensorWindows(chosen, self.provenance)

    def tensor(self, window: int, field: str | None = None) -> NetworkTensor:
        """Return the tensor of a window: the field that it holds, or of probabilities also those without sinks."""
        x = self._tensor(window)
        if field == WITHOUT_SINKS and x.field == "probs":
            return without_sinks(x)
        if field is not None and field != x.field:
            raise InputError(
                f"the tensors hold {x.field!r}, but {field!r} is needed: pass a capture or a model, which have all "
                "fields, or name the field of the file (--field)."
            )
        return x

    def tokens(self, window: int) -> tuple[str, ...]:
        """Return the token strings of the queries of a window; empty if unknown."""
        return tuple(self._tensor(window).tokens or ())

    def key_tokens(self, window: int) -> tuple[str, ...]:
        """Return the token strings of the keys of a window; empty if unknown."""
        return tuple(self._tensor(window).key_tokens or ())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the windows to a folder, those that are not there yet."""
        for window in range(self.n_windows):
            save_tensor(self._tensor(window), Path(path) / window_name(window))

    def __repr__(self) -> str:
        return f"TensorWindows({self.n_windows} windows, {len(self.heads)} heads, field={self.field!r})"

    def _tensor(self, window: int) -> NetworkTensor:
        if not 0 <= window < self.n_windows:
            raise InputError(f"window must be from 0 to {self.n_windows - 1}, but is {window!r}.")
        x = self._read(window)
        if tuple(x.heads) != self.heads or x.field != self.field:
            raise InputError(
                f"all tensors must have the same heads and field, but the first has {len(self.heads)} heads of "
                f"{self.field!r} and number {window + 1} has {len(x.heads)} of {x.field!r}, or other heads."
            )
        return x

    def _read(self, window: int) -> NetworkTensor:
        given = self._tensors[window]
        if isinstance(given, NetworkTensor):
            return given
        loaded = self._loaded  # threads of a worker may share the windows
        if loaded is None or loaded[0] != window:
            self._loaded = None
            self._loaded = loaded = (window, given())
        return loaded[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads files itself."""
        return type(self), (self._tensors, self.provenance)


def _limited(x: NetworkTensor, pairs: Sequence[tuple[int, int]]) -> NetworkTensor:
    data = np.stack([x.head(*pair) for pair in pairs], axis=2)
    return NetworkTensor(data, pairs, x.tokens, x.key_tokens, x.field, x.provenance)
