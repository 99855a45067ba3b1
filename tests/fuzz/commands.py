"""The commands that write, on the tiny model with tiny windows, and what must be the same after every rerun."""

import hashlib
import json
from pathlib import Path
from typing import Any

import headscape as hs
from fuzz.models import TINY

SMALL = ("--windows", "2", "--length", "16", "--quiet")
PLAIN = (*SMALL, "--figures", "none")
QUICK = (*PLAIN, "--n-iter", "1")
CUT = ("--calibration-windows", "2")

LONG: dict[str, tuple[str, ...]] = {
    "analyze": (*QUICK, "--set", "k=20"),
    "capture": SMALL,
    "patterns": PLAIN,
    "entropy": (*QUICK, "--k", "20"),
    "energy": PLAIN,
    "softmax": (*QUICK, "--heads", "0.0,1.0,2.0,3.0", "--draws", "1"),
    "ablate": (
        *SMALL,
        *CUT,
        "--methods",
        "output-norm,random",
        "--counts",
        "2,4",
        "--draws",
        "2",
        "--figures",
        "none",
    ),
    "prune": (*SMALL, *CUT, "--fraction", "0.25", "--sizes", "1", "--recover", "4"),
}
"""Commands that take long on a real model: a stopped run must resume."""
SHORT: dict[str, tuple[str, ...]] = {
    "organize": ("--length", "16", "--n-iter", "1", "--figures", "none", "--quiet"),
    "check": ("--windows", "1", "--length", "8", "--against", str(TINY), "--quiet"),
}
WRITING = {**LONG, **SHORT}


def words(command: str, out: Path) -> list[str]:
    """Return the words of a command that writes to a folder."""
    return [command, str(TINY), "-o", str(out), *WRITING[command]]


def finished_parts(out: Path) -> dict[Path, int]:
    """Return the finished parts with what tells whether one was written anew."""
    return {path: path.stat().st_ino for path in out.rglob("parts/*") if not path.name.startswith(".")}


def results(command: str, out: Path) -> dict[str, str]:
    """Return digests of everything that a finished command must have left, the same after every run."""
    found = {
        path.relative_to(out).as_posix(): _digest(path.read_bytes())
        for path in sorted(out.rglob("*"))
        if path.name in ("heads.csv", "curves.csv", "differences.csv")
        or path.suffix in (".safetensors", ".nwk")
    }
    if command == "capture":
        capture = hs.Capture.load(out)
        found |= {f"window {w}": _digest(capture.tensor(w).data.tobytes()) for w in range(capture.n_windows)}
    if command == "check":
        found["check.json"] = _digest(
            json.dumps(_untimed(json.loads((out / "check.json").read_text()))).encode()
        )
    left = list(out.rglob(".partial-*"))
    assert found, f"{command} left no results"
    assert not left, f"{command} left {left[0]}"
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _untimed(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if "seconds" not in name}
