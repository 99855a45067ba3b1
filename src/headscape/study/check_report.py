"""The report of a check: what passed, what failed and where, and which heads stand out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from headscape.energy.judgement import Judgement, Status
from headscape.output import counted, json_ready


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What ``hs.check`` found.

    Parameters
    ----------
    subject
        What was checked.
    judgements
        One per test and head, the worst over the windows.
    outliers
        Key-value heads (layer, kv_head) whose keys are far less even than those of the rest, with their mu_K:
        worth a look, not failures.
    differences : DataFrame, optional
        With a reference: per head the relative difference of keys, logits and probabilities.
    """

    subject: str
    judgements: tuple[Judgement, ...]
    outliers: Mapping[tuple[int, int], float] = field(default_factory=dict)
    differences: "pd.DataFrame | None" = None

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Judgement, ...]:
        """The judgements that failed."""
        return tuple(j for j in self.judgements if j.status == Status.failed)

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of the tests, in the order in which they were made."""
        return tuple(dict.fromkeys(j.test for j in self.judgements))

    def of_test(self, test: str) -> tuple[Judgement, ...]:
        """Return the judgements of one test."""
        return tuple(j for j in self.judgements if j.test == test)

    def table(self) -> "pd.DataFrame":
        """Return one row per test: how many heads passed, failed and were not judged, and the worst of them."""
        return pd.DataFrame(self._rows())

    def summary(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        failures = [asdict(j) for j in self.failures]
        differences = None if self.differences is None else self.differences.to_dict(orient="records")
        summary: dict[str, Any] = {
            "format": "headscape/check/1",
            "subject": self.subject,
            "ok": self.ok,
            "tests": self._rows(),
            "failures": [{name: x for name, x in row.items() if name != "status"} for row in failures],
            "outliers": [{"layer": la, "kv_head": he, "mu_K": mu} for (la, he), mu in self.outliers.items()],
            "differences": differences,
        }
        plain: dict[str, Any] = json_ready(summary)
        return plain

    def lines(self, most: int | None = None) -> list[str]:
        """Return remarks, failures (at most so many) and outliers as lines, and the verdict as the last one.

        Heads of a layer that fail a test in the same way share a line.
        """
        failures = list(_failure_lines(self.failures))
        left = 0 if most is None else max(0, len(failures) - most)
        return [
            *(f"{row['test']}: {row['remark']}" for row in self._rows() if row["remark"]),
            *failures[: len(failures) - left],
            *([f"... and {left} more lines of failures"] if left else []),
            *(
                f"outlier: key-value head {layer}.{head} has mu_K = {mu:.3g}, far from the rest (not a failure)"
                for (layer, head), mu in self.outliers.items()
            ),
            self._verdict(),
        ]

    def text(self) -> str:
        """Return the whole report as text: the counts of each test, then :meth:`lines`."""
        counts = [
            f"  {row['test']}: " + ", ".join(f"{row[s.value]} {s.value}" for s in Status if row[s.value])
            for row in self._rows()
        ]
        return "\n".join([f"Check of {self.subject}", *counts, *self.lines()])

    def _verdict(self) -> str:
        if self.failures:
            return counted(len(self.failures), "failure")
        rows = [row["test"] for row in self._rows() if not row["passed"]]
        return "all tests passed" + (f"; not judged: {', '.join(rows)}" if rows else "")

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table."""
        rows = []
        for test in self.tests:
            found = self.of_test(test)
            worst = max(found, key=_severity)
            rows.append(
                {
                    "test": test,
                    **{status.value: sum(j.status == status for j in found) for status in Status},
                    "worst": worst.value,
                    "tolerance": worst.tolerance,
                    "remark": next((j.detail for j in found if j.status != Status.failed and j.detail), ""),
                }
            )
        return rows


def describe(judgement: Judgement, heads: Sequence[int | None] = ()) -> str:
    """Return one judgement as a line: test, layer and head (or heads), what was measured and what that means.

    Examples
    --------
    >>> describe(Judgement("row sums", 3, 1, Status.failed, 0.5, 1e-05, "rows do not sum to one"))
    'row sums, layer 3, head 1: rows do not sum to one (0.5, allowed 1e-05)'
    """
    numbers = [str(head) for head in heads or [judgement.head] if head is not None]
    where = f", head{'s' * (len(numbers) > 1)} {', '.join(numbers)}" if numbers else ""
    stack = "" if judgement.stack == "self" else f"{judgement.stack} "
    return (
        f"{judgement.test}, {stack}layer {judgement.layer}{where}: {judgement.detail} "
        f"({judgement.value:.3g}, allowed {judgement.tolerance:.3g})"
    )


def worst_judgements(judgements: Iterable[Judgement]) -> tuple[Judgement, ...]:
    """Keep the worst judgement of each test and head over several windows, in the order of tests."""
    rank = {Status.not_judged: 0, Status.passed: 1, Status.failed: 2}
    worst: dict[tuple[str, str, int, int | None], Judgement] = {}
    for found in judgements:
        key = (found.test, found.stack, found.layer, found.head)
        known = worst.get(key)
        if known is None or (rank[found.status], found.value) > (rank[known.status], known.value):
            worst[key] = found
    order = {test: place for place, test in enumerate(dict.fromkeys(key[0] for key in worst))}
    return tuple(sorted(worst.values(), key=lambda j: order[j.test]))


def _failure_lines(failures: Iterable[Judgement]) -> Iterable[str]:
    """Describe the failures; heads of a layer with the same value and detail share a line."""
    groups: dict[tuple[object, ...], list[Judgement]] = {}
    for j in failures:
        groups.setdefault((j.test, j.stack, j.layer, j.value, j.detail), []).append(j)
    return (f"FAILED {describe(group[0], [j.head for j in group])}" for group in groups.values())


def _severity(judgement: Judgement) -> float:
    """Return how much of its tolerance a judgement uses."""
    if judgement.status == Status.not_judged:
        return -1.0
    return judgement.value / judgement.tolerance if judgement.tolerance > 0 else judgement.value
