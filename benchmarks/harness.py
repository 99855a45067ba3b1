"""The benchmark harness: two sides, interleaved, median and range of the ratio, memory of both, one table."""

import argparse
import contextlib
import ctypes
import datetime
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
SHORTEST = 0.5
"""Seconds that a side runs at least for every time that is taken: what else the machine does then averages out."""


@dataclass(frozen=True)
class Row:
    """One line of the table: how many times faster (or smaller) we are than the baseline.

    ``memory`` and ``their_memory`` are the MiB by which memory grows at the peak of a run of each side.
    """

    name: str
    baseline: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    unit: str = "s"
    wanted: str = ""
    memory: float | None = None
    their_memory: float | None = None

    @property
    def verdict(self) -> str:
        """The ratio, unless its range is wider than a factor of two: then it is no result."""
        return "noisy" if self.high > 2 * self.low else f"{self.ratio:.{self.digits}f}x"

    @property
    def digits(self) -> int:
        """How many digits a ratio is shown with: differences of some percent matter near 1."""
        return 2 if self.ratio < 2 else 1


@dataclass(frozen=True)
class Measure:
    """One line without a baseline: a size or a time to write down."""

    name: str
    value: float
    unit: str
    note: str = ""
    memory: float | None = None


def compare(
    name: str,
    ours: Callable[[], object],
    baseline: Callable[[], object],
    against: str,
    *,
    repeats: int = 5,
    wanted: str = "",
) -> Row:
    """Time two functions in turn and return the ratio baseline / ours: median and range over the repeats.

    Both run before that: ours twice, because the first run may compile, and the last of these runs shows the memory.
    Short functions are called several times in a row for every time that is taken, which is then that of one call.
    """
    ours()
    (memory, calls), (their_memory, their_calls) = _tried(ours), _tried(baseline)
    mine, theirs = [], []
    for _ in range(max(5, repeats)):
        mine.append(_seconds(ours, calls))
        theirs.append(_seconds(baseline, their_calls))
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
        memory=memory,
        their_memory=their_memory,
    )


def timed(name: str, run: Callable[[], object], note: str = "", *, repeats: int = 3) -> Measure:
    """Time one function without a baseline, after a run that may compile: median, range and memory."""
    run()
    memory = extra_memory(run)
    seconds = [_seconds(run) for _ in range(repeats)]
    spread = f"{min(seconds):.3g}-{max(seconds):.3g} s in {repeats} runs" if repeats > 1 else "one run"
    return Measure(name, statistics.median(seconds), "s", f"{note}; {spread}" if note else spread, memory)


def extra_memory(run: Callable[[], object]) -> float | None:
    """Run a function here and return by how many MiB memory grows at its peak; None if the system does not tell.

    Freed memory that the allocator keeps is given back first: else it would be used again, and not be counted.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        reset.write_text("5")  # the peak starts again from what is in use now
        before = _status(status, "VmRSS")
    except OSError:
        run()
        return None
    run()
    return (_status(status, "VmHWM") - before) / 1024


def _status(path: Path, name: str) -> int:
    """Return one of the sizes, in KiB, that Linux reports of a process."""
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name))


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


def print_table(parts: Mapping[str, Sequence[Row | Measure]]) -> None:
    """Print everything as one aligned table; memory is that of our side and of the baseline."""
    columns = ("ours", "baseline", "ratio", "range", "MiB", "wanted", "baseline is")
    print(_line("benchmark", columns))
    for part, rows in parts.items():
        print(part)
        for row in rows:
            print(_line(f"  {row.name}", _cells(row)))


def _cells(row: Row | Measure) -> tuple[str, ...]:
    if isinstance(row, Measure):
        return f"{_number(row.value)} {row.unit}", "", "", "", _mib(row.memory), "", row.note
    sides = (f"{_number(value)} {row.unit}" for value in (row.ours, row.theirs))
    spread = f"{row.low:.{row.digits}f}-{row.high:.{row.digits}f}"
    memory = " / ".join(filter(None, (_mib(row.memory), _mib(row.their_memory))))
    return *sides, row.verdict, spread, memory, row.wanted, row.baseline


def _line(name: str, cells: Sequence[str]) -> str:
    ours, baseline, ratio, spread, memory, wanted, what = cells
    return f"{name:72} {ours:>10} {baseline:>10} {ratio:>7}  {spread:13} {memory:>13}  {wanted:8} {what}".rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mib(memory: float | None) -> str:
    return "" if memory is None else f"{memory:.0f}"


def save(part: str, rows: Sequence[Row | Measure]) -> Path:
    """Write the rows of one part as JSON, with the day and the machine they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{part}.json"
    machine = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "processor": processor(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    path.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return path


def saved(part: str) -> list[Row | Measure]:
    """Return the rows of one part that were saved last; none if there are none."""
    path = RESULTS / f"{part}.json"
    found = json.loads(path.read_text())["rows"] if path.exists() else []
    return [Row(**row) if "ratio" in row else Measure(**row) for row in found]


def run(parts: Mapping[str, Callable[[], list[Row | Measure]]]) -> None:
    """Run the benchmarks that the command line names (all by default) and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which parts; all by default")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/*.json, shown in the docs"
    )
    parser.add_argument("--saved", action="store_true", help="run nothing, print what was saved last")
    options = parser.parse_args()
    table: dict[str, Sequence[Row | Measure]] = {}
    for part in options.parts or parts:
        table[part] = saved(part) if options.saved else parts[part]()
        if options.save and not options.saved:
            save(part, table[part])
    print_table(table)


def _tried(function: Callable[[], object]) -> tuple[float | None, int]:
    """Run a function once, and return the memory it takes and how many calls make a time."""
    seconds = 0.0

    def once() -> None:
        nonlocal seconds
        seconds = _seconds(function)

    memory = extra_memory(once)
    return memory, min(100, math.ceil(SHORTEST / max(seconds, 1e-6)))


def _seconds(function: Callable[[], object], calls: int = 1) -> float:
    """Return the seconds of one call, of so many in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
