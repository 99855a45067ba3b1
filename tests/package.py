"""Build a wheel and an sdist, install the wheel into an empty environment, and run a quick analysis from there.

    python -m tests.package

Takes some minutes, most of them for installing what headscape needs; nothing of this clone is on the path of the run.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = ("analyze", "synthetic", "--quick", "--quiet", "-o", "study")


def built(folder: Path) -> tuple[Path, Path]:
    """Return a wheel and an sdist of this clone."""
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def main() -> None:
    """Build, install, run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, _ = built(folder / "dist")
        venv.create(folder / "empty", with_pip=True)
        program = folder / "empty" / "bin"
        pip = (program / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
        _run(*pip, f"{wheel}[report]")
        _run(program / "headscape", *QUICK, cwd=folder)
        report = folder / "study" / "report.html"
        print(f"{wheel.name}: installed, analyzed, {report.stat().st_size / 1e6:.1f} MB of report")


def _run(*words: object, cwd: Path | None = None) -> None:
    subprocess.run([str(word) for word in words], check=True, cwd=cwd)


if __name__ == "__main__":
    main()
