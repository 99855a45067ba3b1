"""What a stage of the analysis is: work on one window (or on the model), and a summary over all of them.

A stage joins the analysis by one entry in :mod:`headscape.study.stages`. What it computes for a window is a
:class:`Result`, arrays and a few words, which is written as one part of the study's store: a run that was
killed goes on with the next part.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from headscape.engine import Progress, no_progress
from headscape.geometry.organization import Organization
from headscape.notices import Notice
from headscape.tensor.capture import Capture
from headscape.tensor.network_tensor import NetworkTensor
from headscape.tensor.store import Part, PartWriter

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Result:
    """What a stage found in one window: arrays, and attributes that JSON can hold."""

    arrays: Mapping[str, NDArray[Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def write(self, part: PartWriter) -> None:
        """Write into a part of a store."""
        for name, array in self.arrays.items():
            part.array(name, array)
        part.attributes(**self.attributes)

    @classmethod
    def read(cls, part: Part) -> "Result":
        """Read what :meth:`write` wrote."""
        return cls({name: part.array(name) for name in part.names()}, part.attributes)


class Material:
    """What all stages work on: the capture, the organizations of its windows, the parameters, the model.

    Parameters
    ----------
    capture
        Queries and keys of every window.
    parameters
        Everything that changes results.
    organizations
        One per window; they may arrive while the analysis runs.
    loaded
        The model with its tokenizer, if it is at hand: only stages that look at weights or run the model need it.
    inputs
        What was captured from, if the model is at hand.
    folder
        Of the study, if it has one.
    """

    def __init__(
        self,
        capture: Capture,
        parameters: Mapping[str, Any],
        organizations: Iterable[Organization] = (),
        loaded: Any = None,
        inputs: Any = None,
        folder: Path | None = None,
    ) -> None:
        self.capture = capture
        self.parameters = parameters
        self.organizations = list(organizations)
        self.loaded, self.inputs, self.folder = loaded, inputs, folder
        self.progress: Progress = no_progress
        self._tensor: tuple[int, str, NetworkTensor] | None = None

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """All (layer, head) pairs, layer-major."""
        return self.capture.heads

    def tensor(self, window: int, name: str) -> NetworkTensor:
        """Return a field of a window; the last one is kept, because stages ask for the same in turn."""
        if self._tensor is None or self._tensor[:2] != (window, name):
            self._tensor = None
            self._tensor = (window, name, self.capture.tensor(window, name))
        return self._tensor[2]

    def frame(self, columns: Mapping[str, Any]) -> "pd.DataFrame":
        """Return columns of the head table, indexed by (layer, head)."""
        import pandas as pd

        index = pd.MultiIndex.from_tuples(list(self.heads), names=["layer", "head"])
        return pd.DataFrame({name: list(values) for name, values in columns.items()}, index=index)


@dataclass(frozen=True, eq=False)
class Summary:
    """What a stage says over all windows.

    Parameters
    ----------
    columns
        Its columns of the head table, indexed by (layer, head).
    findings
        Sentences made from its numbers, the most important first.
    warnings
        Named states in which its results say little.
    detail
        The stage's own result type, for those who want more than columns.
    headlines
        How many of the findings are among the first that a reader sees.
    """

    columns: "pd.DataFrame"
    findings: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()
    detail: Any = None
    headlines: int = 1


@dataclass(frozen=True)
class Stage:
    """One stage of the analysis.

    Parameters
    ----------
    name
        As in ``--stages`` and in the names of its parts.
    doing
        What the progress display says, for example "measuring entropies".
    run
        Called as ``run(material, window)`` for every window, or once with 0 if not ``per_window``.
    summarize
        Called as ``summarize(material, results)``; cheap, since it is repeated whenever a study is loaded.
    cost
        How long one run takes compared with the others; only the estimate of the time left depends on it.
    per_window
        Whether it runs on every window, or once for the model.
    by_default
        Whether it runs without being asked for; long ones do not.
    """

    name: str
    doing: str
    run: Callable[[Material, int], Result]
    summarize: Callable[[Material, Sequence[Result]], Summary]
    cost: float = 1.0
    per_window: bool = True
    by_default: bool = True

    def part(self, window: int) -> str:
        """Return the name of the part that holds the result for a window."""
        return f"{self.name}-window-{window:05d}" if self.per_window else self.name
