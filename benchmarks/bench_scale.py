"""Captures that are larger than memory, and several workers: ``make bench-scale``.

Every run is a process of its own, whose memory is watched from outside: that of all its processes together, over what
it takes when its libraries are loaded. Captures are synthetic: queries and keys with planted clusters of heads.

With --folder, captures, finished blocks and results are kept there, and the same command resumes; --minutes stops after
a while. Core seconds of all pieces are added up, and the largest memory counts.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parents[1] / "docs" / "results"
GiB = 1 << 30
CLUSTERS, DIMENSION = 8, 32


@dataclass(frozen=True)
class Run:
    """One run: heads and tokens, the limit of memory, and how."""

    heads: int
    length: int
    memory: int = GiB
    approximate: bool = False
    n_iter: int = 0
    """Iterations of the questionnaire; 0 for the heads alone."""
    kind: str = "local"
    workers: int = 1
    blocks: int = 16
    """The least number of blocks: with 1, blocks are as large as the memory allows."""

    @property
    def name(self) -> str:
        """A name for files."""
        return "-".join(map(str, asdict(self).values()))

    @property
    def words(self) -> list[str]:
        """The first columns of the table."""
        what = "heads" if self.n_iter == 0 else f"questionnaire, {self.n_iter} iterations"
        size = f"{self.length:,} x {self.length:,} x {self.heads:,}"
        return [size, what, "8-bit" if self.approximate else "exact"]


SIZES = ((128, 256), (256, 256), (256, 512), (512, 512))
RUNS = (
    *(Run(*size, approximate=approximate) for size in SIZES for approximate in (False, True)),
    Run(*SIZES[0], n_iter=3),
    *(Run(*size, approximate=True, n_iter=3) for size in SIZES),
    Run(512, 512, memory=GiB // 2, blocks=1),
)
LARGE = (
    Run(1024, 2048, memory=4 * GiB),
    Run(1024, 2048, memory=4 * GiB, approximate=True, n_iter=3),
)

WRITE = """
import sys, numpy as np, headscape as hs
heads, length, clusters, d = map(int, sys.argv[2:])
rng = np.random.default_rng(0)
centers = rng.normal(size=(2, clusters, length, d)).astype(np.float32)
per_layer = min(32, heads)
q, k = (
    np.concatenate([c[h % clusters][None] + 0.5 * rng.normal(size=(1, length, d)).astype(np.float32)
                    for h in range(heads)]).reshape(heads // per_layer, per_layer, length, d)
    for c in centers
)
hs.Capture.from_arrays(1.5 * q, k).save(sys.argv[1])
"""
ORGANIZE = """
import json, sys, time, numpy as np, headscape as hs
from headscape.geometry import streamed_plan
from headscape.geometry.streamed_geometry import streamed_heads, streamed_organization
from headscape.study.engines import open_engine
from headscape.study.streamed_cost import measured_rates, streamed_cost
path, kept, run = sys.argv[1], sys.argv[2] or None, json.loads(sys.argv[3])
streamed_plan.MIN_BLOCKS = run["blocks"]
if __name__ == "__main__":
    capture = hs.Capture.load(path)
    hs.organize(np.random.default_rng(0).random((12, 12, 12)), n_iter=1)
    rates = measured_rates()
    print("ready", flush=True)
    sys.stdin.readline()
    options = {"threads": run["workers"]} if run["kind"] == "local" else {"workers": run["workers"]}
    with open_engine(run["kind"], **options) as engine:
        how = {"memory": run["memory"], "approximate": run["approximate"]}
        plan = {"heads_only": run["n_iter"] == 0, "dithered": run["approximate"]}
        planned = streamed_plan.streamed_plan(capture, 0, run["memory"], engine, **plan)
        cost = streamed_cost(planned, rates, run["n_iter"])
        print(json.dumps(cost.core_seconds), flush=True)
        start = time.perf_counter()
        if run["n_iter"] == 0:
            found = streamed_heads(capture, engine=engine, path=kept, **how)
            emd, errors = found.geometry.emd, {"head": found.emd}
        else:
            found = streamed_organization(capture, engine=engine, path=kept, n_iter=run["n_iter"], **how)
            emd, errors = found.organization.emd["head"], found.emd
        seconds = time.perf_counter() - start
    near = np.argsort(emd + 1e9 * np.eye(len(emd)), axis=1)[:, 0]
    alike = float(np.mean(near % 8 == np.arange(len(emd)) % 8))
    errors = {axis: emd.relative_error() for axis, emd in errors.items()}
    print(json.dumps({"seconds": seconds, "alike": alike, "errors": errors}), flush=True)
"""


class Watch:
    """Memory and core seconds of a process and all that it started."""

    def __init__(self, pid: int) -> None:
        self._process, self._cpu = psutil.Process(pid), {}  # type: ignore[var-annotated]
        self._start, self._spent = self._look(), sum(self._cpu.values())
        self.peak = 0

    def _look(self) -> int:
        total = 0
        try:
            running = [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return 0
        for one in running:
            try:
                times = one.cpu_times()
                self._cpu[one.pid] = times.user + times.system
                total += one.memory_info().rss
            except psutil.Error:
                continue
        return total

    def look(self) -> None:
        """Take note of what there is now."""
        self.peak = max(self.peak, self._look() - self._start)

    @property
    def cpu(self) -> float:
        """Core seconds since the start."""
        return float(sum(self._cpu.values()) - self._spent)


@contextmanager
def started(run: Run, capture: Path, kept: Path | None) -> Iterator[Any]:
    """Start a run, with its libraries loaded."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "organize.py"
        script.write_text(ORGANIZE, encoding="utf-8")
        command = [sys.executable, str(script), str(capture), str(kept or ""), json.dumps(asdict(run))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
            running: Any = process
            assert running.stdout.readline() == "ready\n", running.stderr.read()
            yield running


def organized(
    run: Run, capture: Path, kept: Path | None, before: dict[str, Any], until: float
) -> dict[str, Any]:
    """Run, or go on, until a time; return times and peak of memory, with those of the pieces before."""
    with started(run, capture, kept) as running:
        watch = Watch(running.pid)
        running.stdin.write("\n")
        running.stdin.flush()
        while running.poll() is None:
            watch.look()
            time.sleep(0.05)
            if time.monotonic() > until:
                running.send_signal(signal.SIGINT)
                until = float("inf")
        lines = running.stdout.read().splitlines()
        if running.returncode and "KeyboardInterrupt" not in (error := running.stderr.read()):
            raise RuntimeError(error)
    found = {
        "expected": before.get("expected") or json.loads(lines[0]),
        "cpu": before.get("cpu", 0.0) + watch.cpu,
        "memory": max(before.get("memory", 0), watch.peak),
    }
    return {**found, **(json.loads(lines[1]) if len(lines) > 1 else {})}


def captured(folder: Path, heads: int, length: int) -> Path:
    """Write a synthetic capture, in a process of its own."""
    path = folder / f"{heads}-{length}"
    if not path.exists():
        numbers = map(str, (heads, length, CLUSTERS, DIMENSION))
        subprocess.run([sys.executable, "-c", WRITE, str(path), *numbers], check=True)
    return path


def measured(run: Run, folder: Path, until: float) -> dict[str, Any] | None:
    """Return what a run took, or None if it is not finished in time."""
    file = folder / f"{run.name}.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if "alike" in before:
        return before
    if time.monotonic() > until:
        return None
    found = organized(
        run, captured(folder, run.heads, run.length), folder / f"{run.name}-kept", before, until
    )
    file.write_text(json.dumps(found), encoding="utf-8")
    return found if "alike" in found else None


def row(run: Run, found: dict[str, Any]) -> list[str]:
    """Return the row of a run in the table."""
    errors = ", ".join(f"{axis} {error:.2%}" for axis, error in found["errors"].items() if error)
    return [
        *run.words,
        f"{found['cpu']:.0f}" if found["cpu"] > 100 else f"{found['cpu']:.1f}",
        f"{found['expected']:.0f}" if found["expected"] > 100 else f"{found['expected']:.1f}",
        f"{found['memory'] / GiB:.2f} of {run.memory / GiB:.1f} GiB",
        f"{found['alike']:.0%}",
        errors,
    ]


COLUMNS = [
    "queries x keys x heads",
    "what",
    "distances",
    "core seconds",
    "expected before",
    "memory of its limit",
    "nearest head of the same cluster",
    "error stated, 95th percentile",
]


def speedups(folder: Path, repeats: int) -> list[float]:
    """Return how many times as fast 2 workers of a Dask cluster are as 1."""
    path, found = captured(folder, 512, 512), []
    for _ in range(repeats):
        one, two = (
            organized(Run(512, 512, 2 * GiB, kind="dask", workers=n), path, None, {}, float("inf"))["seconds"]
            for n in (1, 2)
        )
        found.append(one / two)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_scale", description=__doc__)
    parser.add_argument("--small", action="store_true", help="leave out 2,048 x 2,048 x 1,024")
    parser.add_argument("--large", action="store_true", help="only 2,048 x 2,048 x 1,024")
    parser.add_argument("--folder", type=Path, help="keep captures and results here, and resume")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs with 1 and 2 workers")
    parser.add_argument("--save", action="store_true", help="write the tables that the docs show")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for run in (*(() if options.large else RUNS), *(() if options.small else LARGE)):
            found = measured(run, folder, until)
            if found is None:
                print(*run.words, "is not finished: run the same command again", sep="\t", flush=True)
                continue
            rows.append(row(run, found))
            print(*rows[-1], sep="\t", flush=True)
        ratios = speedups(folder, options.repeats) if options.repeats and time.monotonic() < until else []
    about: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version()}
    if ratios:
        about["speedup"] = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print("2 workers over 1:", about["speedup"])
    if options.save:
        text = json.dumps({"columns": COLUMNS, "rows": rows, **about}, indent=2)
        (RESULTS / "scale.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
