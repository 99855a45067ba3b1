"""The result of an analysis: one table with a row per head, what it says in words, and everything behind it."""

import html
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.errors import FileFormatError, InputError
from headscape.geometry.head_geometry import HeadGeometry
from headscape.geometry.organization import Organization
from headscape.models.packaged import title_of
from headscape.notices import Notice
from headscape.output import counted
from headscape.report.page import write_page
from headscape.report.study_plots import StudyPlots
from headscape.study.display import page_data
from headscape.study.folder import (
    CAPTURE,
    KIND,
    NUMBER,
    TENSORS,
    StudyFolder,
    load_data,
    save_data,
    stage_results,
)
from headscape.study.stages import STAGES, stage_options
from headscape.study.stages.context import Context, Data, require_capture
from headscape.study.stages.finding import Finding, Question, as_finding
from headscape.study.stages.geometry import organization_of
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, Outcome, Stage
from headscape.study.tables import write_tables
from headscape.tensor.capture import Capture
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.store import Store

SUMMARY = "summary.json"


@dataclass(frozen=True, eq=False)
class Study:
    """What :func:`headscape.analyze` found.

    Parameters
    ----------
    data
        The windows: a capture, or tensors from elsewhere.
    results
        What each finished stage measured, piece by piece.
    parameters
        Everything that changes results and is shared by the stages.
    about
        What does not: the command, the license of the weights, times.
    folder
        Where it was read from, if it was.

    Notes
    -----
    ``heads`` is the table; ``study["entropy"]``, ``study["energy"]`` and so on are the results of the stages behind
    its columns. In a notebook a study shows itself.
    """

    data: Data
    results: Mapping[str, tuple[Result, ...]]
    parameters: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def is_in(self, folder: str | os.PathLike[str]) -> bool:
        """Tell whether this study was read from a folder."""
        return self.folder is not None and Path(folder).resolve() == self.folder.resolve()

    @property
    def capture(self) -> Capture:
        """Queries and keys of every window; an error if the analysis started from tensors."""
        return require_capture(self.data)

    @property
    def windows(self) -> int:
        """Number of windows."""
        return self.data.n_windows

    @cached_property
    def organizations(self) -> tuple[Organization, ...]:
        """Trees, EMDs and affinities of every window; empty if the stage "geometry" did not run."""
        return tuple(organization_of(result) for result in self.results.get("geometry", ()))

    @property
    def organization(self) -> Organization:
        """The organization of the first window; ``organizations`` has all."""
        if not self.organizations:
            raise InputError('this study has no geometry: run the analysis with the stage "geometry".')
        return self.organizations[0]

    @property
    def head_geometry(self) -> HeadGeometry:
        """Tree, EMDs and affinities of the heads over all windows, which the report shows."""
        if "folders" not in self:
            raise InputError('this study has no head geometry: run the analysis with the stage "folders".')
        geometry: HeadGeometry = self["folders"].geometry
        return geometry

    @cached_property
    def options(self) -> dict[str, dict[str, Any]]:
        """The options of every stage, as it ran."""
        options = stage_options({})
        for name, results in self.results.items():
            options[name] |= results[0].attributes.get("options", {})
        return options

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that are finished."""
        return tuple(stage for stage in STAGES if stage.name in self.results)

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """What each finished stage says over all windows, by its name."""
        found: dict[str, Outcome] = {}
        context = Context(self.data, self.parameters, self.options, self.organizations, earlier=found)
        for stage in self.stages:
            found[stage.name] = stage.outcome(context, self.results[stage.name])
        return found

    def __getitem__(self, stage: str) -> Any:
        """Return the result of a stage: ``study["entropy"]`` is an EntropyStudy, for example."""
        if stage not in self.outcomes or self.outcomes[stage].detail is None:
            have = ", ".join(name for name, outcome in self.outcomes.items() if outcome.detail is not None)
            raise KeyError(
                f"no result of a stage {stage!r}; this study has: {have or 'none'}. hs.analyze(study, out=its folder, "
                f"stages=[{stage!r}]) adds one."
            )
        return self.outcomes[stage].detail

    def __contains__(self, stage: str) -> bool:
        return stage in self.outcomes and self.outcomes[stage].detail is not None

    @cached_property
    def heads(self) -> pd.DataFrame:
        """One row per head, indexed by (layer, head): its place in the tree, and every measure."""
        context = Context(self.data, self.parameters)
        return pd.concat(
            [context.frame({}), *(outcome.columns for outcome in self.outcomes.values())], axis=1
        )

    @property
    def columns(self) -> dict[str, Column]:
        """What the columns of ``heads`` mean, by name."""
        known = {column.name: column for stage in self.stages for column in stage.columns}
        return {
            str(name): known.get(str(name), Column(str(name), str(name).replace("_", " "), ""))
            for name in self.heads
        }

    @cached_property
    def warnings(self) -> tuple[Notice, ...]:
        """Named states in which the geometry or the rankings say little."""
        return tuple(notice for outcome in self.outcomes.values() for notice in outcome.notices)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the numbers say, in sentences, in the order of the questions that they answer; tests before guesses."""
        stages = [[as_finding(sentence) for sentence in o.findings] for o in self.outcomes.values()]
        # Which heads do little is guessed first and tested by later stages: the test is the answer.
        found = [f for said in reversed(stages) for f in said if f.question is Question.little]
        found += [f for said in stages for f in said if f.question is not Question.little]
        return tuple(sorted(found, key=lambda finding: finding.question.place))

    @property
    def answers(self) -> dict[Question, tuple[Finding, ...]]:
        """The findings by the question that they answer, in the order in which people ask."""
        grouped = groupby(self.findings, key=lambda finding: finding.question)
        return {question: tuple(found) for question, found in grouped}

    @property
    def title(self) -> str:
        """The name of the model as people know it."""
        name = self.data.provenance.get("model", {}).get("name", "")
        return title_of(name) if name else "attention heads"

    @property
    def seconds(self) -> dict[str, float]:
        """The time each step took, in seconds, summed over its pieces."""
        spent: Counter[str] = Counter()
        for name, results in self.results.items():
            spent[name] += sum(result.attributes.get("seconds", 0.0) for result in results)
        return {**self.about.get("seconds", {}), **spent}

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, one HTML file that works offline, and return its path."""
        return write_page(page_data(self), Path(path))

    def figures(self, head: tuple[int, int] | None = None) -> dict[str, Any]:
        """Return the figures for papers by name, as matplotlib objects; ``head`` is shown where one is shown."""
        if head is not None:
            self._index(head)
        shown = [stage for stage in self.stages if not self.results[stage.name][0].missing]
        return {name: figure for stage in shown for name, figure in stage.figures(self, head).items()}

    @property
    def plot(self) -> StudyPlots:
        """Pictures on matplotlib axes: ``study.plot.map()``, ``.tree()``, ``.head(5, 3)``, ``.entropy()``."""
        return StudyPlots(self)

    def attention(
        self, layer: int, head: int, window: int = 0, *, organized: bool = False, field: str | None = None
    ) -> NDArray[Any]:
        """Return a field of one head in one window, (query, key).

        Parameters
        ----------
        layer, head, window
            Which head, in which window.
        organized
            In the order of the window's query and key trees.
        field
            "probs" (the default), "logits" or "energy"; tensors have only their own.
        """
        pair = (layer, head)
        self._index(pair)
        if isinstance(self.data, Capture):
            values = self.data.tensor(window, field or "probs", heads=[pair]).head(*pair)
        else:
            values = self.data.tensor(window, field).head(*pair)
        if not organized:
            return values
        self.organization  # noqa: B018  raises where there is none
        order = self.organizations[window].order
        return np.asarray(values[np.ix_(order["query"], order["key"])])

    def summary(self) -> dict[str, Any]:
        """Return findings, warnings, parameters and times as one dict that JSON can hold."""
        return {
            "format": "headscape/study-summary/2",
            "model": self.data.provenance.get("model", {}),
            "windows": self.windows,
            "heads": len(self.heads),
            "findings": list(self.findings),
            "answers": {
                str(question): [{"finding": str(one), "statistics": one.statistics} for one in answers]
                for question, answers in self.answers.items()
            },
            "warnings": [{"name": w.name, "axis": w.axis, "message": w.message} for w in self.warnings],
            "stages": list(self.results),
            "parameters": dict(self.parameters),
            "options": {name: self.options[name] for name in self.results if self.options[name]},
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            "about": {name: value for name, value in self.about.items() if name != "seconds"},
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a folder: :meth:`load` gives the same back; tables and summary lie beside it."""
        folder = Path(path)
        context = Context(self.data, self.parameters)
        with StudyFolder(folder, self.parameters, str(self.about.get("input_hash", ""))) as parts:
            if not any((folder / name).exists() for name in (CAPTURE, TENSORS)):
                save_data(self.data, folder)
            for stage in self.stages:
                for piece, result in zip(stage.pieces(context), self.results[stage.name], strict=True):
                    parts.write(stage.part(piece), result)
            extra = {name: t for outcome in self.outcomes.values() for name, t in outcome.tables.items()}
            write_tables(self.heads, extra, self.summary(), folder)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a study from its folder, with the stages that are finished there."""
        with explain_read_errors(path):
            folder = Path(path)
            store = Store.open(folder, KIND, NUMBER)
            if store.header["format"] != f"headscape/{KIND}/{NUMBER}":
                raise FileFormatError(
                    f"{folder} was written by an earlier headscape ({store.header['format']}): analyze again, with its "
                    f"{CAPTURE} folder as the source."
                )
            parameters = store.header["parameters"]
            data = load_data(folder, parameters)
            context = Context(data, parameters)
            results = {
                stage.name: found
                for stage in STAGES
                if (found := stage_results(store, stage, context, folder)) is not None
            }
            if not results:
                raise FileFormatError(
                    f"{folder} has no finished stage. Run the same analysis again: it resumes."
                )
            return cls(data, results, parameters, _read_about(folder, store), folder)

    def nearest(self, layer: int, head: int, count: int = 8) -> pd.DataFrame:
        """Return the heads nearest to one in the tree EMD, mean over windows."""
        index = self._index((layer, head))
        distances = self.head_geometry.emd[index]
        order = [int(i) for i in np.argsort(distances, kind="stable") if i != index][:count]
        frame = self.heads.iloc[order][[]].reset_index()
        frame["emd"] = distances[order]
        return frame

    def _index(self, pair: tuple[int, int]) -> int:
        if pair not in self.data.heads:
            raise InputError(
                f"there is no head {pair[0]}.{pair[1]}; the study has {len(self.data.heads)} heads."
            )
        return self.data.heads.index(pair)

    def __repr__(self) -> str:
        name = self.data.provenance.get("model", {}).get("name", "model")
        stages = ", ".join(self.results) or "none"
        sizes = f"{counted(len(self.heads), 'head')}, {counted(self.windows, 'window')}"
        return f"Study({name}: {sizes}; stages: {stages})"

    def _repr_html_(self) -> str:
        """Show findings, warnings and the head table in notebooks."""
        warnings = "".join(f"<li><b>Warning.</b> {html.escape(str(w))}</li>" for w in self.warnings)
        findings = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.findings)
        return (
            f"<p><b>{html.escape(repr(self))}</b></p><ul>{warnings}{findings}</ul>"
            f"{self.heads.to_html(max_rows=12, max_cols=12, border=0)}"
        )


def _read_about(folder: Path, store: Store) -> dict[str, Any]:
    about: dict[str, Any] = {"input_hash": store.header["input_hash"]}
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return about
    except (OSError, json.JSONDecodeError) as error:
        raise FileFormatError(
            f"{folder / SUMMARY} is damaged ({error}). Delete it and analyze again."
        ) from error
    return {**about, **summary.get("about", {}), "seconds": summary.get("seconds", {})}
