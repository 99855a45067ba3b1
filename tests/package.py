"""Build a wheel and an sdist, install the wheel into an empty environment, and run quick analyses from there.

    python -m tests.package

First with few dependencies, of random tensors; then with those for models, of the small model that the sdist holds.
Takes some minutes, most of them for installing; nothing of this clone is on the path of the runs.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = ("analyze", "synthetic", "--quick", "--quiet", "-o", "study")


def built(folder: Path) -> tuple[Path, Path]:
    """Return a wheel and an sdist of this clone; the wheel is made of what the sdist holds."""
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def main() -> None:
    """Build, install, run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = built(folder / "dist")
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = folder.glob("headscape-*")
        venv.create(folder / "empty", with_pip=True)
        program = folder / "empty" / "bin"
        pip = (program / "python", "-m", "pip", "install", "--quiet", "-c", source / "constraints.txt")
        analyses = {
            "report": QUICK,
            "models,report": ("analyze", source / "examples" / "tiny_model", *QUICK[2:-1], "model"),
        }
        for extras, words in analyses.items():
            _run(*pip, f"{wheel}[{extras}]")
            _run(program / "headscape", *words, cwd=folder)
            report = folder / words[-1] / "report.html"
            size = report.stat().st_size / 1e6
            print(f"{wheel.name}[{extras}]: installed, analyzed, {size:.1f} MB of report", flush=True)


def _run(*words: object, cwd: Path | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(word) for word in words], check=True, cwd=cwd, env=environment)


if __name__ == "__main__":
    main()
