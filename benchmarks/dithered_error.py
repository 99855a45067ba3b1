"""How far estimated distances are from exact ones: ``python -m benchmarks.dithered_error [--save]``.

On the default model, 6 windows of 256 tokens of the bundled sample text: the EMD between heads along the trees of
queries and keys that the exact questionnaire ends with, exact and estimated with two seeds each.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import headscape as hs
from headscape.analysis.tree_agreement import level_agreement
from headscape.geometry.affinity import emd_affinity
from headscape.geometry.builders.flexible import flexible_tree
from headscape.geometry.partition_tree import PartitionTree
from headscape.geometry.streamed_emd import StreamedEMD, streamed_emd
from headscape.models.sample_text import sample_text

RESULT = Path(__file__).parents[1] / "docs" / "results" / "dithered_smollm2.json"
WINDOWS, SEEDS, NEAREST = 6, (0, 1), 10
COLUMNS = [
    "window",
    "relative error, median (two seeds)",
    "95th percentile",
    "stated: median",
    "stated: 95th percentile",
    "rank correlation",
    "ten nearest heads in common",
    "two finest levels of the head tree, adjusted mutual information (first seed; second seed)",
]


def grown(emd: np.ndarray) -> PartitionTree:
    return flexible_tree(emd_affinity(emd))[0]


def nearest(emd: np.ndarray) -> list[set[int]]:
    apart = emd + np.diag(np.full(len(emd), np.inf))
    return [set(row.tolist()) for row in np.argsort(apart, axis=1)[:, :NEAREST]]


def row(window: int, exact: np.ndarray, found: list[StreamedEMD]) -> list[str]:
    """Return the line of a window."""
    above = np.triu_indices(len(exact), 1)
    errors = [np.abs(one.emd[above] / exact[above] - 1) for one in found]
    ranks = [spearmanr(one.emd[above], exact[above]).statistic for one in found]
    common = [
        np.mean([len(a & b) for a, b in zip(nearest(one.emd), nearest(exact), strict=True)]) / NEAREST
        for one in found
    ]
    levels = [level_agreement(grown(exact), grown(one.emd))[-2:][::-1] for one in found]
    return [
        str(window + 1),
        ", ".join(f"{np.median(error):.3%}" for error in errors),
        ", ".join(f"{np.quantile(error, 0.95):.3%}" for error in errors),
        f"{np.mean([one.relative_error(0.5) for one in found]):.3%}",
        f"{np.mean([one.relative_error() for one in found]):.3%}",
        ", ".join(f"{rank:.6f}" for rank in ranks),
        ", ".join(f"{share:.1%}" for share in common),
        "; ".join(", ".join(f"{value:.2f}" for value in pair) for pair in levels),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dithered_error", description=__doc__)
    parser.add_argument("--save", action="store_true", help="write the table that the docs show")
    options = parser.parse_args()
    capture = hs.capture("default", sample_text(), windows=WINDOWS)
    rows = []
    for window in range(WINDOWS):
        organized = hs.organize(capture.tensor(window, "probs"))
        trees = {axis: organized.trees[axis] for axis in ("query", "key")}
        exact = streamed_emd(capture, window, trees).emd
        found = [streamed_emd(capture, window, trees, approximate=True, seed=seed) for seed in SEEDS]
        rows.append(row(window, exact, found))
        print(*rows[-1], sep="\t", flush=True)
    if options.save:
        text = json.dumps({"columns": COLUMNS, "rows": rows}, indent=1, ensure_ascii=False)
        RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
