"""Two networks of a comparison: how far apart they are, which heads belong together, and what changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.analysis.comparison.shifts import Onset, onset
from headscape.study.stages.result import Result

FloatArray64 = NDArray[np.float64]

NOTHING: FloatArray64 = np.empty((0, 0))
SHIFTS = ("level", "layer", "head", "folder", "moved", "low", "high", "most")


def no_shifts() -> pd.DataFrame:
    """Return the shifts of networks that have none."""
    return pd.DataFrame({name: pd.Series(dtype=object if name == "level" else np.float64) for name in SHIFTS})


@dataclass(frozen=True, eq=False)
class ComparedPair:
    """What a comparison says about two of its networks.

    Attributes
    ----------
    a, b
        Their numbers in the comparison.
    windows
        "same" if both saw the same windows, else "other".
    matched
        How heads were matched for ``changes``: "number" (the same layer and head), "original number" (of a pruned
        model), "assignment" (the heads are the same in another order), or "" where they are not matched at all.
    distance
        Gromov-Wasserstein distance of the head geometries, in median EMDs.
    distance_by_number
        Root mean square difference of the EMDs of heads of the same number, in median EMDs; NaN where heads are
        not matched.
    noise
        The distance between window sets of one and the same network (the larger of the two); NaN for single windows.
    plan : (head of a, head of b) array
        The transport plan behind ``distance``: the soft correspondence.
    emd : (head of a, head of b) array
        Tree EMD between the heads of both networks, mean over the windows that they share; (0, 0) if there are none.
    correspondence
        One row per pair of heads: layer_a, head_a, layer_b, head_b, ``emd`` and ``margin`` (NaN without common
        windows), ``mass`` (share of the head's transport that goes to its partner) and ``cka`` (NaN without models).
    how
        Where the pairs come from: "assignment" (tree EMD on the same windows) or "transport" (the plan).
    changes
        One row per unit and measure: ``level`` ("network", "layer", "folder" or "head"), layer, head, folder (-1
        where it has none), ``measure``, ``size``, ``times_noise``, ``p`` and ``verdict`` ("changed", "inside the
        noise", "identical", "unknown").
    effects
        One row per measure: medians of the heads, Cliff's delta with its interval over windows, times_noise, verdict.
    shifts
        How far heads moved on the same windows, one row per unit: ``level``, layer, head, folder as in ``changes``,
        ``moved`` (tree EMD from the partner in median EMDs, mean over heads and windows), ``low`` and ``high`` (over
        windows), ``most`` (share of the windows in which no unit of its level moved farther). Empty unless heads are
        matched and windows are the same.
    cka_heads, cka_layers
        Debiased linear CKA of head outputs, (head, head) and (layer, layer); (0, 0) unless both sources are models with
        the same inputs.
    test
        ``splits``, ``exact``, ``level``, ``paired``; empty if there were too few windows.
    not_compared
        What could not be compared, and why.
    settled
        Whether the transport behind ``distance`` stopped improving before its last iteration.
    """

    a: int
    b: int
    windows: str
    matched: str
    distance: float
    distance_by_number: float
    noise: float
    plan: FloatArray64
    emd: FloatArray64
    correspondence: pd.DataFrame
    how: str
    changes: pd.DataFrame
    effects: pd.DataFrame
    shifts: pd.DataFrame = field(default_factory=no_shifts)
    cka_heads: FloatArray64 = field(default_factory=lambda: NOTHING)
    cka_layers: FloatArray64 = field(default_factory=lambda: NOTHING)
    test: Mapping[str, Any] = field(default_factory=dict)
    not_compared: tuple[tuple[str, str], ...] = ()
    settled: bool = True

    @property
    def times_noise(self) -> float:
        """The distance in units of the noise; NaN where there is no noise to compare with."""
        return self.distance / self.noise if self.noise > 0 else (0.0 if self.distance == 0 else np.nan)

    @property
    def head_distance(self) -> float:
        """Mean tree EMD between heads of the same number on the same windows; NaN where heads are not matched so."""
        if self.matched != "number" or not self.emd.size:
            return float("nan")
        return float(np.trace(self.emd) / len(self.emd))

    @property
    def onset(self) -> Onset:
        """In which layer the difference on the same windows begins, as the layers are numbered in the first network."""
        rows = self.shifts[self.shifts["level"] == "layer"].sort_values("layer")
        found = onset(rows["moved"])
        layers = [int(layer) for layer in rows["layer"]]
        first, step = (None if place is None else layers[place] for place in (found.first, found.step))
        return Onset(first, step, found.ratio)

    def at(self, level: str, measure: str | None = None) -> pd.DataFrame:
        """Return the changes of one level, of one measure or of all."""
        rows = self.changes[self.changes["level"] == level]
        return rows if measure is None else rows[rows["measure"] == measure]

    def to_result(self) -> Result:
        """Return everything as arrays, attributes and tables, to be saved."""
        numbers = ("distance", "distance_by_number", "noise")
        arrays = {name: getattr(self, name) for name in ("plan", "emd", "cka_heads", "cka_layers")}
        arrays["numbers"] = np.array([getattr(self, name) for name in numbers])
        attributes = {
            name: getattr(self, name) for name in ("a", "b", "windows", "matched", "how", "settled")
        }
        return Result(
            {name: array for name, array in arrays.items() if array.size},
            {**attributes, "test": dict(self.test), "not_compared": [list(row) for row in self.not_compared]},
            {name: getattr(self, name) for name in ("correspondence", "changes", "effects", "shifts")},
        )

    @classmethod
    def from_result(cls, result: Result) -> Self:
        """Return what :meth:`to_result` saved."""
        distance, by_number, noise = (float(value) for value in result.arrays["numbers"])
        words = {
            name: result.attributes[name]
            for name in ("a", "b", "windows", "matched", "how", "test", "settled")
        }
        arrays: Any = {
            name: result.arrays.get(name, NOTHING) for name in ("plan", "emd", "cka_heads", "cka_layers")
        }
        shifts = result.tables.get("shifts", no_shifts())
        tables: Any = {name: result.tables[name] for name in ("correspondence", "changes", "effects")}
        return cls(
            **words,
            distance=distance,
            distance_by_number=by_number,
            noise=noise,
            **arrays,
            **tables,
            shifts=no_shifts() if shifts.empty else shifts,  # an empty table comes back without its types
            not_compared=tuple((str(what), str(why)) for what, why in result.attributes["not_compared"]),
        )
