"""One sampled step: every metric of every head, and what is known about the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headscape.monitor.alert import HeadName

Values = NDArray[np.float32]

TRAIN, EVAL = "train", "eval"
HEALTHY, WATCH, ALERT = 0, 1, 2
"""What is said of a head at a step: nothing, something odd that has to be seen again, an alert that goes on."""


@dataclass(frozen=True)
class LayerShape:
    """One attention module of a run: its stack, layer, and how many heads it has."""

    stack: str
    layer: int
    n_heads: int


@dataclass(frozen=True, eq=False)
class Sample:
    """One sampled step of a run.

    Attributes
    ----------
    step
        Updates of the weights before this step.
    phase
        "train" or "eval".
    values
        Every metric, (head,) in the order of the run's heads.
    states : (head,) int8
        0 healthy, 1 watch, 2 alert.
    odd
        Why heads are watched: by metric, the places of those whose value has to be seen again.
    loss, epoch
        NaN if unknown.
    time
        Seconds since 1970.
    seconds
        Time spent inside the monitor for this sample.
    """

    step: int
    values: Mapping[str, Values]
    phase: str = TRAIN
    states: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    odd: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    loss: float = float("nan")
    epoch: float = float("nan")
    time: float = float("nan")
    seconds: float = float("nan")


def head_names(layers: Sequence[LayerShape]) -> tuple[HeadName, ...]:
    """Return the heads of a run, in the order of all its arrays.

    Examples
    --------
    >>> head_names([LayerShape("self", 0, 2), LayerShape("self", 1, 1)])
    (('self', 0, 0), ('self', 0, 1), ('self', 1, 0))
    """
    return tuple((shape.stack, shape.layer, head) for shape in layers for head in range(shape.n_heads))
