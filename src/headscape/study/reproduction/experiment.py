"""What an experiment is: a claim of a paper, the networks it is tried on, and what is found there."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from headscape.analysis.intervals import Interval
from headscape.study.stages.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscape.study.reproduction.networks import Networks

ORGANIZED, INVARIANTS, COMPANION = "2506.15541", "2605.02907", "2604.04384"
"""The papers by their arXiv numbers."""


class Verdict(StrEnum):
    """Whether what was found agrees with the paper."""

    agrees = "agrees"
    partly = "agrees in part"
    disagrees = "disagrees"
    undecided = "undecided"
    untested = "not tested"


@dataclass(frozen=True)
class Observation:
    """What was found on one network.

    Parameters
    ----------
    network
        Its name.
    data
        What it was measured on, such as "6 windows of 256 tokens".
    found
        The sentence, with its numbers and intervals.
    verdict
        Whether that agrees with the claim.
    figure
        The number that decides it, as short as a table needs it; :class:`Experiment` says what it counts.
    control
        Whether the network was never trained: then it shows what the architecture alone does, and the verdict over
        all networks is that of the others.
    """

    network: str
    data: str
    found: str
    verdict: Verdict
    figure: str = ""
    control: bool = False


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an experiment gives: observations, and tables and figures (as PNG) by name."""

    observations: tuple[Observation, ...]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        observations: Iterable[Observation],
        tables: Mapping[str, pd.DataFrame] | None = None,
        figures: Mapping[str, Figure] | None = None,
    ) -> Self:
        """Return the evidence with its figures drawn."""
        pictures = {name: _png(figure) for name, figure in (figures or {}).items()}
        return cls(tuple(observations), dict(tables or {}), pictures)

    @property
    def verdict(self) -> Verdict:
        """The verdict over all networks on which the claim could be tested; over controls if there are no others."""
        trained = [one for one in self.observations if not one.control]
        verdicts = {one.verdict for one in trained or self.observations}
        found = verdicts - {Verdict.untested, Verdict.undecided}
        if found:
            return found.pop() if len(found) == 1 else Verdict.partly
        return Verdict.undecided if Verdict.undecided in verdicts else Verdict.untested

    def to_result(self) -> Result:
        """Return it as arrays, tables and attributes that a store keeps."""
        arrays = {f"picture.{name}": np.frombuffer(data, np.uint8) for name, data in self.pictures.items()}
        observations = [vars(one) | {"verdict": one.verdict.value} for one in self.observations]
        return Result(arrays, {"observations": json.dumps(observations)}, self.tables)

    @classmethod
    def from_result(cls, result: Result) -> Self:
        """Return what :meth:`to_result` kept."""
        observations = tuple(
            Observation(**(one | {"verdict": Verdict(one["verdict"])}))
            for one in json.loads(result.attributes["observations"])
        )
        pictures = {
            name.removeprefix("picture."): np.asarray(array, np.uint8).tobytes()
            for name, array in result.arrays.items()
        }
        return cls(observations, dict(result.tables), pictures)


@dataclass(frozen=True)
class Experiment:
    """A table, figure or claim of a paper, and the function that tries it.

    Parameters
    ----------
    name
        What the command line calls it, such as "table-1".
    paper, place
        arXiv number, and where in the paper it stands.
    title
        What it is about.
    claim
        What the paper claims or shows, in our words.
    networks
        The roles of the networks it is tried on.
    measure
        What the figures of its observations count.
    minutes
        What it takes by itself at full size on one core; :mod:`costs` adds what it shares with others.
    run
        Tries it.
    remark
        Where the published code or another reading differs, and which one is followed.
    organized
        How many windows of each network it needs organized.
    takes_apart
        Whether it needs the softmax of some heads of each network.
    """

    name: str
    paper: str
    place: str
    title: str
    claim: str
    networks: tuple[str, ...]
    measure: str
    minutes: float
    run: Callable[[Networks], Evidence]
    remark: str = ""
    organized: int = 0
    takes_apart: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what ``--list`` and the page say of it."""
        names = ("name", "paper", "place", "title", "claim", "measure", "remark")
        return {name: getattr(self, name) for name in names} | {"networks": list(self.networks)}


def judged(agrees: bool, disagrees: bool | None = None) -> Verdict:
    """Return the verdict of a test: between the two bounds it agrees in part."""
    if agrees:
        return Verdict.agrees
    return Verdict.disagrees if disagrees is None or disagrees else Verdict.partly


def judged_sign(interval: Interval, sign: int) -> Verdict:
    """Return the verdict on a claim that a difference has a sign (1 or -1): undecided if the interval holds zero."""
    if not interval.has_bounds or 0 in interval:
        return Verdict.undecided
    return judged(sign * interval.estimate > 0)


def exp_interval(logs: Interval) -> Interval:
    """Return the interval of a ratio from that of its logarithm.

    Examples
    --------
    >>> print(exp_interval(Interval(0.0, -np.log(2), np.log(2))))
    1 [0.5, 2]
    """
    estimate, low, high = (float(np.exp(log)) for log in (logs.estimate, logs.low, logs.high))
    return Interval(estimate, low, high, logs.level)


def span(values: Iterable[float], spec: str = "") -> str:
    """Return the smallest and the largest value in words, or the one value if they read the same.

    Examples
    --------
    >>> span([2, 5, 3]), span([0.123, 0.119], ".2f")
    ('2 to 5', '0.12')
    """
    found = list(values)
    low, high = (format(bound(found), spec) for bound in (min, max))
    return low if low == high else f"{low} to {high}"


def _png(figure: Figure) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=90, metadata={"Software": None})
    return data.getvalue()
