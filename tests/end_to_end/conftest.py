"""What the tests of whole programs share."""

from collections.abc import Iterator
from typing import Any

import pytest

import browser


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser for all tests of a file."""
    with browser.browser() as started:
        yield started
