"""The windows that a study goes through: those of a capture, or a list of tensors."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.tensor.network_tensor import NetworkTensor


@runtime_checkable
class Windows(Protocol):
    """What a study needs of a capture: its windows as network tensors of a field."""

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        ...

    def tensor(self, window: int, field: str = "probs") -> NetworkTensor:
        """Return the network tensor of a window."""
        ...


def staged(progress: Progress, stage: str) -> Progress:
    """Return a progress that puts ``stage`` before every stage it is told of."""
    if progress is no_progress:
        return no_progress
    return lambda inner, done, total: progress(f"{stage}: {inner}", done, total)


class WindowSource:
    """The windows of a capture or of a list, one at a time, checked to have the same heads."""

    def __init__(self, windows: Any, fields: Sequence[str] = (), n_windows: int | None = None) -> None:
        if isinstance(windows, np.ndarray) and windows.ndim > 3:
            raise InputError(
                f"windows must be a capture or a list of tensors, but is one array of shape {windows.shape}. For "
                "stacked attentions of one window pass [NetworkTensor.from_layers(x)], for several windows of "
                "(query, key, head) pass list(x)."
            )
        if isinstance(windows, NetworkTensor) or (isinstance(windows, np.ndarray) and windows.ndim == 3):
            windows = [windows]
        self._windows = windows
        self.count = windows.n_windows if isinstance(windows, Windows) else len(windows)
        if self.count == 0:
            raise InputError("windows must hold at least one window, but is empty.")
        if n_windows is not None:
            if not 1 <= n_windows <= self.count:
                raise InputError(f"n_windows must be from 1 to {self.count}, but is {n_windows}.")
            self.count = n_windows
        if fields and not isinstance(windows, Windows):
            raise InputError(
                f"fields={list(fields)} needs a capture, which can give every field, but windows is a list of "
                "tensors. Run one study per field instead."
            )
        self._heads: tuple[tuple[int, int], ...] | None = None

    def tensor(self, window: int, field: str) -> NetworkTensor:
        """Return one window; lists give their tensors whatever the field."""
        source = self._windows
        given = source.tensor(window, field) if isinstance(source, Windows) else source[window]
        x = given if isinstance(given, NetworkTensor) else NetworkTensor(given)
        if x.data.ndim != 3:
            raise InputError(
                f"window {window} must have the axes query, key, head, but its shape is {x.shape}. A study "
                "ranks several heads; for one head use head_entropy."
            )
        heads = tuple(x.heads)
        if self._heads is None:
            self._heads = heads
        if heads != self._heads:
            raise InputError(
                f"all windows must have the same heads, but window {window} has {len(heads)} heads and the "
                f"first has {len(self._heads)}, or they are others."
            )
        return x

    def labels(self, field: str) -> tuple[tuple[tuple[int, int], ...], str]:
        """Return the heads, and the field that the tensors say they hold."""
        first = self.tensor(0, field)
        return tuple(first.heads), first.field

    def mean(self, field: str) -> NetworkTensor:
        """Return the mean over all windows."""
        first = self.tensor(0, field)
        total = np.array(first.data)
        for window in range(1, self.count):
            data = self.tensor(window, field).data
            if data.shape != total.shape:
                raise InputError(
                    f"shared trees need windows of one shape, but window {window} has {data.shape} and the "
                    f"first has {total.shape}. Use trees='per_window'."
                )
            total += data
        return NetworkTensor(total / self.count, heads=first.heads, field=first.field)
