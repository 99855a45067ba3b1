"""Run with ``python -m benchmarks [PART ...] [--save]``."""

from benchmarks import bench_capture, bench_energy, bench_geometry, bench_haar
from benchmarks.harness import run

run(
    {
        "geometry": bench_geometry.rows,
        "capture": bench_capture.rows,
        "haar": bench_haar.rows,
        "energy": bench_energy.rows,
    }
)
