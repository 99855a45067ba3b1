"""What all tests share."""

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
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the user's cache, unless a cache is named on purpose."""
    if "HEADSCAPE_CACHE" not in os.environ:
        monkeypatch.setenv("HEADSCAPE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
