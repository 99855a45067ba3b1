"""The folder of a study: what is finished in it, and how it is written part by part.

OUT/
headscape.json, parts/     the study's store: one part per stage and piece of work, such as energy-window-00003
capture/ or tensors/       the windows
heads.csv, heads.json      the head table; summary.json, report.html, figures/
"""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from headscape.errors import FileFormatError, InputError, StorageError
from headscape.study.stages import STAGES
from headscape.study.stages.context import Context, Data
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Stage
from headscape.tensor.capture import Capture
from headscape.tensor.store import Store
from headscape.tensor.tensor_windows import TensorWindows

KIND, NUMBER = "study", 2
CAPTURE, TENSORS = "capture", "tensors"


class StudyFolder:
    """Keeps finished pieces of a study: in memory, and in a folder if there is one.

    A folder that was started with other parameters, or for other input, is refused.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, parameters: Mapping[str, Any], input_hash: str
    ) -> None:
        self.path = None if path is None else Path(path)
        self._parameters, self._hash = parameters, input_hash
        self._store: Store | None = None
        self._open = ExitStack()
        self._results: dict[str, Result] = {}

    def __enter__(self) -> Self:
        if self.path is not None:
            made: Any = {"parameters": self._parameters, "input_hash": self._hash}
            store = Store.create(self.path, KIND, NUMBER, **made, seed=self._parameters["seed"])
            self._store = self._open.enter_context(store)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def has(self, part: str) -> bool:
        """Tell whether a part is finished."""
        return part in self._results or (self._store is not None and self._store.has(part))

    def has_sound(self, part: str) -> bool:
        """Tell whether a part is finished and undamaged; one that is damaged is discarded, to be computed again."""
        return part in self._results or (self._store is not None and self._store.sound(part))

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

    def require_same_options(self, stage: Stage, options: Mapping[str, Any]) -> None:
        """Raise if a piece of a stage was finished with other options than these."""
        stored = () if self._store is None else self._store.parts()
        finished = [part for part in (*self._results, *stored) if part.split("-")[0] == stage.name]
        if not finished:
            return
        # An option that the stage did not have when it was finished had its default.
        known = {**stage.defaults(), **self.read(finished[0]).attributes.get("options", {})}
        before, wanted = (json.loads(json.dumps(dict(of))) for of in (known, options))
        changed = [name for name in wanted if before.get(name) != wanted[name]]
        if changed:
            old, new = (", ".join(f"{name}={of.get(name)!r}" for name in changed) for of in (before, wanted))
            raise StorageError(
                f"{self.path} was started with {old}, now {new}. Use another folder or delete this one."
            )

    def finished(self, context: Context) -> dict[str, tuple[Result, ...]]:
        """Return the results of all stages whose pieces are all there."""
        found = {}
        for stage in STAGES:
            parts = [stage.part(piece) for piece in stage.pieces(context)]
            if all(self.has(part) for part in parts):
                found[stage.name] = tuple(self.read(part) for part in parts)
        return found


def stage_results(store: Store, stage: Stage, context: Context, folder: Path) -> tuple[Result, ...] | None:
    """Return the results of a stage, None if it did not run; a stage that did not run to its end is refused."""
    parts = [stage.part(piece) for piece in stage.pieces(context)]
    finished = [part for part in parts if store.has(part)]
    if finished and len(finished) < len(parts):
        raise FileFormatError(
            f"{folder} is unfinished: {len(finished)} of {len(parts)} pieces of the stage {stage.name!r} are there. "
            "Run the same analysis again: it resumes."
        )
    return tuple(Result.read(store.read(part)) for part in parts) if finished else None


def save_data(data: Data, folder: Path) -> Data:
    """Write the windows of a study into its folder, those that are not there yet, and return them as they are there."""
    if isinstance(data, Capture):
        return data.save(folder / CAPTURE)
    data.save(folder / TENSORS)
    return TensorWindows.load(folder / TENSORS)


def load_data(folder: Path, parameters: Mapping[str, Any]) -> Data:
    """Open the windows of a study."""
    stored = folder / TENSORS
    data: Data = TensorWindows.load(stored) if stored.is_dir() else Capture.load(folder / CAPTURE)
    if data.n_windows < (parameters["windows"] or 1):
        raise FileFormatError(
            f"{folder} is incomplete: {data.n_windows} of {parameters['windows']} windows are there. Run the same "
            "analysis again: it resumes."
        )
    return limited(data, parameters)


def limited(data: Data, parameters: Mapping[str, Any]) -> Data:
    """Return the windows, the stack, the layers and the heads that an analysis was asked for."""
    count = min(data.n_windows, parameters["windows"] or data.n_windows)
    chosen = data.select(parameters["stack"], windows=range(count))
    layers, heads = parameters["layers"], parameters["heads"]
    if heads is None and layers is None:
        return chosen
    pairs = list(chosen.heads) if heads is None else [(int(layer), int(head)) for layer, head in heads]
    if layers is not None:
        pairs = [pair for pair in pairs if pair[0] in layers]
    if not pairs:
        raise InputError("no head is left: layers and heads must have heads in common.")
    return chosen.select(heads=pairs)
