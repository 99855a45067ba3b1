"""Pieces of an analysis as tasks of an engine: here, in another process, on another machine."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headscape.engine import no_progress
from headscape.engine.blas import one_blas_thread
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.study.stages.context import Context
from headscape.study.stages.geometry import organization_of
from headscape.study.stages.result import Result
from headscape.study.stages.stage import NotApplicableError, NotExposedError, Stage


def measured(stage: Stage, context: Context, piece: int, asked: frozenset[str]) -> Result:
    """Measure one piece, with the seconds it took and its options; stages that were asked for must be possible."""
    start = time.perf_counter()
    try:
        found = stage.measure(context, piece)
    except NotApplicableError as error:
        exposed = not isinstance(error, NotExposedError)
        if stage.name in asked and exposed and not stage.optional:
            raise InputError(f"the stage {stage.name!r} cannot run: {error}") from error
        found = Result(attributes={"missing": str(error)})
    extra = {"seconds": time.perf_counter() - start, "options": context.options[stage.name]}
    return Result(found.arrays, {**found.attributes, **extra}, found.tables)


@dataclass(frozen=True, eq=False)
class Work:
    """What is still to be measured of a window or a layer: the stages, and the window's geometry if that is done."""

    piece: int
    stages: tuple[str, ...]
    geometry: Result | None = None


class PieceRun:
    """Measures windows or layers wherever it is sent; it holds the context, without what only this process has.

    ``keep`` is called with every result as soon as it is there, in the thread that measured it.
    """

    def __init__(
        self,
        context: Context,
        stages: Sequence[Stage],
        asked: frozenset[str],
        keep: Callable[[str, Result], None] | None = None,
    ) -> None:
        self._context = replace(context, progress=no_progress, cache=None)
        self._stages, self._asked = {stage.name: stage for stage in stages}, asked
        self._keep = keep

    def __call__(self, work: Work) -> Mapping[str, Result]:
        """Return the results of all stages of a piece, by the name of their part."""
        # A cache of its own: several threads of a worker may hold the same context.
        context = replace(self._context, cache=None)
        if work.geometry is not None:
            context = _with_organization(context, work.piece, organization_of(work.geometry))
        found: dict[str, Result] = {}
        with one_blas_thread():
            for name in work.stages:
                stage = self._stages[name]
                result = found[stage.part(work.piece)] = measured(stage, context, work.piece, self._asked)
                if self._keep is not None:
                    self._keep(stage.part(work.piece), result)
                if name == "geometry":
                    context = _with_organization(context, work.piece, organization_of(result))
        return found


def _with_organization(context: Context, window: int, organization: Organization) -> Context:
    """Return a context in which one window is organized; no stage of a window asks for those of others."""
    unknown: Any = None
    return dataclasses.replace(context, organizations=(*(unknown,) * window, organization))
