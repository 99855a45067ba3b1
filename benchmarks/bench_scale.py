"""Heads of captures that are larger than memory, and of several workers: ``make bench-scale``.

Every run is a process of its own, whose memory is watched from outside: that of all its processes together, over what
it takes when its libraries are loaded. Captures are synthetic: queries and keys with planted clusters of heads.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

RESULT = Path(__file__).parents[1] / "docs" / "results" / "scale.json"
SIZES = ((128, 256), (256, 256), (256, 512), (512, 512))
LARGE = (1024, 2048)
CLUSTERS, DIMENSION = 8, 32

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
from headscape.geometry import streamed_emd
from headscape.geometry.streamed_geometry import expected_plan, streamed_heads
from headscape.study.engines import open_engine
from headscape.study.streamed_cost import measured_rates, streamed_cost
capture, memory, share, kind, workers, least = hs.Capture.load(sys.argv[1]), *json.loads(sys.argv[2])
streamed_emd.MIN_BLOCKS = least
if __name__ == "__main__":
    hs.organize(np.random.default_rng(0).random((12, 12, 12)), n_iter=1)
    print("ready", flush=True)
    sys.stdin.readline()
    options = {"threads": workers} if kind == "local" else {"workers": workers}
    start = time.perf_counter()
    with open_engine(kind, **options) as engine:
        started = time.perf_counter()
        d = capture.record(0, 0).head_dim
        cost = streamed_cost(expected_plan(capture, 0, memory, engine), measured_rates(), share, d)
        begun, cpu = time.perf_counter(), time.process_time()
        found = streamed_heads(capture, share=share, memory=memory, engine=engine)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    emd, clusters = found.geometry.emd, 8
    near = np.argsort(emd + 1e9 * np.eye(len(emd)), axis=1)[:, 0]
    alike = float(np.mean(near % clusters == np.arange(len(emd)) % clusters))
    error = None if found.sample is None else found.sample.relative_error()
    print(json.dumps({"expected": cost.core_seconds, "cpu": cpu, "seconds": seconds, "starting": started - start,
                      "alike": alike, "error": error}), flush=True)
"""


def _memory(process: psutil.Process) -> int:
    """Return the resident memory of a process and all that it started."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.Error:
            continue
    return total


def organized(
    folder: Path,
    memory: int,
    share: float = 1.0,
    kind: str = "local",
    workers: int = 2,
    blocks: int = 16,
) -> dict[str, float]:
    """Organize the heads of a capture in a process of its own; return its times and its peak of memory.

    ``blocks`` is the least number of blocks: with 1, blocks are as large as the memory allows.
    """
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "organize.py"
        script.write_text(ORGANIZE, encoding="utf-8")
        command = [
            sys.executable,
            str(script),
            str(folder),
            json.dumps([memory, share, kind, workers, blocks]),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env=environment, **pipes) as running:  # type: ignore[call-overload]
            assert running.stdout.readline() == "ready\n"
            watched = psutil.Process(running.pid)
            start = peak = _memory(watched)
            running.stdin.write("\n")
            running.stdin.flush()
            while running.poll() is None:
                peak = max(peak, _memory(watched))
                time.sleep(0.05)
            found: dict[str, float] = json.loads(running.stdout.read())
    return {**found, "memory": peak - start}


def capture(folder: Path, heads: int, length: int) -> Path:
    """Write a synthetic capture, in a process of its own."""
    path = folder / f"{heads}-{length}"
    if not path.exists():
        numbers = map(str, (heads, length, CLUSTERS, DIMENSION))
        subprocess.run([sys.executable, "-c", WRITE, str(path), *numbers], check=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_scale", description=__doc__)
    parser.add_argument("--small", action="store_true", help="leave out 2,048 x 2,048 x 1,024")
    parser.add_argument("--note", default="", help="said of the machine in the table, for example: busy")
    parser.add_argument("--save", action="store_true", help=f"write {RESULT.name}, shown in the docs")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows: list[list[str]] = []

    def add(what: str, found: dict[str, float], limit: int) -> None:
        error = "" if found["error"] is None else f"{found['error']:.2%}"
        rows.append(
            [
                what,
                f"{found['seconds']:.0f} s",
                f"{found['cpu']:.1f} s",
                f"{found['expected']:.1f} s",
                f"{found['memory'] / 2**30:.2f} of {limit / 2**30:.1f} GiB",
                f"{found['alike']:.0%}",
                error,
            ]
        )
        print(*rows[-1], sep="\t", flush=True)

    with tempfile.TemporaryDirectory() as place:
        sizes = SIZES if options.small else (*SIZES, LARGE)
        for heads, length in sizes:
            path = capture(Path(place), heads, length)
            limit = (4 << 30) if (heads, length) == LARGE else (1 << 30)
            shape = f"{length:,} x {length:,} x {heads:,}"
            add(f"{shape}, exact", organized(path, limit), limit)
            add(f"{shape}, a tenth of the terms", organized(path, limit, share=0.1), limit)
        path = capture(Path(place), *SIZES[-1])
        limit = 512 << 20
        add("512 x 512 x 512, blocks as large as the limit allows", organized(path, limit, blocks=1), limit)
        ratios = []
        for _ in range(options.repeats):
            one, two = (organized(path, 2 << 30, kind="dask", workers=n)["seconds"] for n in (1, 2))
            ratios.append(one / two)
    speedup = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    print("2 workers over 1:", speedup)
    columns = [
        "heads",
        "time",
        "core seconds",
        "expected before",
        "memory of its limit",
        "nearest head of the same cluster",
        "error",
    ]
    table = {"columns": columns, "rows": rows}
    about = {
        "speedup": speedup,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "note": options.note,
    }
    if options.save:
        RESULT.write_text(json.dumps({**table, **about}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
