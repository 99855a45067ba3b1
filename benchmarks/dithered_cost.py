"""What estimated distances cost beside exact ones: ``python -m benchmarks.dithered_cost [--save]``.

Features of the default model: the heads of 8 windows of 256 tokens of the bundled sample text are points, every second
folder of the query tree and all of the key tree are features. One core; shares of the time of the float32 kernel on all
features, for drawing some of them, rounding these to bytes, and their distances.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import headscape as hs
from benchmarks.harness import processor
from headscape.geometry.dithered import DitheredDistances
from headscape.geometry.feature_sample import FeatureSample, feature_sample, folder_shares, pilots
from headscape.geometry.folder_averages import folder_sums
from headscape.geometry.l1_kernel import l1_distances
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.streamed_blocks import COLUMNS
from headscape.models.sample_text import sample_text

RESULT = Path(__file__).parents[1] / "docs" / "results" / "dithered_cost.json"
WINDOWS, POINTS, REPEATS = 8, (1024, 2048), 5
COLUMN_NAMES = ["points", "features", "drawn", "draw", "rounding", "distances", "all", "range"]


def features_of(
    capture: hs.Capture, trees: dict[str, PartitionTree], folders: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return weighted averages (point, query folder, key folder), the heads of all windows in random order."""
    query, key = trees["query"], trees["key"]
    outer, inner = (tree.weights(0.0, 1.0) / tree.folders.size for tree in (query, key))
    found = []
    for window in range(WINDOWS):
        x = np.asarray(capture.tensor(window, "probs"))
        rows = np.stack([x[query.folder(i)].sum(axis=0) * outer[i] for i in folders])
        found.append((folder_sums(rows, key, axis=1) * inner[:, None]).astype(np.float32).transpose(2, 0, 1))
    return rng.permutation(np.concatenate(found))


def drawn(x: np.ndarray, folders: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, FeatureSample]:
    """Return the numbers of the features that are drawn, and the sample."""
    columns, samples = [], []
    for place, folder in enumerate(folders):
        ranges = np.ptp(x[pilots(len(x)), place], axis=0)
        sample = feature_sample(ranges, float(shares[folder]), np.random.default_rng((0, int(folder))))
        columns.append(place * x.shape[2] + sample.kept)
        samples.append(sample)
    return np.concatenate(columns), FeatureSample.joined(samples)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def row(x: np.ndarray, folders: np.ndarray, shares: np.ndarray) -> list[str]:
    """Return the line of some points: medians of runs in turn."""
    n = len(x)
    flat = np.ascontiguousarray(x.reshape(n, -1))
    flat = flat[:, flat.any(axis=0)]
    columns, sample = drawn(x, folders, shares)
    kept = np.ascontiguousarray(x.reshape(n, -1)[:, columns])
    blocks = [slice(begin, begin + COLUMNS) for begin in range(0, len(sample), COLUMNS)]

    def rounded() -> None:
        found = DitheredDistances(n)
        for block in blocks:
            found.rounded(np.ascontiguousarray(kept[:, block]), sample[block])

    def estimated() -> None:
        found = DitheredDistances(n)
        for block in blocks:
            found.add(kept[:, block], sample[block])

    parts = []
    for repeat in range(REPEATS + 1):
        exact, draw, rounding, both = (
            seconds(work)
            for work in (
                lambda: l1_distances(flat, small=False),
                lambda: drawn(x, folders, shares),
                rounded,
                estimated,
            )
        )
        if repeat:  # the first run compiles
            parts.append([part / exact for part in (draw, rounding, both - rounding, draw + both)])
    whole = [one[-1] for one in parts]
    shown = [f"{statistics.median(one):.3f}" for one in zip(*parts, strict=True)]
    return [
        f"{n:,}",
        f"{flat.shape[1]:,}",
        f"{len(sample):,}",
        *shown,
        f"{min(whole):.3f} to {max(whole):.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dithered_cost", description=__doc__)
    parser.add_argument("--save", action="store_true", help="write the table that the docs show")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    capture = hs.capture("default", sample_text(), windows=WINDOWS)
    trees = hs.organize(capture.tensor(0, "probs")).trees
    folders = np.arange(0, trees["query"].n_folders, 2)
    x = features_of(capture, trees, folders, rng)
    shares = folder_shares(trees["query"].weights(0.0, 1.0))
    rows = [row(x[:n], folders, shares) for n in POINTS]
    for line in rows:
        print(*line, sep="\t")
    if options.save:
        text = json.dumps({"columns": COLUMN_NAMES, "rows": rows, "processor": processor()}, indent=1)
        RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
