"""What every stage works on: the windows, their organizations, the model if it is at hand, and how work is spread."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscape.engine import Engine, LocalEngine, Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.models.loading import Model
from headscape.tensor.capture import Capture
from headscape.tensor.network_tensor import WITHOUT_SINKS, NetworkTensor
from headscape.tensor.sinks import at_points_of
from headscape.tensor.tensor_windows import TensorWindows

if TYPE_CHECKING:
    from headscape.study.stages.stage import Outcome

Data = Capture | TensorWindows


class WindowCache:
    """The window that is being worked on: its layers are decompressed once, its last field is kept."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._window: tuple[int, Data] | None = None
        self._tensor: tuple[int, str, NetworkTensor] | None = None

    def window(self, number: int) -> Data:
        """Return one window in memory."""
        if self._window is None or self._window[0] != number:
            self._window = self._tensor = None
            self._window = (number, self._data.window(number))
        return self._window[1]

    def tensor(self, number: int, name: str) -> NetworkTensor:
        """Return a field of a window."""
        if self._tensor is None or self._tensor[:2] != (number, name):
            self._tensor = None
            self._tensor = (number, name, self.window(number).tensor(0, name))
        return self._tensor[2]


@dataclass(frozen=True, eq=False)
class Context:
    """What a stage is given; it changes nothing in it.

    Parameters
    ----------
    data
        The windows: a capture, or tensors from elsewhere.
    parameters
        What all stages share, such as the field and the seed.
    options
        Those of every stage, by its name.
    organizations
        One per window organized so far.
    earlier
        What the stages before it say, by their name: all of them when a stage sums up, those that it needs when a
        stage over all windows measures.
    model, inputs, arguments
        The model, what was captured from it, and that as the arguments of the forward pass of every window, if they
        are at hand.
    folder
        Of the study, if it has one.
    engine, progress
        How work is spread; progress callback.
    """

    data: Data
    parameters: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    organizations: tuple[Organization, ...] = ()
    earlier: "Mapping[str, Outcome]" = field(default_factory=dict)
    model: Model | None = None
    inputs: Any = None
    arguments: tuple[Mapping[str, Any], ...] = ()
    folder: Path | None = None
    engine: Engine = field(default_factory=LocalEngine)
    progress: Progress = no_progress
    cache: WindowCache | None = None

    def __post_init__(self) -> None:
        if self.cache is None:
            object.__setattr__(self, "cache", WindowCache(self.data))

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """All (layer, head) pairs, layer-major."""
        return self.data.heads

    @property
    def capture(self) -> Capture:
        """The capture, or an error if the analysis started from tensors."""
        return require_capture(self.data)

    def window(self, number: int) -> Data:
        """Return one window in memory, read once however many stages ask for it."""
        assert self.cache is not None  # set above
        return self.cache.window(number)

    def tensor(self, number: int, name: str) -> NetworkTensor:
        """Return a field of a window; the last one is kept."""
        assert self.cache is not None  # set above
        return self.cache.tensor(number, name)

    def organized_tensor(self, number: int, name: str) -> NetworkTensor:
        """Return a field of a window at the points that its trees have: all, or all but sinks that are left out."""
        x, organized = self.tensor(number, name), self.parameters["field"]
        return x if organized != WITHOUT_SINKS else at_points_of(x, self.tensor(number, organized))

    def frame(self, columns: Mapping[str, Any]) -> "pd.DataFrame":
        """Return columns of the head table, indexed by (layer, head)."""
        index = pd.MultiIndex.from_tuples(list(self.heads), names=["layer", "head"])
        return pd.DataFrame({name: list(values) for name, values in columns.items()}, index=index)


def require_capture(data: Data) -> Capture:
    """Return the data if they are a capture, or raise: tensors hold no queries and keys."""
    if not isinstance(data, Capture):
        raise InputError(
            "this needs queries and keys, but only tensors were given: pass a model or a capture of it."
        )
    return data
