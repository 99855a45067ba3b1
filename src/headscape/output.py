"""What results look like outside Python: counts as words, values as JSON can hold them."""

from typing import Any

import numpy as np


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    Examples
    --------
    >>> counted(1, "window"), counted(6, "held-out window")
    ('1 window', '6 held-out windows')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def json_ready(values: Any) -> Any:
    """Return values for JSON: numpy's as Python's, and None for NaN and infinities, which JSON does not have.

    Examples
    --------
    >>> json_ready({"k": np.int64(3), "bounds": [0.5, float("nan")]})
    {'k': 3, 'bounds': [0.5, None]}
    """
    if isinstance(values, dict):
        return {str(name): json_ready(value) for name, value in values.items()}
    if isinstance(values, list):
        return [json_ready(value) for value in values]
    value = values.item() if isinstance(values, np.generic) else values
    return None if isinstance(value, float) and not np.isfinite(value) else value
