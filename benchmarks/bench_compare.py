"""Comparisons: two networks that are analyzed already, their head EMDs, the test against the noise, memory."""

import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np

import headscape as hs
from benchmarks.bench_geometry import DENSE, dense_emd
from benchmarks.bench_report import random_capture
from benchmarks.harness import Measure, Row, compare, peak_memory
from headscape.analysis.comparison.assignment import cross_emd
from headscape.analysis.comparison.gromov_wasserstein import require_pot
from headscape.analysis.comparison.window_test import Block, window_test
from headscape.geometry.questionnaire import Questionnaire

WINDOWS, LENGTH, WIDTH = 6, 64, 16
SIZES = {270: (30, 9), 1024: (32, 32)}
WANTED = {270: "wanted: seconds", 1024: "wanted: minutes"}
LOOP = "the same test in plain numpy, split by split"


def rows() -> list[Row | Measure]:
    return [*emd_between(), *noise_test(), *whole(), *memory()]


def emd_between() -> list[Row]:
    """Compare two networks of 270 heads on one window."""
    x, y = np.random.default_rng(0).random((2, 270, LENGTH, LENGTH), dtype=np.float32).transpose(0, 2, 3, 1)
    trees = Questionnaire(n_iter=1).fit(x[:, :, :32]).trees_
    joint = np.concatenate([x, y], axis=2)
    return [
        compare(
            f"head EMDs of 270 against 270 heads, {LENGTH} tokens",
            lambda: cross_emd(x, y, trees),
            lambda: dense_emd(joint, trees, "head", 0.0, 1.0),
            DENSE,
            wanted=">= 1x",
        )
    ]


def noise_test() -> list[Row]:
    """Test the distances of 270 heads to 270 heads against the noise."""
    a, b = np.random.default_rng(0).random((2, WINDOWS, 270, 270))
    blocks = {"geometry": Block(a, b, np.eye(270))}
    return [
        compare(
            "270 heads against the noise, 462 splits of 12 windows",
            lambda: window_test(blocks, paired=True),
            lambda: plain_noise(a, b),
            LOOP,
            wanted=">= 1x",
        )
    ]


def plain_noise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Do it as the best simple code a user would write: residuals, every split, means and variances by numpy."""
    x = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
    n, half = len(x), len(a)
    largest = []
    for rest in combinations(range(1, n), half - 1):
        first = np.zeros(n, dtype=bool)
        first[[0, *rest]] = True
        here, there = x[first], x[~first]
        variance = (here.var(axis=0, ddof=1) + there.var(axis=0, ddof=1)) / 2
        scale = (variance + variance.mean()) / half
        squared = (here.mean(axis=0) - there.mean(axis=0)) ** 2 / scale
        largest.append(np.sqrt(squared.mean(axis=1)).max())
    return np.quantile(largest, 0.98)


def studies(heads: int) -> list[hs.Study]:
    """Return finished studies of two random networks that saw the same tokens; an interrupted run resumes."""
    return [study_of(heads, seed) for seed in (0, 1)]


def study_of(heads: int, seed: int) -> hs.Study:
    """Analyze a random network, or read its study if it is finished."""
    folder = Path(tempfile.gettempdir()) / "headscape-benchmarks" / f"compare-{heads}-{seed}"
    if not (folder / "summary.json").exists():
        capture = random_capture(WINDOWS, *SIZES[heads], SIZES[heads][1], LENGTH, WIDTH, seed=seed)
        hs.analyze(capture, n_iter=1, stages=["patterns", "entropy", "energy"], out=folder)
    return hs.Study.load(folder)


def whole() -> list[Measure]:
    """Compare networks whose studies are finished."""
    found = []
    require_pot()  # its import takes seconds, once per process
    for heads, wanted in WANTED.items():
        both = studies(heads)
        start = time.perf_counter()
        hs.compare(both, names=["a", "b"])
        seconds = time.perf_counter() - start
        name = (
            f"comparison of two studies, {heads:,} and {heads:,} heads, {WINDOWS} windows of {LENGTH} tokens"
        )
        found.append(Measure(name, seconds, "s", wanted))
    return found


def memory() -> list[Measure]:
    studies(1024)
    code = "from benchmarks.bench_compare import hs, studies\nhs.compare(studies(1024), names=['a', 'b'])"
    name = "peak memory of the process, comparison of two studies of 1,024 and 1,024 heads"
    return [Measure(name, peak_memory(code), "MiB", "wanted: < 4096")]
