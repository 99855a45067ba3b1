"""What an ablation study measured, and what that says: curves, areas, verdicts, how many heads can be removed."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.ablation.ablation_files import ablation_parts, finished
from headscape.ablation.curves import RANDOM, REPAIRED, Curve, FloatArray64, Verdict, is_random
from headscape.ablation.default_verdict import default_verdict
from headscape.analysis.intervals import Interval, bootstrap, bootstrap_crossed
from headscape.errors import InputError
from headscape.notices import Notice
from headscape.output import counted, json_ready

BAND = (0.05, 0.95)
TOLERANCE = 0.05


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
    warnings: tuple[Notice, ...] = ()
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
            word = "better" if difference.high < 0 else "worse" if difference.low > 0 else "no better"
            judged = f"{word} than {baseline}" if difference.has_bounds else f"not judged against {baseline}"
            found[method] = Verdict(
                method=method,
                word=judged,
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
        >>> curves = {name: Curve(np.full((1, 1, 4), 2.0 + x), np.zeros((1, 1, 2), int)) for name, x in
        ...           (("a", 0.1), ("b", 0.2))}
        >>> print(AblationStudy(curves, (1,), np.full(4, 2.0), 4, "nats").ratio("a", "b", 1))
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
        sentences = [
            self._best(),
            default_verdict(self),
            *(f"{verdict}." for verdict in self.verdicts.values()),
        ]
        spare = sorted(self.spare().items(), key=lambda item: -item[1][0])
        named = ", ".join(
            f"{n} ({100 * n / self.n_heads:.0f} %) with {method}"
            + ("" if sure == n else f", {sure} by its interval")
            for method, (n, sure) in spare
        )
        what = "higher loss" if self.relative else "change of the output"
        limit = f"{100 * TOLERANCE:.0f} % {what}"
        sentences.append(f"Of {self.n_heads} heads, so many can be removed for less than {limit}: {named}.")
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
            "curves": json_ready(self.to_frame().to_dict("records")),
            "verdicts": [verdict.summary() for verdict in self.verdicts.values()],
            "spare": {name: list(counts) for name, counts in self.spare().items()},
            "findings": list(self.findings),
            "warnings": [notice.message for notice in self.warnings],
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
        names = ("counts", "n_heads", "loss", "perplexity", "relative", "parameters", "input_hash")
        values = {name: getattr(self, name) for name in names}
        values |= {"methods": self.methods, "warnings": [asdict(notice) for notice in self.warnings]}
        found: dict[str, Any] = json.loads(json.dumps(values))
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any]) -> Self:
        """Return the study that :meth:`arrays` and :meth:`attributes` describe."""
        values = {name: value for name, value in attributes.items() if name in cls.__dataclass_fields__}
        curves = {
            method: Curve(arrays[f"losses-{i}"], arrays[f"orders-{i}"], arrays.get(f"accuracy-{i}"))
            for i, method in enumerate(attributes["methods"])
        }
        warnings = tuple(
            Notice(**warning) if isinstance(warning, dict) else Notice("calibration-split", warning)
            for warning in values["warnings"]
        )
        values |= {"counts": tuple(values["counts"]), "warnings": warnings}
        return cls(
            curves=curves, intact=arrays["intact"], intact_accuracy=arrays.get("intact_accuracy"), **values
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a folder, with curves.csv and summary.json beside it; :meth:`load` gives it back."""
        table = self.to_frame().to_csv(index=False, lineterminator="\n")
        seed = int(self.parameters.get("seed", 0))
        with ablation_parts(path, self.parameters, self.input_hash, seed) as parts:
            parts.finish(self.arrays(), self.attributes(), table, self.summary())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the study that was saved last in a folder."""
        return cls.from_arrays(*finished(path))

    def __repr__(self) -> str:
        counts, windows = counted(len(self.counts), "count"), counted(len(self.intact), "window")
        heads = f"{max(self.counts)} of {counted(self.n_heads, 'head')}"
        return f"AblationStudy({', '.join(self.methods)}; {counts} up to {heads}, {windows})"

    def _best(self) -> str:
        ranked = sorted((m for m in self.methods if not is_random(m)), key=lambda m: self.areas(m).mean())
        if not ranked:
            return ""
        best = ranked[0]
        count = min(self.counts, key=lambda c: abs(c / self.n_heads - 0.1))
        others = ", ".join(
            f"{method} {self.interval(method, count)}"
            for method in [*ranked[1:], *(m for m in self.methods if is_random(m))]
        )
        return (
            f"With {count} of {self.n_heads} heads off ({100 * count / self.n_heads:.0f} %) the loss of "
            f"{self.intact.mean():.3g} ({self.loss}) increases by {self.interval(best, count)} with {best}, the best "
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
