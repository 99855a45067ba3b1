"""Run with ``python -m benchmarks [PART ...] [--save | --saved]``; a part takes at most a few minutes."""

from benchmarks import (
    bench_ablation,
    bench_adapters,
    bench_capture,
    bench_compare,
    bench_energy,
    bench_geometry,
    bench_haar,
    bench_monitor,
    bench_paraproduct,
    bench_pruning,
    bench_report,
    bench_stages,
)
from benchmarks.harness import run

PARTS = {
    "capture": bench_capture.rows,
    "adapters": bench_adapters.rows,
    "geometry": bench_geometry.rows,
    "questionnaire": bench_geometry.questionnaire,
    "stages": bench_stages.rows,
    "haar": bench_haar.rows,
    "energy": bench_energy.rows,
    "paraproduct": bench_paraproduct.rows,
    "ablation": bench_ablation.rows,
    "pruning": bench_pruning.rows,
    "compare": bench_compare.rows,
    "monitor": bench_monitor.rows,
    "monitor-memory": bench_monitor.memory_rows,
    "report": bench_report.rows,
}
"""In the order of the table."""

if __name__ == "__main__":
    run(PARTS)
