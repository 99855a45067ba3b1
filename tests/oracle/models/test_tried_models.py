"""The table of models that were tried: every row is tried again, so that what stops working is named."""

import re
from pathlib import Path

import pytest

from headscape.models.tried_models import tried_models
from tried_models import COLUMNS, FAMILIES, tried_row

TABLE = tried_models()
ROWS = {row[0]: row for row in TABLE["rows"]}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_row_is_true(family):
    assert list(tried_row(family).values()) == ROWS[family]


def test_the_table_has_all_families_and_says_with_which_versions():
    assert TABLE["columns"] == COLUMNS
    assert list(ROWS) == list(FAMILIES)
    pinned = (Path(__file__).parents[3] / "constraints.txt").read_text()
    for name, version in TABLE["versions"].items():
        assert re.search(rf"^{name}=={re.escape(version)}$", pinned, re.MULTILINE)


def test_what_can_be_observed_agrees_and_can_be_gated():
    for row in TABLE["rows"]:
        of = dict(zip(COLUMNS, row, strict=True))
        assert (of["agreement"] == "1e-05") == (of["observe"] == "yes") == (of["gate"] == "yes"), row
        assert of["observe"] == "yes" or of["remark"], row
