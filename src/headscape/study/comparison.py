"""The result of a comparison: distances beside their noise, pairs of heads, changes, and what they say in words."""

import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.comparison.network_map import network_map
from headscape.errors import InputError
from headscape.notices import Notice
from headscape.output import json_ready
from headscape.report.comparison_figures import comparison_figures
from headscape.report.comparison_page import write_comparison_page
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource, noise_floor
from headscape.study.comparison_display import comparison_page_data
from headscape.study.comparison_findings import comparison_findings, headline
from headscape.study.comparison_notices import comparison_notices
from headscape.study.stages.result import Result
from headscape.tensor.safe_reading import explain_read_errors
from headscape.tensor.store import Store, write_text_atomically

KIND, NUMBER = "comparison", 1
TABLES = (
    "distances",
    "noise",
    "correspondence",
    "changes",
    "shifts",
    "effects",
    "patterns",
    "windows",
    "not_compared",
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What :func:`headscape.compare` found.

    Parameters
    ----------
    sources
        The networks, in the order in which they were given.
    pairs
        Every two of them, the first with the second, the first with the third, ...
    parameters
        Everything that changes results.
    about
        What does not: the command, times.

    Notes
    -----
    All tables are data frames: :attr:`distances`, :attr:`noise`, :attr:`correspondence`, :attr:`changes`,
    :attr:`shifts`, :attr:`effects`, :attr:`patterns`, :attr:`windows`, :attr:`not_compared`. Those about pairs begin
    with the names of both networks, ``a`` and ``b``.
    """

    sources: tuple[ComparedSource, ...]
    pairs: tuple[ComparedPair, ...]
    parameters: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """What the networks are called."""
        return tuple(source.name for source in self.sources)

    def pair(self, a: int | str = 0, b: int | str = 1) -> ComparedPair:
        """Return what was found about two networks, by number or name."""
        i, j = (self.names.index(x) if x in self.names else x for x in (a, b))
        found = next((pair for pair in self.pairs if {pair.a, pair.b} == {i, j}), None)
        if found is None:
            raise InputError(f"a and b must be two of {', '.join(self.names)}, but are {a!r} and {b!r}.")
        return found

    @cached_property
    def distances(self) -> pd.DataFrame:
        """Gromov-Wasserstein distances of the head geometries, in median EMDs: network x network."""
        return self._matrix("distance")

    @cached_property
    def times_noise(self) -> pd.DataFrame:
        """The distances in units of the noise: network x network."""
        return self._matrix("times_noise")

    @cached_property
    def noise(self) -> pd.DataFrame:
        """The noise floor of every network: distances between halves of its windows, scaled to all windows."""
        rows = [
            {
                "noise": noise_floor([source.noise]),
                "median": float(np.median(source.noise)) if len(source.noise) else np.nan,
                "splits": len(source.noise),
                "windows": source.windows,
            }
            for source in self.sources
        ]
        return pd.DataFrame(rows, index=pd.Index(self.names, name="source"))

    @cached_property
    def correspondence(self) -> pd.DataFrame:
        """The pairs of heads that belong together; see :attr:`ComparedPair.correspondence`."""
        return self._stacked("correspondence", how=True)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """What changed, by network, layer, folder and head; see :attr:`ComparedPair.changes`."""
        return self._stacked("changes")

    @cached_property
    def shifts(self) -> pd.DataFrame:
        """How far heads moved on the same windows; see :attr:`ComparedPair.shifts`."""
        return self._stacked("shifts")

    @cached_property
    def effects(self) -> pd.DataFrame:
        """How the distributions of the measures differ; see :attr:`ComparedPair.effects`."""
        return self._stacked("effects")

    @cached_property
    def patterns(self) -> pd.DataFrame:
        """How many heads of each network have each pattern's name."""
        counts = {source.name: source.pattern_counts for source in self.sources}
        names = list(dict.fromkeys(name for of in counts.values() for name in of))
        table = pd.DataFrame({name: [of.get(p, 0) for p in names] for name, of in counts.items()})
        return table.set_index(pd.Index(names, name="pattern"))

    @cached_property
    def windows(self) -> pd.DataFrame:
        """One row per network and window: network entropy and tree shape (OA table 2, arXiv 2506.15541)."""
        tables = []
        for source in self.sources:
            table = pd.DataFrame(source.networks)
            table.insert(0, "window", range(source.windows))
            table.insert(0, "source", source.name)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @cached_property
    def not_compared(self) -> pd.DataFrame:
        """What could not be compared, and why."""
        rows = [(*self._names(pair), what, why) for pair in self.pairs for what, why in pair.not_compared]
        return pd.DataFrame(rows, columns=["a", "b", "what", "why"])

    @cached_property
    def head_distances(self) -> pd.DataFrame:
        """Mean tree EMD between heads of the same number on the same windows; NaN where heads are not matched so."""
        return self._matrix("head_distance")

    @cached_property
    def map(self) -> pd.DataFrame:
        """Coordinates of the networks (multidimensional scaling): x, y.

        From :attr:`head_distances` where all networks have them, such as checkpoints of one run, else from
        :attr:`distances`: geometries alone do not tell in which order a network came to them.
        """
        places = network_map(self._between())
        return pd.DataFrame(places, columns=["x", "y"], index=pd.Index(self.names, name="source"))

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The networks from the first on, always to the nearest that is left, by the distances of :attr:`map`."""
        between, order = self._between(), [0]
        while len(order) < len(self.sources):
            rest = [i for i in range(len(self.sources)) if i not in order]
            order.append(min(rest, key=lambda i: between[order[-1], i]))
        return tuple(self.names[i] for i in order)

    @cached_property
    def headline(self) -> str:
        """The result in one sentence."""
        return headline(self.sources, self.pairs)

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """What the numbers say, in sentences, the headline first."""
        return (self.headline, *comparison_findings(self.sources, self.pairs, self.path))

    @cached_property
    def warnings(self) -> tuple[Notice, ...]:
        """Named states in which the comparison says little."""
        return comparison_notices(self.sources, self.pairs)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, one HTML file that works offline, and return its path."""
        return write_comparison_page(comparison_page_data(self), Path(path))

    def figures(self) -> dict[str, Any]:
        """Return the figures for papers by name, as matplotlib objects: distances, map of the networks, spectra."""
        return dict(comparison_figures(comparison_page_data(self)))

    def summary(self) -> dict[str, Any]:
        """Return findings, warnings, distances and parameters as one dict that JSON can hold."""
        return {
            "format": "headscape/comparison-summary/1",
            "sources": [
                {"name": s.name, "heads": len(s.heads), "layers": len(s.layers), **s.about}
                for s in self.sources
            ],
            "headline": self.headline,
            "findings": list(self.findings),
            "warnings": [{"name": w.name, "message": w.message} for w in self.warnings],
            "distances": json_ready(self.distances.to_numpy().tolist()),
            "times_noise": json_ready(self.times_noise.to_numpy().tolist()),
            "noise": json_ready(self.noise["noise"].tolist()),
            "pairs": [
                {
                    "a": pair.a,
                    "b": pair.b,
                    "windows": pair.windows,
                    "matched": pair.matched,
                    "changed": _changed(pair),
                    "test": dict(pair.test),
                }
                for pair in self.pairs
            ],
            "path": list(self.path),
            "not_compared": self.not_compared.to_dict("records"),
            "parameters": dict(self.parameters),
            "about": dict(self.about),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison to a folder: :meth:`load` gives the same back; tables and summary lie beside it."""
        folder = Path(path)
        with comparison_store(folder, self.parameters) as store:
            parts = {source_part(i): s.to_result() for i, s in enumerate(self.sources)}
            parts |= {pair_part(p.a, p.b): p.to_result() for p in self.pairs}
            parts["comparison"] = Result(attributes={"about": dict(self.about)})
            for name, result in parts.items():
                write_part(store, name, result)
        self.write_tables(folder)

    def write_tables(self, folder: Path) -> None:
        """Write the tables as CSV and the summary as JSON."""
        for name in TABLES:
            table = getattr(self, name)
            text = table.to_csv(index=table.index.name is not None, lineterminator="\n")
            write_text_atomically(folder / f"{name}.csv", text)
        summary = json.dumps(json_ready(self.summary()), indent=2, allow_nan=False)
        write_text_atomically(folder / "summary.json", summary + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a comparison from its folder."""
        with explain_read_errors(path):
            store = Store.open(path, KIND, NUMBER)
            n = len(store.header["parameters"]["names"])
            sources = [ComparedSource.from_result(Result.read(store.read(source_part(i)))) for i in range(n)]
            numbers = [(i, j) for i in range(n) for j in range(i + 1, n)]
            pairs = [ComparedPair.from_result(Result.read(store.read(pair_part(i, j)))) for i, j in numbers]
            about = Result.read(store.read("comparison")).attributes["about"]
            return cls(tuple(sources), tuple(pairs), store.header["parameters"], about)

    def __repr__(self) -> str:
        return f"Comparison({' / '.join(self.names)}: {self.headline})"

    def _repr_html_(self) -> str:
        """Show findings, warnings and distances in notebooks."""
        warnings = "".join(f"<li><b>Warning.</b> {html.escape(str(w))}</li>" for w in self.warnings)
        findings = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.findings[1:])
        return (
            f"<p><b>{html.escape(self.headline)}</b></p><ul>{warnings}{findings}</ul>"
            f"{self.distances.to_html(border=0)}"
        )

    def _names(self, pair: ComparedPair) -> tuple[str, str]:
        return self.names[pair.a], self.names[pair.b]

    def _between(self) -> NDArray[np.float64]:
        by_head = self.head_distances.to_numpy()
        return np.asarray(by_head if np.isfinite(by_head).all() else self.distances.to_numpy())

    def _matrix(self, attribute: str) -> pd.DataFrame:
        values = np.zeros((len(self.sources),) * 2)
        for pair in self.pairs:
            values[pair.a, pair.b] = values[pair.b, pair.a] = getattr(pair, attribute)
        return pd.DataFrame(values, index=pd.Index(self.names, name="source"), columns=list(self.names))

    def _stacked(self, name: str, *, how: bool = False) -> pd.DataFrame:
        """Return a table of all pairs, with the names of both networks."""
        tables = []
        for pair in self.pairs:
            table = getattr(pair, name).copy()
            if how:
                table.insert(0, "how", pair.how)
            table.insert(0, "b", self.names[pair.b])
            table.insert(0, "a", self.names[pair.a])
            tables.append(table)
        stacked: pd.DataFrame = pd.concat(tables, ignore_index=True)
        return stacked


def source_part(number: int) -> str:
    """Return the name of the part that holds a network."""
    return f"source-{number:05d}"


def pair_part(a: int, b: int) -> str:
    """Return the name of the part that holds a pair of networks."""
    return f"pair-{a:05d}-{b:05d}"


def comparison_store(folder: Path, parameters: Mapping[str, Any]) -> Store:
    """Open the store of a comparison for writing, or raise if the folder holds another one."""
    hashes = "".join(parameters["hashes"])
    return Store.create(
        folder, KIND, NUMBER, parameters=parameters, input_hash=hashes, seed=parameters["seed"]
    )


def write_part(store: Store, name: str, result: Result) -> None:
    """Write a part that is not there yet."""
    if not store.has(name):
        with store.writing(name) as writer:
            result.write(writer)


def _changed(pair: ComparedPair) -> dict[str, list[Any]]:
    """Return what changed, by level, as plain values."""
    rows = pair.changes[pair.changes["verdict"] == "changed"]
    of = {level: rows[rows["level"] == level] for level in ("network", "layer", "folder", "head")}
    heads: NDArray[Any] = of["head"][["layer", "head"]].drop_duplicates().to_numpy()
    return {
        "measures": sorted(set(of["network"]["measure"])),
        "layers": sorted(set(of["layer"]["layer"].tolist())),
        "folders": sorted(set(of["folder"]["folder"].tolist())),
        "heads": [[int(layer), int(head)] for layer, head in heads],
    }
