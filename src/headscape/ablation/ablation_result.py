"""What an ablation study measured, and what that says: curves, areas, verdicts, how many heads can go."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.ablation_parts import KIND, AblationParts
from headscape.analysis.intervals import Interval, bootstrap, bootstrap_crossed
from headscape.errors import FileFormatError, InputError
from headscape.tensor.store import Store, content_hash, write_text_atomically

if TYPE_CHECKING:
    import pandas as pd

FloatArray64 = NDArray[np.float64]
RANDOM, REPAIRED = "random", "+repair"
BAND = (0.05, 0.95)
TOLERANCE = 0.05
SUMMARY, CURVES = "summary.json", "curves.csv"


@dataclass(frozen=True, eq=False)
class Curve:
    """Losses of one way to remove heads.

    Parameters
    ----------
    losses : (draw, count, window) array
        One draw for a ranking, several for random orders.
    orders : (draw, place, 2) array
        The (layer, head) pairs in the order in which they were switched off.
    accuracy : (draw, count, window) array
        Share of right answers, where there are labels.
    """

    losses: FloatArray64
    orders: NDArray[np.int64]
    accuracy: FloatArray64 | None = None


@dataclass(frozen=True)
class Verdict:
    """How a ranking compares with random orders.

    ``difference`` is the area under its curve minus that of the random ones, with an interval over windows and
    draws; ``word`` is "better than random", "no better than random" or "worse than random".
    """

    method: str
    word: str
    area: Interval
    difference: Interval
    beaten: int
    draws: int

    def __str__(self) -> str:
        return (
            f"{self.method}: {self.word} (area under the curve {self.difference.estimate:+.3g} "
            f"[{self.difference.low:+.3g}, {self.difference.high:+.3g}] against that; it beats {self.beaten} of "
            f"{self.draws} random orders)"
        )


@dataclass(frozen=True, eq=False)
class AblationStudy:
    """What :func:`headscape.ablation_study` found.

    Parameters
    ----------
    curves
        By method; those with "+repair" behind their name were measured with re-fitted output projections.
    counts
        Numbers of heads that were switched off.
    intact : (window,) array
        Losses of the intact model.
    n_heads
        Of the model's stack.
    loss
        What the loss is, with its unit.
    perplexity, relative
        Whether exp(loss) is a perplexity, and whether an increase can be told as a share of the intact loss.
    intact_accuracy : (window,) array
        Share of right answers of the intact model, where there are labels.
    warnings
        What to know before relying on the numbers.
    parameters, input_hash
        Everything that changes results.
    """

    curves: Mapping[str, Curve]
    counts: tuple[int, ...]
    intact: FloatArray64
    n_heads: int
    loss: str
    perplexity: bool = False
    relative: bool = True
    intact_accuracy: FloatArray64 | None = None
    warnings: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    input_hash: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the curves."""
        return tuple(self.curves)

    def increase(self, method: str) -> FloatArray64:
        """Return the increase of the loss (draw, count, window)."""
        return np.asarray(self._curve(method).losses - self.intact)

    def interval(self, method: str, count: int) -> Interval:
        """Return the mean increase of the loss with so many heads off: its interval over windows, or random's band."""
        values = self.increase(method)[:, self._place(count)]
        if len(values) > 1:
            means = values.mean(axis=1)
            low, high = np.quantile(means, BAND)
            return Interval(float(means.mean()), float(low), float(high), BAND[1] - BAND[0])
        if (method, count) not in self._bootstrapped:
            self._bootstrapped[method, count] = bootstrap(values[0])
        return self._bootstrapped[method, count]

    @cached_property
    def _bootstrapped(self) -> dict[tuple[str, int], Interval]:
        """Intervals that were asked for: tables, figures and sentences all want the same ones."""
        return {}

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per method and count: the increase of the loss with its bounds, and the metric.

        ``low`` and ``high`` are a 95 % interval paired over windows; for random orders the middle 90 % of the draws.
        """
        import pandas as pd

        rows = []
        for method, curve in self.curves.items():
            for place, count in enumerate(self.counts):
                found = self.interval(method, count)
                row: dict[str, Any] = {
                    "method": method,
                    "count": count,
                    "share": count / self.n_heads,
                    "increase": found.estimate,
                    "low": found.low,
                    "high": found.high,
                    "loss": float(curve.losses[:, place].mean()),
                }
                if self.perplexity:
                    row["perplexity"] = float(np.exp(curve.losses[:, place].mean(axis=-1)).mean())
                if curve.accuracy is not None:
                    row["accuracy"] = float(curve.accuracy[:, place].mean())
                rows.append(row)
        return pd.DataFrame(rows)

    def areas(self, method: str) -> FloatArray64:
        """Return the area under the curve (draw, window): the mean increase from no head off to the most."""
        values = self.increase(method)
        shares = np.array([0, *self.counts]) / self.n_heads
        padded = np.concatenate([np.zeros_like(values[:, :1]), values], axis=1)
        return np.asarray(np.trapezoid(padded, shares, axis=1) / shares[-1])

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """How every ranking compares with random orders, repaired ones with repaired ones if these were measured."""
        found = {}
        for method in self.methods:
            baseline = self._random_for(method)
            if baseline is None or method == baseline:
                continue
            mine, random = self.areas(method), self.areas(baseline)
            difference = bootstrap_crossed(mine[:1] - random)
            words = ("better", "worse", "no better")
            word = words[0 if difference.high < 0 else 1 if difference.low > 0 else 2]
            found[method] = Verdict(
                method=method,
                word=f"{word} than {baseline}",
                area=bootstrap(mine[0]),
                difference=difference,
                beaten=int((mine[0].mean() < random.mean(axis=1)).sum()),
                draws=len(random),
            )
        return found

    def ratio(self, method: str, other: str, count: int) -> Interval:
        """Return the increase of one method as a share of another's, with its interval paired over windows.

        Examples
        --------
        >>> curves = {name: Curve(np.array([[[2.0 + x, 2.0 + x]]]), np.zeros((1, 1, 2), int)) for name, x in
        ...           (("a", 0.1), ("b", 0.2))}
        >>> print(AblationStudy(curves, (1,), np.array([2.0, 2.0]), 4, "nats").ratio("a", "b", 1))
        0.5 [0.5, 0.5]
        """
        place = self._place(count)
        pairs = [self.increase(name)[:, place].mean(axis=0) for name in (method, other)]
        return bootstrap(np.stack(pairs, axis=1), lambda rows: float(rows[:, 0].mean() / rows[:, 1].mean()))

    def spare(self, tolerance: float = TOLERANCE) -> dict[str, tuple[int, int]]:
        """Return how many heads can go, by method: by the estimate, and with the upper bound of its interval too.

        Parameters
        ----------
        tolerance
            Which share of the intact loss the increase may be (of the output, where the intact loss is 0).

        Notes
        -----
        Only counts that were measured are named, and only if all smaller ones are within the tolerance too.
        """
        limit = tolerance * (float(self.intact.mean()) if self.relative else 1.0)
        found = {}
        for method in self.methods:
            intervals = [self.interval(method, count) for count in self.counts]
            within = [[i.estimate <= limit for i in intervals], [i.high <= limit for i in intervals]]
            likely, surely = (
                max((c for c, ok in zip(self.counts, np.cumprod(row), strict=True) if ok), default=0)
                for row in within
            )
            found[method] = (likely, min(likely, surely))
        return found

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """What the numbers say, in sentences; the verdicts first."""
        sentences = [self._best(), *(f"{verdict}." for verdict in self.verdicts.values())]
        spare = self.spare()
        named = ", ".join(
            f"{method} {n} ({n / self.n_heads:.0%})" + ("" if sure == n else f", {sure} with its interval")
            for method, (n, sure) in spare.items()
        )
        what = "of the intact loss" if self.relative else "change of the output"
        sentences.append(
            f"Heads of {self.n_heads} that can go for less than {TOLERANCE:.0%} {what}: {named}."
        )
        return tuple(sentence for sentence in sentences if sentence)

    def summary(self) -> dict[str, Any]:
        """Return everything but the single windows as one dict that JSON can hold."""
        return {
            "format": "headscape/ablation-summary/1",
            "loss": self.loss,
            "intact_loss": float(self.intact.mean()),
            "intact_perplexity": float(np.exp(self.intact.mean())) if self.perplexity else None,
            "intact_accuracy": None if self.intact_accuracy is None else float(self.intact_accuracy.mean()),
            "heads": self.n_heads,
            "windows": len(self.intact),
            "counts": list(self.counts),
            "curves": _plain(self.to_frame().to_dict("records")),
            "verdicts": [_plain(_verdict_row(verdict)) for verdict in self.verdicts.values()],
            "spare": {name: list(counts) for name, counts in self.spare().items()},
            "findings": list(self.findings),
            "warnings": list(self.warnings),
            "parameters": json.loads(json.dumps(dict(self.parameters))),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything measured as arrays by name; :meth:`from_arrays` gives the study back."""
        found: dict[str, NDArray[Any]] = {"intact": self.intact}
        if self.intact_accuracy is not None:
            found["intact_accuracy"] = self.intact_accuracy
        for number, curve in enumerate(self.curves.values()):
            found |= {f"losses-{number}": curve.losses, f"orders-{number}": curve.orders}
            if curve.accuracy is not None:
                found[f"accuracy-{number}"] = curve.accuracy
        return found

    def attributes(self) -> dict[str, Any]:
        """Return what is not an array, as JSON can hold it."""
        names = (
            "counts",
            "n_heads",
            "loss",
            "perplexity",
            "relative",
            "warnings",
            "parameters",
            "input_hash",
        )
        values = {name: getattr(self, name) for name in names}
        found: dict[str, Any] = json.loads(json.dumps({**values, "methods": self.methods}))
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any]) -> Self:
        """Return the study that :meth:`arrays` and :meth:`attributes` describe."""
        values = {name: value for name, value in attributes.items() if name in cls.__dataclass_fields__}
        curves = {
            method: Curve(arrays[f"losses-{i}"], arrays[f"orders-{i}"], arrays.get(f"accuracy-{i}"))
            for i, method in enumerate(attributes["methods"])
        }
        values |= {"counts": tuple(values["counts"]), "warnings": tuple(values["warnings"])}
        return cls(
            curves=curves, intact=arrays["intact"], intact_accuracy=arrays.get("intact_accuracy"), **values
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a folder, with curves.csv and summary.json beside it; :meth:`load` gives it back."""
        arrays, attributes = self.arrays(), self.attributes()
        words = np.frombuffer(json.dumps(attributes, sort_keys=True).encode(), dtype=np.uint8)
        part = f"study-{content_hash(words, *arrays.values())[:12]}"
        seed = int(self.parameters.get("seed", 0))
        with AblationParts(path, self.parameters, self.input_hash, seed) as parts:
            if not parts.has(part):
                parts.write(part, arrays, attributes)
            folder = Path(path)
            write_text_atomically(folder / CURVES, self.to_frame().to_csv(index=False, lineterminator="\n"))
            summary = {**self.summary(), "part": part}
            write_text_atomically(folder / SUMMARY, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the study that was saved last in a folder."""
        store = Store.open(path, KIND)
        try:
            name = str(json.loads((Path(path) / SUMMARY).read_text(encoding="utf-8"))["part"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(
                f"{path} holds no finished study ({error}). Run the same command again: it goes on where it stopped."
            ) from error
        part = store.read(name)
        return cls.from_arrays({array: part.array(array) for array in part.names()}, part.attributes)

    def __repr__(self) -> str:
        return (
            f"AblationStudy({', '.join(self.methods)}; {len(self.counts)} counts up to {max(self.counts)} of "
            f"{self.n_heads} heads, {len(self.intact)} windows)"
        )

    def _best(self) -> str:
        ranked = sorted((m for m in self.methods if not is_random(m)), key=lambda m: self.areas(m).mean())
        if not ranked:
            return ""
        best, count = (
            ranked[0],
            self.counts[int(np.argmin([abs(c / self.n_heads - 0.1) for c in self.counts]))],
        )
        others = ", ".join(
            f"{method} {self.interval(method, count)}"
            for method in [*ranked[1:], *(m for m in self.methods if is_random(m))]
        )
        return (
            f"With {count} of {self.n_heads} heads off ({count / self.n_heads:.0%}) the loss of "
            f"{self.intact.mean():.3g} ({self.loss}) rises by {self.interval(best, count)} with {best}, the best "
            f"over all counts (smallest area)" + (f"; {others}." if others else ".")
        )

    def _random_for(self, method: str) -> str | None:
        wanted = RANDOM + REPAIRED if method.endswith(REPAIRED) else RANDOM
        for name in (wanted, RANDOM):
            if name in self.curves:
                return name
        return None

    def _curve(self, method: str) -> Curve:
        if method not in self.curves:
            raise InputError(f"method must be one of {', '.join(self.curves)}, but is {method!r}.")
        return self.curves[method]

    def _place(self, count: int) -> int:
        if count not in self.counts:
            raise InputError(f"count must be one of {', '.join(map(str, self.counts))}, but is {count}.")
        return self.counts.index(count)


def is_random(method: str) -> bool:
    """Tell whether a curve shows random orders.

    Examples
    --------
    >>> is_random("random+repair"), is_random("gradient")
    (True, False)
    """
    return method.removesuffix(REPAIRED) == RANDOM


def part_name(text: str) -> str:
    """Return a name as a store can hold it.

    Examples
    --------
    >>> part_name("haar:reversed+repair")
    'haar.reversed+repair'
    """
    return re.sub(r"[^A-Za-z0-9_+-]", ".", text)


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {
        "method": verdict.method,
        "word": verdict.word,
        "area": [verdict.area.estimate, verdict.area.low, verdict.area.high],
        "difference": [verdict.difference.estimate, verdict.difference.low, verdict.difference.high],
        "beaten": verdict.beaten,
        "draws": verdict.draws,
    }


def _plain(values: Any) -> Any:
    """Return values for JSON, which knows no NaN."""
    if isinstance(values, dict):
        return {name: _plain(value) for name, value in values.items()}
    if isinstance(values, list):
        return [_plain(value) for value in values]
    value = values.item() if isinstance(values, np.generic) else values
    return None if isinstance(value, float) and not np.isfinite(value) else value
