"""Pattern scores against what they are measured beside: the fields of a capture, and their organization."""

import numpy as np

from benchmarks.harness import Measure, Row, compare
from headscape.engine import LocalEngine
from headscape.geometry.organization import organize
from headscape.study.stages.context import Context
from headscape.study.stages.patterns import Patterns
from headscape.tensor.capture import Capture

LAYERS, HEADS, LENGTH, D = 10, 9, 256, 64
WANTED = ">= 5x"
"""Scores take at most a fifth of the time."""


def rows() -> list[Row | Measure]:
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(LAYERS, HEADS, LENGTH, D)), rng.normal(size=(LAYERS, 3, LENGTH, D))
    words = [f"w{i}" if i % 12 else "." for i in rng.integers(0, 80, LENGTH)]
    capture = Capture.from_arrays(queries, keys, tokens=words)
    context = Context(capture, {"field": "probs", "seed": 0}, engine=LocalEngine())

    def scores() -> None:
        Patterns().measure(context, 0)  # the probabilities are at hand, as in an analysis

    return [
        compare(
            f"pattern scores of {LAYERS * HEADS} heads, L = {LENGTH}",
            scores,
            lambda: organize(capture.tensor(0, "probs")),
            "the probabilities of a capture, organized",
            wanted=WANTED,
        )
    ]
