"""What is built for others: a wheel that holds all it needs, and runs away from this clone."""

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

pytest.importorskip("build")
pytest.importorskip("hatchling")

from package import QUICK, ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"headscape"}
    for needed in ("headscape/py.typed", "headscape/__init__.pyi", "headscape/report/page_files/report.css"):
        assert needed in names


def test_the_description_holds_no_links_into_the_repository(built):
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        metadata = email.message_from_string(wheel.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert text.startswith("# headscape")
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)
    assert "How to read the report goes through" in text


def test_the_sdist_holds_what_the_tests_need(built):
    with tarfile.open(built[1]) as sdist:
        names = sdist.getnames()
    for needed in (
        "tests/conftest.py",
        "examples/tiny_model/config.json",
        "constraints.txt",
        "Makefile",
        "LICENSE",
    ):
        assert any(name.endswith(f"/{needed}") for name in names), needed


def test_the_installed_wheel_runs_a_quick_analysis(built, tmp_path):
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(tmp_path / "installed")
    code = "import headscape; print(headscape.__file__); from headscape.cli.main import run; run()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", code, *QUICK], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "installed"))
    assert (tmp_path / "study" / "report.html").stat().st_size > 1e6
