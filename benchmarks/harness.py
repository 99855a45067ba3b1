"""The benchmark harness: two sides, interleaved, median and range of the ratio, one table."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One line of the table: how many times faster (or smaller) we are than the baseline."""

    name: str
    baseline: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    unit: str = "s"
    wanted: str = ""

    @property
    def verdict(self) -> str:
        """The ratio, unless its range is wider than a factor of two: then it is no result."""
        return "noisy" if self.high > 2 * self.low else f"{self.ratio:.1f}x"


@dataclass(frozen=True)
class Measure:
    """One line without a baseline: a size or a time to write down."""

    name: str
    value: float
    unit: str
    note: str = ""


def compare(
    name: str,
    ours: Callable[[], object],
    baseline: Callable[[], object],
    against: str,
    *,
    repeats: int = 5,
    wanted: str = "",
) -> Row:
    """Time two functions in turn and return the ratio baseline / ours: median and range over the repeats."""
    ours()
    baseline()
    mine, theirs = [], []
    for _ in range(max(5, repeats)):
        mine.append(_seconds(ours))
        theirs.append(_seconds(baseline))
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    return Row(
        name,
        against,
        statistics.median(mine),
        statistics.median(theirs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        wanted=wanted,
    )


# On Linux ru_maxrss outlives exec: a child of a large process reports at least the size of its parent. VmHWM
# belongs to the new program alone.
_PRINT_PEAK = """
import pathlib, resource
status = pathlib.Path("/proc/self/status")
own = [line.split()[1] for line in status.read_text().splitlines() if "VmHWM" in line] if status.exists() else []
print(own[0] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_memory(code: str) -> float:
    """Run Python code in a fresh process and return its peak memory in MiB.

    Freed blocks go back to the system at once (glibc's threshold is set low), so the peak counts memory in use;
    what the allocator keeps for later differs by tens of MiB from run to run.
    """
    script = f"{code}\n{_PRINT_PEAK}"
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    unit = 1024 if sys.platform != "darwin" else 1024 * 1024
    return int(done.stdout.split()[-1]) / unit


def print_table(rows: Sequence[Row | Measure]) -> None:
    """Print everything as one aligned table."""
    print(f"{'benchmark':58} {'ours':>10} {'baseline':>10} {'ratio':>7}  range          wanted   baseline is")
    for row in rows:
        if isinstance(row, Measure):
            print(f"{row.name:58} {row.value:9.3g} {row.unit:3} {row.note}")
        else:
            spread = f"{row.low:.1f}-{row.high:.1f}"
            times = f"{row.ours:9.3g} {row.unit} {row.theirs:8.3g} {row.unit}"
            print(f"{row.name:58} {times} {row.verdict:>7}  {spread:13}  {row.wanted:8} {row.baseline}")


def save(part: str, rows: Sequence[Row | Measure]) -> Path:
    """Write the rows of one part as JSON, with the machine they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{part}.json"
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "processor": _processor()}
    path.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return path


def run(parts: dict[str, Callable[[], list[Row | Measure]]]) -> None:
    """Run the benchmarks that the command line names (all by default) and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which parts; all by default")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/*.json, shown in the docs"
    )
    options = parser.parse_args()
    table: list[Row | Measure] = []
    for part in options.parts or parts:
        rows = parts[part]()
        table += rows
        if options.save:
            save(part, rows)
    print_table(table)


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
