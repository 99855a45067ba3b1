"""The curves of an ablation study, and the verdict on one of them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.intervals import Interval
from headscape.output import json_ready

FloatArray64 = NDArray[np.float64]
RANDOM, REPAIRED = "random", "+repair"


@dataclass(frozen=True, eq=False)
class Curve:
    """Losses of one way to remove heads.

    Parameters
    ----------
    losses : (draw, count, window) array
        One draw for a ranking, several for random orders.
    orders : (draw, place, 2) array
        The (layer, head) pairs in the order in which they were switched off; of published methods that choose
        anew for every count, those of the largest.
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
    draws; ``word`` is "better than random", "no better than random" or "worse than random", and "not judged" where
    there are too few windows for an interval.
    """

    method: str
    word: str
    area: Interval
    difference: Interval
    beaten: int
    draws: int

    def __str__(self) -> str:
        low, high = self.difference.low, self.difference.high
        bounds = f" [{low:+.3g}, {high:+.3g}]" if self.difference.has_bounds else ""
        return (
            f"{self.method}: {self.word} (area under the curve {self.difference.estimate:+.3g}{bounds} compared with "
            f"it; it beats {self.beaten} of {self.draws} random orders)"
        )

    def summary(self) -> dict[str, Any]:
        """Return the verdict as JSON can hold it."""
        area, difference = ([i.estimate, i.low, i.high] for i in (self.area, self.difference))
        summary: dict[str, Any] = json_ready({**asdict(self), "area": area, "difference": difference})
        return summary


def is_random(method: str) -> bool:
    """Tell whether a curve shows random orders.

    Examples
    --------
    >>> is_random("random+repair"), is_random("gradient")
    (True, False)
    """
    return method.removesuffix(REPAIRED) == RANDOM
