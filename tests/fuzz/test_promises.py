"""The page of promises names tests that exist, and no promise goes without one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "promises.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE).group(1)


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_every_named_test_exists(path, name):
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("title", ["Kept", "Verified", "Refused"])
def test_every_promise_names_its_tests(title):
    promises = section(title).split("\n- ")[1:]
    assert len(promises) >= 5
    assert [promise for promise in promises if "::test_" not in promise] == []


def test_tests_are_named_in_full():
    assert len(NAMED) == PAGE.count("::test_")
