"""Pruning against published methods, cell by cell, with the loss of every window: SmolLM2-135M, or another model.

Run with ``python -m benchmarks.pruning_rivals --text wikitext2_valid.txt --out out/rivals`` (``make bench-pruning``). A
cell is a number of calibration windows, a kind of removal (any single heads by gates, or units that can be cut out), a
share of the heads and a method; finished ones are not computed again, and several processes can share a folder.
``--table`` writes what is there as a table, with the sums over the sizes and the CPU time as a share of SlimGPT's.
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
from headscape.ablation.choices import choice_of
from headscape.ablation.greedy import removable_units, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.output_metric import IntactPrices, intact_prices
from headscape.ablation.rivals import Choice
from headscape.ablation.validated_choice import validated_choice
from headscape.analysis.intervals import bootstrap
from headscape.models.loading import load_model

OURS = "validated"
RIVALS = ("slimgpt", "osscar", "flap", "wanda-sp")
KINDS = {"single heads": single_heads, "units": removable_units}
# The most telling cells first: a run that is stopped early has them.
ORDER = [
    *((16, kind, share) for share in (0.2, 0.5) for kind in KINDS),
    *((16, kind, share) for share in (0.1, 0.3) for kind in KINDS),
    *((count, kind, share) for count in (4, 64) for share in (0.2, 0.5, 0.1, 0.3) for kind in KINDS),
]
JUDGED = 32
SIZES = (0.1, 0.2, 0.3, 0.5)


class Cells:
    """Measures cells of one model and keeps them in a folder, one file each."""

    def __init__(self, model: str, text: Path, out: Path) -> None:
        self.text, self.out = text, out
        out.mkdir(parents=True, exist_ok=True)
        self.loaded = load_model(model)
        self._calibrated: dict[int, HeadEvaluator] = {}
        self._intact_prices: dict[int, tuple[IntactPrices, float]] = {}
        self.judge = HeadEvaluator(self.loaded, self._split(16).evaluation)
        # Some objectives compare with the intact model: made now, before anything is changed.
        self.objective = self.judge.objective

    def measure(self, windows: int, kind: str, share: float, method: str) -> None:
        """Measure one method in one cell, unless that is done."""
        path = self.out / f"{windows}-{kind.replace(' ', '_')}-{share}-{method}.json"
        if path.exists():
            return
        count = int(share * len(self.judge.heads) + 1e-9)
        choice, seconds = self._choice(windows, kind, count, method)
        intact = self._intact()
        # The projections are 0 where heads are gone, so that nothing has to be switched off.
        with choice.repair.applied(self.judge.projections):
            losses = self.objective.evaluate(self.loaded.model).losses
        result = {
            "calibration_windows": windows,
            "kind": kind,
            "share": share,
            "method": method,
            "heads": [list(pair) for pair in choice.heads],
            "strength": str(choice.repair.strength),
            "plan": choice.plan,
            "plans": dict(choice.plans),
            "candidates": choice.repair.choice.summary(),
            "cpu_seconds": round(seconds, 1),
            "intact": intact,
            "losses": losses.tolist(),
        }
        _write(path, result)
        cost = float(np.mean(losses) - np.mean(intact))
        print(f"{path.stem}: {len(choice.heads)} heads +{cost:.4f} ({seconds:.0f} s)", flush=True)

    def _choice(self, windows: int, kind: str, count: int, method: str) -> tuple[Choice, float]:
        """Return what a method chooses and its CPU seconds; prices of the intact model serve all cells."""
        evaluator, spent, start = self._evaluator(windows), 0.0, time.process_time()
        if method != OURS:
            return choice_of(evaluator, method, count, KINDS[kind]), time.process_time() - start
        if windows not in self._intact_prices:
            self._intact_prices = {windows: (intact_prices(evaluator), time.process_time() - start)}
            start = time.process_time()
        prices, spent = self._intact_prices[windows]
        choice = validated_choice(evaluator, count, KINDS[kind], prices)
        return choice, spent + time.process_time() - start

    def _intact(self) -> list[float]:
        """Return the losses of the intact model, which all cells share."""
        path = self.out / "intact.losses"
        if not path.exists():
            _write(path, self.objective.evaluate(self.loaded.model).losses.tolist())
        found: list[float] = json.loads(path.read_text())
        return found

    def _evaluator(self, windows: int) -> HeadEvaluator:
        if windows not in self._calibrated:
            self._calibrated[windows] = HeadEvaluator(self.loaded, self._split(windows).calibration)
        return self._calibrated[windows]

    def _split(self, windows: int) -> Any:
        return split_windows(self.loaded, self.text, windows=JUDGED, calibration_count=windows)


def _write(path: Path, value: Any) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(value))
    os.replace(partial, path)


def table(out: Path) -> dict[str, Any]:
    """Return the finished cells as a table: loss increases, and ours as a share of the best rival's.

    A line "sum" adds up the sizes of one kind and number of calibration windows, if all were measured.
    """
    cells: dict[tuple[int, str, float], dict[str, Any]] = {}
    for path in sorted(out.glob("*.json")):
        cell = json.loads(path.read_text())
        cells.setdefault((cell["calibration_windows"], cell["kind"], cell["share"]), {})[cell["method"]] = (
            cell
        )
    rows = []
    for windows, kind in sorted({key[:2] for key in cells}, key=lambda key: (key[1], key[0])):
        sizes = {share: cells[windows, kind, share] for share in SIZES if (windows, kind, share) in cells}
        rows += [_row(kind, windows, f"{share:.0%}", [found]) for share, found in sizes.items()]
        if len(sizes) == len(SIZES) and all(OURS in found for found in sizes.values()):
            rows.append(_row(kind, windows, "sum", list(sizes.values())))
    columns = [
        "what goes",
        "calibration windows",
        "heads",
        OURS,
        *RIVALS,
        "ours / best rival",
        "CPU time / SlimGPT",
    ]
    return {"columns": columns, "rows": rows}


def _row(kind: str, windows: int, label: str, sizes: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line of the table: loss increases summed over some sizes."""
    methods = [method for method in (OURS, *RIVALS) if all(method in found for found in sizes)]
    increases = {
        m: sum(np.subtract(found[m]["losses"], found[m]["intact"]) for found in sizes) for m in methods
    }
    best = min((m for m in methods if m != OURS), key=lambda m: float(increases[m].mean()), default=None)
    ratio, time_ratio = "", ""
    if best is not None and OURS in increases:
        pairs = np.stack([increases[OURS], increases[best]], axis=1)
        share = bootstrap(pairs, lambda rows: float(rows[:, 0].mean() / rows[:, 1].mean()))
        ratio = f"**{share.estimate:.2f}** [{share.low:.2f}, {share.high:.2f}] of {best}"
        if bootstrap(increases[best]).low <= 0:
            difference = bootstrap(pairs[:, 0] - pairs[:, 1])
            ratio = f"{best} costs nothing measurable; difference {difference}"
    if OURS in methods and "slimgpt" in methods:
        ours, slim = (sum(found[m]["cpu_seconds"] for found in sizes) for m in (OURS, "slimgpt"))
        time_ratio = f"{ours / slim:.1f}"
    means = [f"{increases[m].mean():.3f}" if m in increases else "-" for m in (OURS, *RIVALS)]
    return [kind, str(windows), label, *means, ratio, time_ratio]


def main() -> None:
    """Measure all cells, or write the table of those that are finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("out/rivals"))
    parser.add_argument("--table", type=Path, help="write the table of the finished cells to this file")
    parser.add_argument(
        "--calibration", type=int, nargs="*", help="only these numbers of calibration windows"
    )
    parser.add_argument("--shares", type=float, nargs="*", help="only these shares of the heads")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, help="only these kinds of removal")
    parser.add_argument("--methods", nargs="*", default=[OURS, *RIVALS], help="only these methods")
    options = parser.parse_args()
    if options.table is not None:
        made = (
            f"python -m benchmarks.pruning_rivals --model {options.model} --text {options.text.name}; "
            f"{JUDGED} judged windows of 256 tokens"
        )
        options.table.write_text(json.dumps({"made_with": made, **table(options.out)}, indent=1) + "\n")
        return
    cells = Cells(options.model, options.text, options.out)
    for windows, kind, share in ORDER:
        wanted = zip(
            (windows, share, kind), (options.calibration, options.shares, options.kinds), strict=True
        )
        if all(some is None or value in some for value, some in wanted):
            for method in options.methods:
                cells.measure(windows, kind, share, method)


if __name__ == "__main__":
    main()
