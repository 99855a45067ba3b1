"""Run with ``python -m benchmarks [PART ...] [--save]``."""

from benchmarks import (
    bench_adapters,
    bench_capture,
    bench_compare,
    bench_energy,
    bench_geometry,
    bench_haar,
    bench_monitor,
    bench_paraproduct,
    bench_patterns,
    bench_pruning,
    bench_report,
)
from benchmarks.harness import run

run(
    {
        "geometry": bench_geometry.rows,
        "capture": bench_capture.rows,
        "adapters": bench_adapters.rows,
        "energy": bench_energy.rows,
        "haar": bench_haar.rows,
        "monitor": bench_monitor.rows,
        "paraproduct": bench_paraproduct.rows,
        "patterns": bench_patterns.rows,
        "pruning": bench_pruning.rows,
        "report": bench_report.rows,
        "compare": bench_compare.rows,
    }
)
