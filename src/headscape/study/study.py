"""The result of an analysis: one table with a row per head, what it says in words, and everything behind it."""

import html
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from headscape.ablation.ablation_result import AblationStudy
from headscape.analysis.entropy_study import EntropyStudy
from headscape.energy.table import EnergyTables
from headscape.errors import FileFormatError, InputError
from headscape.geometry.organization import Organization
from headscape.notices import Notice
from headscape.study.folder import (
    CAPTURE,
    KIND,
    StudyFolder,
    organization_part,
    organization_path,
    stage_results,
)
from headscape.study.stage import Material, Result, Summary
from headscape.study.stages import STAGES
from headscape.study.tables import write_tables
from headscape.tensor.capture import Capture
from headscape.tensor.store import Store

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "summary.json"


@dataclass(frozen=True, eq=False)
class Study:
    """What :func:`headscape.analyze` found.

    Parameters
    ----------
    capture
        Queries and keys of every window.
    organizations
        Trees, EMDs and affinities of every window.
    results
        What each finished stage measured, per window.
    parameters
        Everything that changes results.
    about
        What does not: the command, the license of the weights, where the report was written.

    Notes
    -----
    ``heads`` is the table; ``entropy``, ``energy`` and ``summaries`` hold what is behind its columns. In a
    notebook a study shows itself.
    """

    capture: Capture
    organizations: tuple[Organization, ...]
    results: Mapping[str, tuple[Result, ...]]
    parameters: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self.organizations)

    @property
    def organization(self) -> Organization:
        """The organization of the first window; ``organizations`` has all."""
        return self.organizations[0]

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """What each finished stage says over all windows, by its name."""
        material = Material(self.capture, self.parameters, self.organizations)
        stages = [stage for stage in STAGES if stage.name in self.results]
        return {stage.name: stage.summarize(material, self.results[stage.name]) for stage in stages}

    @property
    def entropy(self) -> EntropyStudy | None:
        """The entropies of all heads over the windows, if the stage ran."""
        return self.summaries["entropy"].detail if "entropy" in self.summaries else None

    @property
    def energy(self) -> EnergyTables | None:
        """The energy measures of all heads over windows and lengths, if the stage ran."""
        return self.summaries["energy"].detail.tables if "energy" in self.summaries else None

    @property
    def ablation(self) -> AblationStudy | None:
        """What rankings of the heads are worth, if the stage ran."""
        return self.summaries["ablation"].detail if "ablation" in self.summaries else None

    @cached_property
    def heads(self) -> "pd.DataFrame":
        """One row per head, indexed by (layer, head): its place in the tree, and every measure."""
        import pandas as pd

        columns = [summary.columns for summary in self.summaries.values()]
        return pd.concat([self._geometry_columns(), *columns], axis=1)

    @cached_property
    def warnings(self) -> tuple[Notice, ...]:
        """Named states in which the geometry or the ranks say little; equal ones of several windows are one."""
        seen: dict[tuple[str, str], list[str]] = {}
        for organization in self.organizations:
            for warning in organization.warnings:
                seen.setdefault((warning.name, warning.axis), []).append(warning.message)
        merged = []
        for (name, axis), messages in seen.items():
            text = messages[0]
            if self.windows > 1:
                first = "" if len(messages) == 1 else "; in the first of them"
                text = f"in {len(messages)} of {self.windows} windows{first}: {text}"
            merged.append(Notice(name, text, axis))
        of_stages = [warning for summary in self.summaries.values() for warning in summary.warnings]
        return (*of_stages, *merged)

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """What the numbers say, in sentences; the most important first."""
        of_stages = self.summaries.values()
        first = [sentence for summary in of_stages for sentence in summary.findings[: summary.headlines]]
        rest = [sentence for summary in of_stages for sentence in summary.findings[summary.headlines :]]
        return (*first, self._geometry_finding(), *rest)

    @property
    def seconds(self) -> dict[str, float]:
        """The time each step took, in seconds, summed over windows."""
        spent: Counter[str] = Counter()
        for name, results in self.results.items():
            spent[name] += sum(result.attributes.get("seconds", 0.0) for result in results)
        return {**self.about.get("seconds", {}), **spent}

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, one HTML file that works offline, and return its path."""
        from headscape.report.page import write_page
        from headscape.study.display import page_data

        return write_page(page_data(self), Path(path))

    def figures(self) -> dict[str, Any]:
        """Return the figures for papers by name, as matplotlib objects."""
        from headscape.study.figures import study_figures

        return study_figures(self)

    def summary(self) -> dict[str, Any]:
        """Return findings, warnings, parameters and times as one dict that JSON can hold."""
        return {
            "format": "headscape/study-summary/1",
            "model": self.capture.provenance.get("model", {}),
            "windows": self.windows,
            "heads": len(self.heads),
            "findings": list(self.findings),
            "warnings": [{"name": w.name, "axis": w.axis, "message": w.message} for w in self.warnings],
            "stages": list(self.results),
            "parameters": dict(self.parameters),
            "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            "about": {name: value for name, value in self.about.items() if name != "seconds"},
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a folder: :meth:`load` gives the same back; tables and summary lie beside it."""
        folder = Path(path)
        input_hash = str(self.about.get("input_hash", self.capture.provenance.get("input_hash", "")))
        with StudyFolder(folder, self.parameters, input_hash) as parts:
            if not (folder / CAPTURE).exists():
                self.capture.save(folder / CAPTURE)
            for window, organization in enumerate(self.organizations):
                if not parts.has(organization_part(window)):
                    parts.write_organization(window, organization, 0.0)
            for stage in STAGES:
                for window, result in enumerate(self.results.get(stage.name, ())):
                    parts.write(stage.part(window), result)
            write_tables(self.heads, self.summary(), folder)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a study from its folder, with the stages that are finished there."""
        folder = Path(path)
        store = Store.open(folder, KIND)
        parameters = store.header["parameters"]
        capture = Capture.load(folder / CAPTURE).select(parameters["stack"])
        windows = sum(store.has(organization_part(window)) for window in range(capture.n_windows))
        if windows < capture.n_windows:
            raise FileFormatError(
                f"{folder} is unfinished: {windows} of {capture.n_windows} windows are organized. Run the same "
                "analysis again: it goes on where it stopped."
            )
        found = {stage.name: stage_results(store, stage, windows) for stage in STAGES}
        return cls(
            capture=capture,
            organizations=tuple(Organization.load(organization_path(folder, w)) for w in range(windows)),
            results={name: results for name, results in found.items() if results is not None},
            parameters=parameters,
            about=_read_about(folder, store),
        )

    def nearest(self, layer: int, head: int, count: int = 8) -> "pd.DataFrame":
        """Return the heads nearest to one in the tree EMD of the first window."""
        pairs = self.capture.heads
        if (layer, head) not in pairs:
            raise InputError(f"there is no head {layer}.{head}; the study has {len(pairs)} heads.")
        index = pairs.index((layer, head))
        distances = self.organization.emd["head"][index]
        order = [int(i) for i in np.argsort(distances, kind="stable") if i != index][:count]
        frame = self.heads.iloc[order][[]].reset_index()
        frame["emd"] = distances[order]
        return frame

    def __repr__(self) -> str:
        name = self.capture.provenance.get("model", {}).get("name", "model")
        stages = ", ".join(self.results) or "none"
        return f"Study({name}: {len(self.heads)} heads, {self.windows} windows; stages: {stages})"

    def _repr_html_(self) -> str:
        """Show findings, warnings and the head table in notebooks."""
        warnings = "".join(f"<li><b>Warning.</b> {html.escape(str(w))}</li>" for w in self.warnings)
        findings = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.findings)
        return (
            f"<p><b>{html.escape(repr(self))}</b></p><ul>{warnings}{findings}</ul>"
            f"{self.heads.to_html(max_rows=12, max_cols=12, border=0)}"
        )

    def _geometry_columns(self) -> "pd.DataFrame":
        tree, emd = self.organization.trees["head"], self.organization.emd["head"].copy()
        place = np.empty(tree.n_points, dtype=np.int64)
        place[tree.order] = np.arange(tree.n_points)
        level = min(1, tree.depth - 1)
        columns: dict[str, Any] = {"place": place, "folder": tree.labels[level]}
        if tree.n_points > 1:
            np.fill_diagonal(emd, np.inf)
            nearest = emd.argmin(axis=1)
            columns["nearest"] = [self.organization.labels("head")[i] for i in nearest]
            columns["nearest_emd"] = emd.min(axis=1)
        return Material(self.capture, self.parameters).frame(columns)

    def _geometry_finding(self) -> str:
        tree = self.organization.trees["head"]
        level = min(1, tree.depth - 1)
        sizes = sorted(np.bincount(tree.labels[level]), reverse=True)
        listed = ", ".join(map(str, sizes[:4])) + (", ..." if len(sizes) > 4 else "")
        return (
            f"The tree of the {tree.n_points} heads (first window) has {tree.depth} levels and falls at the first "
            f"into {len(sizes)} folders of {listed} heads."
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
