"""The report of a check: what passed, what failed and where, and which heads stand out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headscape.energy.invariants import Finding, Status

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What ``hs.check`` found.

    Parameters
    ----------
    subject
        What was checked.
    findings
        One per test and head, the worst over the windows.
    outliers
        Key-value heads (layer, kv_head) whose keys are far less even than those of the rest, with their mu_K:
        worth a look, no failures.
    differences : DataFrame, optional
        With a reference: per head the relative difference of keys, logits and probabilities.
    """

    subject: str
    findings: tuple[Finding, ...]
    outliers: Mapping[tuple[int, int], float] = field(default_factory=dict)
    differences: "pd.DataFrame | None" = None

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that failed."""
        return tuple(f for f in self.findings if f.status == Status.failed)

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of the tests, in the order in which they were made."""
        return tuple(dict.fromkeys(f.test for f in self.findings))

    def of_test(self, test: str) -> tuple[Finding, ...]:
        """Return the findings of one test."""
        return tuple(f for f in self.findings if f.test == test)

    def summary(self) -> "pd.DataFrame":
        """Return one row per test: how many heads passed, failed and were not judged, and the worst of them."""
        import pandas as pd

        rows = []
        for test in self.tests:
            found = self.of_test(test)
            counts = {status.value: sum(f.status == status for f in found) for status in Status}
            worst = max(found, key=_severity)
            remark = next((f.detail for f in found if f.status != Status.failed and f.detail), "")
            row = {
                "test": test,
                **counts,
                "worst": worst.value,
                "tolerance": worst.tolerance,
                "remark": remark,
            }
            rows.append(row)
        return pd.DataFrame(rows)

    def text(self) -> str:
        """Return the report for people: failures with test, layer and head, then the outliers."""
        lines = [f"{self.subject}: {'all tests passed' if self.ok else f'{len(self.failures)} failures'}"]
        for test in self.tests:
            found = self.of_test(test)
            counts = [f"{sum(f.status == s for f in found)} {s.value}" for s in Status]
            lines.append(f"  {test}: " + ", ".join(count for count in counts if not count.startswith("0 ")))
        lines += [f"FAILED {describe(f)}" for f in self.failures]
        lines += [
            f"outlier: key-value head {layer}.{head} has mu_K = {mu:.3g}, far from the rest"
            for (layer, head), mu in self.outliers.items()
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "format": "headscape/check/1",
            "subject": self.subject,
            "ok": self.ok,
            "tests": [_plain(row) for row in self.summary().to_dict(orient="records")],
            "failures": [
                _plain(
                    {
                        "test": f.test,
                        "stack": f.stack,
                        "layer": f.layer,
                        "head": f.head,
                        "value": f.value,
                        "tolerance": f.tolerance,
                        "detail": f.detail,
                    }
                )
                for f in self.failures
            ],
            "outliers": [{"layer": la, "kv_head": he, "mu_K": mu} for (la, he), mu in self.outliers.items()],
            "differences": None
            if self.differences is None
            else [_plain(row) for row in self.differences.to_dict(orient="records")],
        }


def describe(finding: Finding) -> str:
    """Return one finding as a line: test, layer and head, what was measured and what that means.

    Examples
    --------
    >>> describe(Finding("row sums", 3, 1, Status.failed, 0.5, 1e-05, "rows do not sum to one"))
    'row sums, layer 3, head 1: rows do not sum to one (0.5, allowed 1e-05)'
    """
    place = f"layer {finding.layer}" + ("" if finding.head is None else f", head {finding.head}")
    stack = "" if finding.stack == "self" else f"{finding.stack} "
    return f"{finding.test}, {stack}{place}: {finding.detail} ({finding.value:.3g}, allowed {finding.tolerance:.3g})"


def worst_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Keep the worst finding of each test and head over several windows, in the order of tests."""
    rank = {Status.not_judged: 0, Status.passed: 1, Status.failed: 2}
    worst: dict[tuple[str, str, int, int | None], Finding] = {}
    for found in findings:
        key = (found.test, found.stack, found.layer, found.head)
        known = worst.get(key)
        if known is None or (rank[found.status], found.value) > (rank[known.status], known.value):
            worst[key] = found
    order = {test: place for place, test in enumerate(dict.fromkeys(key[0] for key in worst))}
    return tuple(sorted(worst.values(), key=lambda f: order[f.test]))


def _severity(finding: Finding) -> float:
    """Return how much of its tolerance a finding uses."""
    if finding.status == Status.not_judged:
        return -1.0
    return finding.value / finding.tolerance if finding.tolerance > 0 else finding.value


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Turn numpy numbers into Python's, and NaN into None."""
    values = {str(name): v.item() if hasattr(v, "item") else v for name, v in row.items()}
    return {name: None if isinstance(v, float) and v != v else v for name, v in values.items()}
