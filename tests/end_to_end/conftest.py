"""What the tests of whole programs share."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

import browser

AXE = "axe-core@4.14.0"


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser for all tests of a file."""
    with browser.browser() as started:
        yield started


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of axe-core, fetched by npm; it is no part of the project."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed, so axe-core cannot be fetched")
    folder = tmp_path_factory.mktemp("axe")
    try:
        done = subprocess.run(
            ["npm", "pack", AXE, "--silent"], cwd=folder, capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not fetch axe-core within two minutes")
    packed = list(folder.glob("*.tgz"))
    if done.returncode or not packed:
        pytest.skip(f"npm could not fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(packed[0]) as package:
        script = package.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode("utf-8")
