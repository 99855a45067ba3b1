"""The stage "energy": incoherence, spectra, spread of every head's energy field, and the invariants (IS)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headscape.energy.invariants import Finding, Status, judge_record
from headscape.energy.statements import energy_statements
from headscape.energy.table import EnergyTables, energy_tables, is_prefix_closed, pooled_tables
from headscape.engine import LocalEngine
from headscape.study.stage import Material, Result, Stage, Summary
from headscape.tensor.attention_record import AttentionRecord

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "mu_K",
    "mu_K_centered",
    "mu_K_without_first",
    "leverage",
    "k50",
    "k90",
    "k99",
    "effective_rank",
    "stable_rank",
    "participation",
    "peak",
)


def measure_energy(material: Material, window: int) -> Result:
    """Return the energy tables and the outcome of every invariant for one window."""
    capture = material.capture.select(windows=[window])
    tables = energy_tables(capture, material.parameters["lengths"])
    closed = [is_prefix_closed(record) for record in capture.records(0)]
    causal = float(np.mean(closed)) > 0.5

    def judge(record: AttentionRecord) -> list[Finding]:
        return list(judge_record(record, causal=causal))

    findings = [f for found in LocalEngine().map(judge, capture.records(0)) for f in found]
    known = set(material.heads)
    arrays: dict[str, Any] = {}
    words: dict[str, Any] = {
        "tests": [
            [f.test, f.layer, f.head, str(f.status), _number(f.value), _number(f.tolerance), f.detail]
            for f in findings
            if f.head is None or (f.layer, f.head) in known
        ]
    }
    for name, frame in (("heads", tables.heads), ("kv_heads", tables.kv_heads)):
        numbers = frame.select_dtypes("number")
        arrays[name] = numbers.to_numpy(dtype=np.float64)
        others = frame.drop(columns=list(numbers))
        words[name] = {
            "columns": list(frame),
            "numbers": list(numbers),
            "integers": list(numbers.select_dtypes("integer")),
            "words": {str(column): [str(v) for v in others[column]] for column in others},
        }
    return Result(arrays, words)


def summarize_energy(material: Material, results: Sequence[Result]) -> Summary:
    """Return the energy measures at the longest length as medians over windows, and what they say."""
    tables = pooled_tables([_tables(result) for result in results])
    longest = tables.heads[tables.heads["length"] == tables.lengths[-1]].set_index(["layer", "head"])
    names = [f"{name}{ending}" for name in COLUMNS for ending in ("", "_q25", "_q75")]
    columns = longest[["kv_head", *names]]
    tests = [InvariantCount.of(name, rows) for name, rows in _by_test(results).items()]
    return Summary(
        columns.loc[list(material.heads)],
        tuple(statement.text[0].upper() + statement.text[1:] for statement in energy_statements(tables)),
        detail=EnergySummary(tables, tuple(tests)),
    )


@dataclass(frozen=True)
class InvariantCount:
    """How one invariant fared over all heads and windows.

    Parameters
    ----------
    test
        Its name.
    counts
        How often it passed, failed, and was not judged.
    worst
        The value that came closest to what is allowed, and what is allowed there.
    failed_heads
        The (layer, head) pairs with a failure.
    detail
        What was wrong, or why nothing was judged; empty if all passed.
    """

    test: str
    counts: Mapping[str, int]
    worst: tuple[float, float]
    failed_heads: tuple[tuple[int, int], ...]
    detail: str

    @classmethod
    def of(cls, test: str, rows: Sequence[Sequence[Any]]) -> "InvariantCount":
        """Count the outcomes of one test; each row is layer, head, status, value, tolerance, detail."""
        counts = {str(status): sum(row[2] == status for row in rows) for status in Status}
        judged = [row for row in rows if row[3] is not None and row[4] is not None]
        # Bounds differ from head to head, so the worst is the one that comes closest to its own.
        worst = max(judged, key=lambda row: row[3] - row[4], default=None)
        failures = [row for row in rows if row[2] == Status.failed]
        details = [row[5] for row in (failures or rows) if row[5] and (failures or row[2] != Status.passed)]
        return cls(
            test,
            counts,
            (float("nan"), float("nan")) if worst is None else (worst[3], worst[4]),
            tuple(sorted({(row[0], row[1]) for row in failures if row[1] is not None})),
            details[0] if details else "",
        )


@dataclass(frozen=True, eq=False)
class EnergySummary:
    """The pooled energy tables, and how the invariants fared."""

    tables: EnergyTables
    invariants: tuple[InvariantCount, ...]


def _by_test(results: Sequence[Result]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for result in results:
        for test, *rest in result.attributes["tests"]:
            found.setdefault(test, []).append(rest)
    return found


def _tables(result: Result) -> EnergyTables:
    return EnergyTables(*(_frame(result, name) for name in ("heads", "kv_heads")))


def _frame(result: Result, name: str) -> "pd.DataFrame":
    import pandas as pd

    words = result.attributes[name]
    frame = pd.DataFrame(result.arrays[name], columns=words["numbers"])
    frame = frame.astype(dict.fromkeys(words["integers"], np.int64))
    for column, values in words["words"].items():
        frame[column] = values
    columns: list[str] = words["columns"]
    return frame[columns]


def _number(value: float) -> float | None:
    """Return a number as JSON has it: what is not finite becomes null."""
    return float(value) if np.isfinite(value) else None


ENERGY = Stage("energy", "measuring energy", measure_energy, summarize_energy, cost=4.0)
