"""How the stages of an analysis run: window by window, in order, leaving out what is finished."""

import dataclasses
import time

from headscape.errors import InputError
from headscape.study.folder import StudyFolder
from headscape.study.stages.context import Context
from headscape.study.stages.cost import parameters_of, size_of_data
from headscape.study.stages.geometry import organization_of
from headscape.study.stages.result import Result
from headscape.study.stages.stage import NotApplicableError, NotExposedError, Outcome, Stage
from headscape.study.weighted_progress import WeightedProgress


class StageRun:
    """Runs stages window by window, leaving out what is finished; those asked for by name must be possible."""

    def __init__(
        self,
        context: Context,
        stages: tuple[Stage, ...],
        folder: StudyFolder,
        told: WeightedProgress,
        asked: frozenset[str],
    ) -> None:
        self.context, self.stages, self.folder, self.told, self.asked = context, stages, folder, told, asked
        self._size = size_of_data(context.data, parameters=parameters_of(context.model))

    def all(self) -> dict[str, tuple[Result, ...]]:
        """Run everything, and return the results of all stages that are finished."""
        n = self.context.data.n_windows
        todo = [(s, i) for s in self.stages for i in s.pieces(self.context) if not self.folder.has(s.part(i))]
        self.told.plan(sum(self._seconds(stage) for stage, _ in todo))
        for window in range(n):
            for stage in self.stages:
                if stage.unit == "window":
                    self._piece(stage, window, f"{stage.doing}, window {window + 1} of {n}")
        for stage in self.stages:
            if stage.unit != "window":
                pieces = stage.pieces(self.context)
                for place, piece in enumerate(pieces):
                    where = f", layer {place + 1} of {len(pieces)}" if stage.unit == "layer" else ""
                    self._piece(stage, piece, f"{stage.doing}{where}")
        return self.folder.finished(self.context)

    def _seconds(self, stage: Stage) -> float:
        """Return what a piece is expected to cost; nothing at all would not move the display."""
        return max(0.01, stage.seconds(self._size, self.context.options[stage.name]))

    def _needed(self, stage: Stage) -> dict[str, Outcome]:
        """Return what the stages say that a stage over all windows needs."""
        if stage.unit == "window":
            return {}
        needed = [other for other in self.stages if other.name in stage.needs]
        results = {s.name: [self.folder.read(s.part(i)) for i in s.pieces(self.context)] for s in needed}
        return {s.name: s.outcome(self.context, results[s.name]) for s in needed}

    def _piece(self, stage: Stage, piece: int, text: str) -> None:
        """Measure one piece unless it is finished; a new organization joins the context."""
        part = stage.part(piece)
        if not self.folder.has(part):
            with self.told.step(text, self._seconds(stage)) as tell:
                start = time.perf_counter()
                try:
                    context = dataclasses.replace(self.context, progress=tell, earlier=self._needed(stage))
                    found = stage.measure(context, piece)
                except NotApplicableError as error:
                    exposed = not isinstance(error, NotExposedError)
                    if stage.name in self.asked and exposed and not stage.optional:
                        raise InputError(f"the stage {stage.name!r} cannot run: {error}") from error
                    found = Result(attributes={"missing": str(error)})
                extra = {
                    "seconds": time.perf_counter() - start,
                    "options": self.context.options[stage.name],
                }
                self.folder.write(part, Result(found.arrays, {**found.attributes, **extra}, found.tables))
        if stage.name == "geometry":
            organizations = (*self.context.organizations, organization_of(self.folder.read(part)))
            self.context = dataclasses.replace(self.context, organizations=organizations)
