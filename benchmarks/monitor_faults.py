"""Does the monitor find planted faults, in time and by the right name? ``python -m benchmarks.monitor_faults``.

Healthy runs (three seeds) and a run per fault of the small Llama in ``examples/train_with_monitor_pytorch.py``, each
with two monitors: one as a user has it, every 10 steps, and one at every step, which says when the fault became
measurable. The table goes into docs/results/monitor_faults.json.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch  # noqa: E402
import train_with_monitor_pytorch as llama  # noqa: E402
from byte_text import read_bytes  # noqa: E402
from training_faults import FAULTS, HEALTHY  # noqa: E402
from training_options import Run  # noqa: E402

import headscape as hs  # noqa: E402
from headscape.monitor.rules import Rule, rules  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "monitor_faults.json"
BASE = Run(steps=500, batch=8, length=64, width=64, base_rate=3e-3, every=10, fault_step=155)
SEEDS = 3
PERIODS = 2.0
COLUMNS = [
    "run",
    "first right alert",
    "measurable at step",
    "found at step",
    "delay in sampling periods",
    "other alerts",
]
WITHOUT_A_RULE = (
    Rule("mask-change", "future", high=True, level=0.0),
    Rule("not-finite", "nonfinite", high=True, level=0.0),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one run: the first right alert, when the fault was measurable, and all other alerts."""

    title: str
    right: Any
    measurable: int | None
    others: tuple[str, ...]
    every: int

    @property
    def delay(self) -> float | None:
        """Sampling periods from the first measurable step to the alert."""
        if self.right is None or self.measurable is None:
            return None
        return (self.right.step - self.measurable) / self.every

    @property
    def row(self) -> list[str]:
        """The run's line of the table."""
        return [
            self.title,
            "none" if self.right is None else f"{self.right.kind} ({self.right.metric})",
            "never" if self.measurable is None else str(self.measurable),
            "not found" if self.right is None else str(self.right.step),
            "" if self.delay is None else f"{self.delay:.1f}",
            ", ".join(self.others) or "none",
        ]


def outcome(run: Run, text: torch.Tensor) -> Outcome:
    """Train with a fault, and compare what the monitor says with what could be measured."""
    model = llama.make_model(run)
    live, dense = hs.HeadMonitor(model, every=run.every), hs.HeadMonitor(model, every=1)
    llama.train(model, [live, dense], text, run)
    begin = 0 if run.fault.each_step is None else run.fault_step - 1
    right = next((alert for alert in live.alerts if alert.step >= begin and _is_right(alert, run)), None)
    others = tuple(f"{alert.kind} at {alert.step}" for alert in live.alerts if alert is not right)
    title = f"{run.fault.words}, seed {run.seed}" if run.fault is HEALTHY else run.fault.words
    measurable = None if run.fault is HEALTHY else first_measurable(dense.run, run, begin)
    return Outcome(title, right, measurable, others, run.every)


def _is_right(alert: Any, run: Run) -> bool:
    struck = run.fault.head
    heads = [(layer, head) for _, layer, head in alert.heads]
    return alert.kind in run.fault.alerts and (struck is None or struck in heads)


def first_measurable(dense: hs.MonitorRun, run: Run, begin: int) -> int | None:
    """Return the first step at which a metric of the fault's alerts crosses its threshold in a struck head."""
    steps = []
    for rule in (*rules(hs.Thresholds()), *WITHOUT_A_RULE):
        if rule.kind in run.fault.alerts:
            values = dense.metric(rule.metric)  # (step, layer, head)
            if run.fault.head is not None:
                layer, head = run.fault.head
                values = values[:, layer : layer + 1, head : head + 1]
            crossed = _crossed(values, rule)[dense.steps >= begin].any(axis=(1, 2))
            steps += [int(dense.steps[dense.steps >= begin][np.argmax(crossed)])] if crossed.any() else []
    return min(steps, default=None)


def _crossed(values: Any, rule: Rule) -> Any:
    """Return where a value is beyond the limit, or beyond the level in a head that began within it."""
    beyond = values > rule.level if rule.high else values < rule.level
    crossed = beyond & ~beyond[:1]
    if rule.limit is not None:
        crossed |= values > rule.limit if rule.high else values < rule.limit
    return crossed


def outcomes(text: torch.Tensor) -> Iterator[Outcome]:
    """Run everything, one after the other."""
    for run in (
        *(replace(BASE, seed=seed) for seed in range(SEEDS)),
        *(replace(BASE, fault=fault) for fault in FAULTS.values()),
    ):
        found = outcome(run, text)
        print(" | ".join(found.row), flush=True)
        yield found


def main() -> None:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a text file; default: sample text bundled with Python")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = list(outcomes(read_bytes(options.text)))
    faulty = found[SEEDS:]
    in_time = sum(each.delay is not None and each.delay <= PERIODS for each in faulty)
    false_alarms = sum(len(each.others) for each in found[:SEEDS])
    summary = (
        f"{in_time} of {len(faulty)} faults are found within {PERIODS:.0f} sampling periods of being measurable; "
        f"{false_alarms} false alarms in {SEEDS} healthy runs of {BASE.steps} steps."
    )
    print(summary)
    result = {"columns": COLUMNS, "rows": [each.row for each in found], "summary": summary}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
