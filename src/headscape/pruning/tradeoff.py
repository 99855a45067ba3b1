"""The trade-off between loss and size: sizes measured on windows set aside, and which of them nothing else beats.

A size is a Pareto choice for a measure (heads, parameters, key-value cache, time) if no other size has both a
lower loss and less of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headscape.analysis.intervals import Interval
from headscape.output import json_ready
from headscape.pruning.manifest import Pairs
from headscape.pruning.removal_order import GROUPS, UNIFORM, UNIFORM_GROUPS, UNITS, share_for
from headscape.pruning.savings import Savings
from headscape.pruning.speed import Speed

OPTIONS = {UNITS: "", GROUPS: "--groups ", UNIFORM: "--uniform ", UNIFORM_GROUPS: "--groups --uniform "}


@dataclass(frozen=True, eq=False)
class SizePoint:
    """One size: what is removed, what it saves, and what it costs on the windows that compare sizes.

    Attributes
    ----------
    kind
        What goes together: "units", "groups", "uniform", "uniform groups", or "given" heads.
    heads
        (layer, head) pairs that are gone.
    n_heads
        Heads of the intact model.
    increase
        Loss increase, with its interval.
    savings
        Parameters, arithmetic and cache.
    speed
        Measured, if it was.
    chosen
        Whether this is what the trial chose.
    """

    kind: str
    heads: Pairs
    n_heads: int
    increase: Interval
    savings: Savings
    speed: Speed | None = None
    chosen: bool = False

    @property
    def option(self) -> str:
        """The options of ``headscape prune`` that make this size."""
        if self.kind not in OPTIONS:
            return "--heads " + ",".join(f"{layer}.{head}" for layer, head in self.heads)
        return f"{OPTIONS[self.kind]}--fraction {share_for(len(self.heads), self.n_heads):g}"

    def summary(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them."""
        interval = self.increase
        return {
            "kind": self.kind,
            "heads": len(self.heads),
            "increase": json_ready([interval.estimate, interval.low, interval.high]),
            **{name: values for name, values in self.savings.to_dict().items() if name != "length"},
            "speed": None if self.speed is None else self.speed.summary(),
            "chosen": self.chosen,
            "option": self.option,
        }


def _seconds(part: str) -> Callable[[SizePoint], float | None]:
    """Return the measure of time: of the intact model's, the share that a size takes; None where it is not known."""

    def measure(point: SizePoint) -> float | None:
        timing = None if point.speed is None else getattr(point.speed, part)
        return None if timing is None or timing.noisy else 1 / timing.ratio

    return measure


MEASURES: Mapping[str, Callable[[SizePoint], float | None]] = {
    "heads": lambda point: float(point.n_heads - len(point.heads)),
    "parameters": lambda point: float(point.savings.parameters.after),
    "key-value cache": lambda point: float(point.savings.cache_bytes_per_token.after) or None,
    "prefill time": _seconds("prefill"),
    "decoding time": _seconds("decoding"),
}
"""What is to be small, by its name; None where a size does not have it."""
COUNTED = ("heads", "parameters", "key-value cache")
"""Measures that are the same in every run: times would name other sizes whenever they are taken again."""


@dataclass(frozen=True)
class TradeOff:
    """Sizes of one model, the cheapest first, compared on ``windows`` windows.

    Examples
    --------
    >>> TradeOff((), 16).choices
    {}
    """

    points: tuple[SizePoint, ...]
    windows: int

    @property
    def choices(self) -> dict[str, SizePoint]:
        """Sizes that nothing beats in a measure that is counted, named A, B, C, ... from the lowest loss on."""
        best = [point for point in self.points if {*self.best_for(point)} & {*COUNTED}]
        return {_name(place): point for place, point in enumerate(best)}

    def best_for(self, point: SizePoint) -> tuple[str, ...]:
        """Return the measures for which a size is a Pareto choice; measures that no size lowers are left out."""
        return tuple(name for name, measure in MEASURES.items() if point in _front(self.points, measure))

    def summary(self) -> dict[str, Any]:
        """Return all sizes as JSON can hold them."""
        names = {id(point): name for name, point in self.choices.items()}
        return {
            "windows": self.windows,
            "points": [
                {**point.summary(), "choice": names.get(id(point)), "best_for": list(self.best_for(point))}
                for point in self.points
            ],
        }


def _front(points: Sequence[SizePoint], measure: Callable[[SizePoint], float | None]) -> list[SizePoint]:
    """Return the points that no other beats in both loss and a measure."""
    known = [
        (point.increase.estimate, size, point) for point in points if (size := measure(point)) is not None
    ]
    if len({size for _, size, _ in known}) < 2:
        return []
    return [
        point
        for loss, size, point in known
        if not any(
            other_loss <= loss and other <= size and (other_loss, other) != (loss, size)
            for other_loss, other, _ in known
        )
    ]


def _name(place: int) -> str:
    """Return A, B, ..., Z, A1, B1, ...

    Examples
    --------
    >>> _name(0), _name(25), _name(26)
    ('A', 'Z', 'A1')
    """
    letter, again = chr(ord("A") + place % 26), place // 26
    return f"{letter}{again}" if again else letter
