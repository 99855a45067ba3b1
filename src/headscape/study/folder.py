"""The folder of a study: what is finished in it, and how it is written part by part.

OUT/
headscape.json, parts/     the study's store: one part per stage and window
capture/                   queries and keys
organization-window-0/     the organization of each window
heads.csv, heads.json      the head table; summary.json, report.html, figures/
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headscape.geometry.organization import Organization
from headscape.study.stage import Result, Stage
from headscape.tensor.store import Store

KIND = "study"
CAPTURE = "capture"


def organization_path(folder: Path, window: int) -> Path:
    """Return where the organization of a window lies."""
    return folder / f"organization-window-{window}"


def organization_part(window: int) -> str:
    """Return the name of the part that says that the organization of a window is finished."""
    return f"organize-window-{window:05d}"


class StudyFolder:
    """Keeps finished parts of a study: in memory, and in a folder if there is one.

    Parameters
    ----------
    path
        The folder, or None to keep everything in memory.
    parameters, input_hash
        What the study is made from: a folder that was begun with others is refused.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, parameters: Mapping[str, Any], input_hash: str
    ) -> None:
        self.path = None if path is None else Path(path)
        self._parameters, self._hash = parameters, input_hash
        self._store: Store | None = None
        self._results: dict[str, Result] = {}

    def __enter__(self) -> Self:
        if self.path is not None:
            self._store = Store.create(
                self.path,
                KIND,
                parameters=self._parameters,
                input_hash=self._hash,
                seed=self._parameters["seed"],
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            self._store.__exit__(kind, error, trace)

    @property
    def capture_path(self) -> Path | None:
        """Where the capture goes."""
        return None if self.path is None else self.path / CAPTURE

    def has(self, part: str) -> bool:
        """Tell whether a part is finished."""
        return part in self._results or (self._store is not None and self._store.has(part))

    def read(self, part: str) -> Result:
        """Return a finished part."""
        if part not in self._results:
            assert self._store is not None  # has() said that it is finished
            self._results[part] = Result.read(self._store.read(part))
        return self._results[part]

    def write(self, part: str, result: Result) -> None:
        """Finish a part."""
        self._results[part] = result
        if self._store is not None and not self._store.has(part):
            with self._store.writing(part) as writer:
                result.write(writer)

    def organization(self, window: int) -> Organization | None:
        """Return the organization of a window if it is finished on disk."""
        if self.path is None or not self.has(organization_part(window)):
            return None
        return Organization.load(organization_path(self.path, window))

    def write_organization(self, window: int, organization: Organization, seconds: float) -> None:
        """Finish the organization of a window."""
        if self.path is not None:
            organization.save(organization_path(self.path, window))
        self.write(organization_part(window), Result({}, {"seconds": seconds}))

    def results(self, stage: Stage, n_windows: int) -> tuple[Result, ...] | None:
        """Return all results of a stage, or None if one is missing."""
        return stage_results(self, stage, n_windows)


def stage_results(source: Any, stage: Stage, n_windows: int) -> tuple[Result, ...] | None:
    """Return the results of a stage from anything with ``has`` and ``read``, or None if one is missing."""
    parts = [stage.part(window) for window in range(n_windows if stage.per_window else 1)]
    if not all(source.has(part) for part in parts):
        return None
    found = [source.read(part) for part in parts]
    return tuple(result if isinstance(result, Result) else Result.read(result) for result in found)
