"""The table of models that were tried with this version: what can be observed, gated and pruned.

It is made by the tests (``tests/tried_models.py``), which also try every row again.
"""

import json
from importlib.resources import files
from typing import Any

FILE = "tried_models.json"


def tried_models() -> dict[str, Any]:
    """Return the table: ``versions``, ``columns``, and ``rows`` of strings.

    Examples
    --------
    >>> table = tried_models()
    >>> [row[1:6] for row in table["rows"] if row[0] == "GPTJ"]
    [['text', 'softmax reader', 'yes', 'yes', 'no']]
    """
    text = files("headscape.models").joinpath(FILE).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
