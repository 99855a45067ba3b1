"""What all tests share."""

import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "headscape",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headscape")


@pytest.fixture(autouse=True)
def _own_logging() -> None:
    """Begin every test with the library's log as it is imported: commands that run inside a test quiet it."""
    log = logging.getLogger("headscape")
    log.setLevel(logging.NOTSET)
    log.handlers, log.propagate, log.disabled = [], True, False


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the user's cache, unless a cache is named on purpose."""
    if "HEADSCAPE_CACHE" not in os.environ:
        monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
