"""Pruning against published methods: SmolLM2-135M on WikiText-2, cell by cell, with the loss of every window.

Run with ``python -m benchmarks.pruning_rivals --text wikitext2_valid.txt --out out/rivals`` (``make bench-pruning``). A
cell is a number of calibration windows, a kind of removal (any single heads by gates, or units that can be cut out), a
share of the heads and a method; finished ones are not computed again. ``--table`` writes what is there as a table.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headscape.ablation.calibration_split import split_windows
from headscape.ablation.greedy import greedy_removal, removable_units, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.repair import Repair, repair
from headscape.ablation.rivals import rival_choice
from headscape.ablation.scores.reconstruction import reconstruction_prices
from headscape.analysis.intervals import bootstrap
from headscape.models.loading import load_model

OURS = "reconstruction+repair"
RIVALS = ("slimgpt", "osscar", "flap", "wanda-sp")
KINDS = {"single heads": single_heads, "units": removable_units}
# The most telling cells first: a run that is stopped early has them.
ORDER = [
    *((16, kind, share) for share in (0.2, 0.5) for kind in KINDS),
    *((16, kind, share) for share in (0.1, 0.3) for kind in KINDS),
    *((count, kind, share) for count in (4, 64) for share in (0.2, 0.5, 0.1, 0.3) for kind in KINDS),
]
JUDGED = 32
GREEDY_SHARE = 0.5


class Cells:
    """Measures cells of one model and keeps them in a folder, one file each."""

    def __init__(self, model: str, text: Path, out: Path) -> None:
        self.text, self.out = text, out
        out.mkdir(parents=True, exist_ok=True)
        self.loaded = load_model(model)
        self._steps: dict[tuple[int, str], tuple[Any, float]] = {}
        self._calibrated: dict[int, HeadEvaluator] = {}
        self.judge = HeadEvaluator(self.loaded, self._split(16).evaluation)

    def measure(self, windows: int, kind: str, share: float, method: str) -> None:
        """Measure one method in one cell, unless that is done."""
        path = self.out / f"{windows}-{kind.replace(' ', '_')}-{share}-{method}.json"
        if path.exists():
            return
        intact = self.judge.losses()
        count = int(share * len(self.judge.heads) + 1e-9)
        start = time.process_time()
        heads, fitted, before = self._removed(windows, kind, count, method)
        seconds = time.process_time() - start + before
        with fitted.applied(self.judge.projections):
            losses = self.judge.losses(heads)
        result = {
            "calibration_windows": windows,
            "kind": kind,
            "share": share,
            "method": method,
            "heads": [list(pair) for pair in heads],
            "strength": str(fitted.strength),
            "candidates": fitted.choice.summary(),
            "cpu_seconds": round(seconds, 1),
            "intact": intact.tolist(),
            "losses": losses.tolist(),
        }
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(result))
        os.replace(partial, path)
        print(
            f"{path.stem}: {len(heads)} heads +{(losses - intact).mean():.4f} ({seconds:.0f} s)", flush=True
        )

    def _removed(
        self, windows: int, kind: str, count: int, method: str
    ) -> tuple[Sequence[tuple[int, int]], Repair, float]:
        calibrated = self._evaluator(windows)
        if method != OURS:
            choice = rival_choice(calibrated, method, count, KINDS[kind])
            return choice.heads, choice.repair, 0.0
        steps, before = self._greedy(windows, kind)
        heads: list[tuple[int, int]] = []
        for step in steps:
            if len(heads) + len(step.heads) <= count:
                heads += [(step.layer, head) for head in step.heads]
        return heads, repair(calibrated, heads), before

    def _greedy(self, windows: int, kind: str) -> tuple[Any, float]:
        """Return the greedy steps up to the largest share and the CPU time of all of them: sizes share them."""
        if (windows, kind) not in self._steps:
            calibrated, start = self._evaluator(windows), time.process_time()
            prices, most = reconstruction_prices(calibrated), int(GREEDY_SHARE * len(calibrated.heads))
            steps = greedy_removal(calibrated.modules, prices, KINDS[kind], most)
            self._steps[windows, kind] = steps, time.process_time() - start
        return self._steps[windows, kind]

    def _evaluator(self, windows: int) -> HeadEvaluator:
        if windows not in self._calibrated:
            self._calibrated[windows] = HeadEvaluator(self.loaded, self._split(windows).calibration)
        return self._calibrated[windows]

    def _split(self, windows: int) -> Any:
        return split_windows(self.loaded, self.text, windows=JUDGED, calibration_count=windows)


def table(out: Path) -> dict[str, Any]:
    """Return the finished cells as a table: loss increases, and ours as a share of the best rival's."""
    cells: dict[tuple[int, str, float], dict[str, Any]] = {}
    for path in sorted(out.glob("*.json")):
        cell = json.loads(path.read_text())
        cells.setdefault((cell["calibration_windows"], cell["kind"], cell["share"]), {})[cell["method"]] = (
            cell
        )
    rows = []
    for windows, kind, share in sorted(cells, key=lambda cell: (cell[1], cell[0], cell[2])):
        found = cells[windows, kind, share]
        increases = {m: np.subtract(c["losses"], c["intact"]) for m, c in found.items()}
        rivals = {m: x for m, x in increases.items() if m != OURS}
        best = min(rivals, key=lambda m: float(rivals[m].mean()), default=None)
        ratio = ""
        if best is not None and OURS in increases:
            pairs = np.stack([increases[OURS], increases[best]], axis=1)
            found_ratio = bootstrap(pairs, lambda rows: float(rows[:, 0].mean() / rows[:, 1].mean()))
            ratio = (
                f"**{found_ratio.estimate:.2f}** [{found_ratio.low:.2f}, {found_ratio.high:.2f}] of {best}"
            )
        means = [f"{increases[m].mean():.3f}" if m in increases else "-" for m in (OURS, *RIVALS)]
        rows.append([kind, str(windows), f"{share:.0%}", *means, ratio])
    columns = ["what goes", "calibration windows", "heads", OURS, *RIVALS, "ours / best rival"]
    return {"columns": columns, "rows": rows}


def main() -> None:
    """Measure all cells, or write the table of those that are finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("out/rivals"))
    parser.add_argument("--table", type=Path, help="write the table of the finished cells to this file")
    options = parser.parse_args()
    if options.table is not None:
        made = f"python -m benchmarks.pruning_rivals --text {options.text.name}; {JUDGED} judged windows of 256 tokens"
        options.table.write_text(json.dumps({"made_with": made, **table(options.out)}, indent=1) + "\n")
        return
    cells = Cells(options.model, options.text, options.out)
    for windows, kind, share in ORDER:
        for method in (OURS, *RIVALS):
            cells.measure(windows, kind, share, method)


if __name__ == "__main__":
    main()
