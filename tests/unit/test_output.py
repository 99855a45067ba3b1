"""Counts in words and values as JSON has them."""

import json

import numpy as np
import pytest

from headscape.output import counted, json_ready


@pytest.mark.parametrize(("n", "words"), [(0, "0 heads"), (1, "1 head"), (2, "2 heads")])
def test_only_one_is_singular(n, words):
    assert counted(n, "head") == words


def test_everything_that_json_does_not_have_becomes_null():
    values = {"a": [np.float32(0.5), float("nan"), np.inf], 3: {"b": np.int64(2), "c": "word", "d": None}}
    found = json_ready(values)
    assert found == {"a": [0.5, None, None], "3": {"b": 2, "c": "word", "d": None}}
    json.dumps(found, allow_nan=False)
