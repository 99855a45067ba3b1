"""What results look like outside Python: counts and times as words, values as JSON can hold them."""

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


def in_words(seconds: float) -> str:
    """Return a time as people say it, rounded to what an estimate is worth.

    Examples
    --------
    >>> in_words(3.2), in_words(43), in_words(89), in_words(3000), in_words(9000)
    ('about 3 seconds', 'about 45 seconds', 'about 1.5 minutes', 'about 50 minutes', 'about 2.5 hours')
    """
    if seconds < 57:
        step, unit, size = (1.0, "second", 1.0) if seconds < 10 else (5.0, "second", 1.0)
    elif seconds < 3500:
        step, unit, size = (
            (0.5, "minute", 60.0) if seconds < 300 else (1.0 if seconds < 900 else 5.0, "minute", 60.0)
        )
    else:
        step, unit, size = 0.5, "hour", 3600.0
    number = max(step, step * round(seconds / size / step))
    return f"about {number:g} {unit}{'' if number == 1 else 's'}"


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
