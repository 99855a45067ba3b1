"""The outcome of one test on one head, and how much rounding a test allows."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np


class Status(StrEnum):
    """How a test ended."""

    passed = "passed"
    failed = "failed"
    not_judged = "not judged"


@dataclass(frozen=True)
class Judgement:
    """The outcome of one test on one head.

    Parameters
    ----------
    test
        Name of the test.
    layer, head
        Where; ``head`` is None for a test on a whole module.
    status
        How it ended.
    value, tolerance
        What was measured, and the most that is allowed.
    detail
        What the value means, or why the test was not judged.
    stack
        Which stack of a model with several.
    """

    test: str
    layer: int
    head: int | None
    status: Status
    value: float = float("nan")
    tolerance: float = float("nan")
    detail: str = ""
    stack: str = "self"

    @classmethod
    def measured(
        cls,
        test: str,
        layer: int,
        head: int | None,
        value: float,
        tolerance: float,
        detail: str,
        stack: str = "self",
        *,
        keep_detail: bool = False,
    ) -> Self:
        """Return passed if the value is within its tolerance (NaN is not); the detail is for failures.

        Examples
        --------
        >>> Judgement.measured("row sums", 3, 1, 0.5, 1e-5, "rows do not sum to one").status.value
        'failed'
        """
        good = value <= tolerance
        status = Status.passed if good else Status.failed
        return cls(
            test, layer, head, status, value, tolerance, "" if good and not keep_detail else detail, stack
        )

    @classmethod
    def not_judged(cls, test: str, layer: int, head: int | None, why: str, stack: str = "self") -> Self:
        """Return not judged, with the reason."""
        return cls(test, layer, head, Status.not_judged, detail=why, stack=stack)


@dataclass(frozen=True)
class Tolerances:
    """How much rounding each test allows.

    Parameters
    ----------
    zero_sum, row_sums, probs
        Absolute.
    rank
        Relative to the largest singular value.
    relative
        For comparisons of logits, outputs and keys in norm.
    eps
        Rounding unit of the model's own arithmetic.
    """

    zero_sum: float = 1e-6
    row_sums: float = 1e-5
    probs: float = 1e-4
    rank: float = 1e-4
    relative: float = 1e-3
    eps: float = float(np.finfo(np.float32).eps)

    @classmethod
    def of_eps(cls, eps: float) -> Self:
        """Return the tolerances for a model that computes with this rounding unit (float32 or coarser)."""
        single = float(np.finfo(np.float32).eps)
        if eps <= single:
            return cls()
        # Logits of size 10 to 20 are rounded before softmax, so probabilities move by as many units.
        return cls(row_sums=4 * eps, probs=20 * eps, rank=8 * eps, relative=8 * eps, eps=eps)
