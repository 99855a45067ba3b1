"""The stages of an analysis, at growing sizes, beside organizing the same window: what each of them adds to it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import Measure, Row, compare
from headscape.engine import LocalEngine
from headscape.geometry.organization import organize
from headscape.study.stages import stage_named, stage_options
from headscape.study.stages.context import Context
from headscape.study.stages.stage import Stage
from headscape.tensor.capture import Capture

SIZES = ((4, 9, 64), (10, 9, 128), (30, 9, 256))
"""Layers, heads of each, tokens."""
KV_HEADS, D, WINDOWS = 3, 64, 2
NAMES = ("patterns", "folders", "sinks", "entropy", "energy", "regularity", "pictures")
ORGANIZING = "organizing one window, 3 iterations"


def rows() -> list[Row | Measure]:
    with threadpool_limits(1, user_api="blas"):  # as in an analysis
        return [row for size in SIZES for row in _of_size(*size)]


def _of_size(layers: int, heads: int, length: int) -> list[Row]:
    capture = captured(layers, heads, length)
    context = Context(
        capture, {"field": "probs", "seed": 0}, stage_options({}), engine=LocalEngine(), organizations=()
    )
    found = tuple(organize(capture.tensor(window, "probs")) for window in range(WINDOWS))
    context = replace(context, organizations=found)
    sizes = f"{layers * heads} heads, {length} tokens"
    return [
        compare(
            f"{name}, {sizes}",
            _piece(stage_named(name), context),
            lambda: organize(capture.tensor(0, "probs")),
            ORGANIZING,
            wanted=">= 5x" if name == "patterns" else "",
        )
        for name in NAMES
    ]


def _piece(stage: Stage, context: Context) -> Callable[[], object]:
    """Return the work on the first window, or on all windows where a stage takes them together."""
    return lambda: stage.measure(context, 0)


def captured(layers: int, heads: int, length: int) -> Capture:
    """Return random queries and keys whose first key is an attention sink, with words that repeat."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(WINDOWS, layers, heads, length, D)).astype(np.float32)
    keys = rng.normal(size=(WINDOWS, layers, KV_HEADS, length, D)).astype(np.float32)
    queries[..., 0] += 4
    keys[..., 0, 0] += 12
    words = [f"w{i}" if i % 12 else "." for i in rng.integers(0, 80, length)]
    return Capture.from_arrays(queries, keys, tokens=words)
