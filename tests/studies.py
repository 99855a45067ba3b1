"""Small studies for tests: random queries and keys with a little structure, so that trees have something to find."""

from typing import Any

import numpy as np

from headscape.study.analyze import analyze
from headscape.study.study import Study
from headscape.tensor.capture import Capture

ODD_TOKENS = (
    "<script>alert(1)</script>",
    "</script>",
    "<b>bold</b>",
    "{{data}}",
    "&amp;",
    " ",
    "\n",
    "\u2028",
)
ODD_NAME = '<img src="x" onerror="document.title=1">'


def small_capture(
    windows: int = 3, layers: int = 3, heads: int = 4, length: int = 24, seed: int = 0, name: str = "planted"
) -> Capture:
    """Return a capture with shared keys in which heads of one layer resemble each other."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(windows, layers, max(1, heads // 2), length, 6))
    shared = rng.normal(size=(1, layers, 1, length, 6))
    queries = shared + 0.5 * rng.normal(size=(windows, layers, heads, length, 6))
    tokens = [ODD_TOKENS[i] if i < len(ODD_TOKENS) else f"token{i}" for i in range(length)]
    return Capture.from_arrays(
        queries,
        keys,
        tokens=tokens,
        provenance={"model": {"name": name, "class": "Planted"}, "input_hash": "x"},
    )


def small_study(**options: Any) -> Study:
    """Analyze a small capture; options go to :func:`small_capture`, or to analyze if they are its own."""
    made = {
        key: options.pop(key) for key in ("windows", "layers", "heads", "length", "name") if key in options
    }
    return analyze(small_capture(**made), **{"n_iter": 1, "k": 50, **options})
