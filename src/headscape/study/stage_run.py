"""How the stages of an analysis run: window by window, in order, leaving out what is finished."""

import dataclasses
import os
import threading

from headscape.engine import LocalEngine, no_progress
from headscape.study.folder import StudyFolder
from headscape.study.piece_run import PieceRun, Work, measured
from headscape.study.stages.context import Context
from headscape.study.stages.cost import parameters_of, size_of_data
from headscape.study.stages.geometry import organization_of
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Outcome, Stage
from headscape.study.weighted_progress import WeightedProgress

SHORT = 0.5
"""Windows that are expected to take fewer seconds than this are measured one after the other."""
TENSORS = 10
"""Arrays of the size of a window's tensor that its stages hold at once."""


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
        todo = [
            (s, i)
            for s in self.stages
            for i in s.pieces(self.context)
            if not self.folder.has_sound(s.part(i))
        ]
        self.told.plan(sum(self._seconds(stage) for stage, _ in todo))
        self._spread("window")
        self._abreast()
        for window in range(n):
            for stage in self.stages:
                if stage.unit == "window":
                    self._piece(stage, window, f"{stage.doing}, window {window + 1} of {n}")
        self._spread("layer")
        self._side_by_side()
        for stage in self.stages:
            if stage.unit != "window":
                pieces = stage.pieces(self.context)
                for place, piece in enumerate(pieces):
                    where = f", layer {place + 1} of {len(pieces)}" if stage.unit == "layer" else ""
                    self._piece(stage, piece, f"{stage.doing}{where}")
        return self.folder.finished(self.context)

    def _spread(self, unit: str) -> None:
        """Measure several windows or layers at once on an engine of other processes, each whole; write as they come."""
        engine, stages = self.context.engine, [stage for stage in self.stages if stage.unit == unit]
        pieces = stages[0].pieces(self.context) if stages else ()
        work = [self._work(piece, stages) for piece in pieces]
        work = [one for one in work if one.stages]
        if not engine.remote or len(work) < 2:  # one piece is cut into blocks instead
            return
        cost = sum(self._seconds(stage) for stage in stages for one in work if stage.name in one.stages)
        with self.told.step(f"measuring {len(work)} {unit}s on {engine.workers} workers", cost) as tell:
            earlier = {name: said for stage in stages for name, said in self._needed(stage).items()}
            run = PieceRun(dataclasses.replace(self.context, earlier=earlier), stages, self.asked)
            for done, found in enumerate(engine.map(run, work)):
                for part, result in found.items():
                    self.folder.write(part, result)
                tell(unit, done + 1, len(work))

    def _abreast(self) -> None:
        """Measure several windows at once on threads, each window on one; write every result when it is there.

        Much of a window is work for one core. Windows take turns where they are short, or memory is.
        """
        stages = [stage for stage in self.stages if stage.unit == "window" and stage.concurrent]
        work = [self._work(window, stages) for window in range(self.context.data.n_windows)]
        work = [one for one in work if one.stages]
        cost = sum(self._seconds(stage) for stage in stages for one in work if stage.name in one.stages)
        threads = min(self._windows_at_once(), len(work))
        if self.context.engine.remote or threads < 2 or cost < SHORT * len(work):
            return
        lock = threading.Lock()
        pieces, done = sum(len(one.stages) for one in work), 0
        with self.told.step(f"measuring {len(work)} windows, {threads} at a time", cost) as tell:

            def keep(part: str, result: Result) -> None:
                nonlocal done
                with lock:
                    self.folder.write(part, result)
                    done += 1
                    tell("window", done, pieces)

            run = PieceRun(self.context, stages, self.asked, keep)
            for _ in LocalEngine(threads).map(run, work):
                pass

    def _side_by_side(self) -> None:
        """Measure stages over all windows that do without the model on threads, each on one."""
        stages = [
            stage
            for stage in self.stages
            if stage.unit == "model" and stage.concurrent and not self.folder.has(stage.part(0))
        ]
        threads = min(self._windows_at_once(), len(stages))
        if self.context.engine.remote or threads < 2:
            return
        # Each has a cache of its own: threads would take its windows from each other.
        contexts = [
            dataclasses.replace(self.context, earlier=self._needed(stage), progress=no_progress, cache=None)
            for stage in stages
        ]

        def run(place: int) -> Result:
            return measured(stages[place], contexts[place], 0, self.asked)

        cost = sum(self._seconds(stage) for stage in stages)
        with self.told.step(", ".join(stage.doing for stage in stages), cost) as tell:
            for done, found in enumerate(LocalEngine(threads).map(run, range(len(stages)))):
                self.folder.write(stages[done].part(0), found)
                tell("stage", done + 1, len(stages))

    def _windows_at_once(self) -> int:
        """Return how many windows the threads may measure at once: they take at most half of the memory."""
        window = 4 * self._size.heads * self._size.tokens**2 * TENSORS
        return min(self.context.engine.workers, max(1, _memory() // 2 // window))

    def _work(self, piece: int, stages: list[Stage]) -> Work:
        """Return what is missing of a piece."""
        missing = tuple(stage.name for stage in stages if not self.folder.has(stage.part(piece)))
        done = [s for s in stages if s.name == "geometry" and missing and s.name not in missing]
        return Work(piece, missing, self.folder.read(done[0].part(piece)) if done else None)

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
                context = dataclasses.replace(self.context, progress=tell, earlier=self._needed(stage))
                self.folder.write(part, measured(stage, context, piece, self.asked))
        if stage.name == "geometry":
            organizations = (*self.context.organizations, organization_of(self.folder.read(part)))
            self.context = dataclasses.replace(self.context, organizations=organizations)


def _memory() -> int:
    """Return the bytes of this machine's memory, or 4 GiB where the system does not say."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return 4 << 30
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
