"""Does the monitor find planted faults, in time and by the right name? ``python -m benchmarks.monitor_faults``.

Healthy runs (three seeds) and a run per fault of the two examples, and all of that once more with a seed that was held
out while the rules were made: a small Llama in plain PyTorch
(``examples/train_with_monitor_pytorch.py``) and a small GPT-2 through Hugging Face's Trainer
(``examples/train_with_monitor_trainer.py``). Every step is measured and written to a folder, from which an interrupted
benchmark resumes. A monitor as a user has it is one that is given every tenth of these samples; when the fault became
measurable is seen from all of them. Where the sampling begins is chance: all ten offsets are tried. The table goes into
docs/results/monitor_faults.json.
"""

import argparse
import importlib
import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch  # noqa: E402
from byte_text import read_bytes  # noqa: E402
from training_faults import FAULTS, HEALTHY  # noqa: E402
from training_options import Run  # noqa: E402

import headscape as hs  # noqa: E402
from headscape.monitor.detection import Detector  # noqa: E402
from headscape.monitor.rules import Rule, rules  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "monitor_faults.json"
EXAMPLES = {
    "Llama, plain PyTorch": "train_with_monitor_pytorch",
    "GPT-2, Trainer": "train_with_monitor_trainer",
}
BASE = Run(steps=500, batch=8, length=64, width=64, base_rate=3e-3, every=10, fault_step=155)
SEEDS, HELD_OUT = 3, 7
PERIODS = 2.0
AFTERWARDS = 15
"""Sampling periods that a run goes on after the fault was found, to see when it became measurable at the latest."""
WITHOUT_EFFECT = {("Llama, plain PyTorch", "rank-one")}
"""Rotary position embedding turns queries of rank-1 weights differently at every position: their rank is not 1."""
COLUMNS = [
    "model",
    "run",
    "first right alert",
    "measurable from step",
    "found at step",
    "delay in sampling periods",
    "other alerts",
    "of 10 sampling offsets",
]
WITHOUT_A_RULE = (
    Rule("mask-change", "future", high=True, level=0.0),
    Rule("not-finite", "nonfinite", high=True, level=0.0),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one run.

    Parameters
    ----------
    model, run
        What was trained, and how.
    right
        The first alert of a right kind that names the head that was struck, if there is one.
    crossed
        The first step at which its metric, measured at every step, crosses the threshold; None if it has not yet.
    others
        All other alerts.
    offsets
        At how many sampling offsets the fault is found in time; in a healthy run, at how many there is no alert.
    """

    model: str
    run: Run
    right: Any
    crossed: int | None
    others: tuple[Any, ...]
    offsets: int = 0

    @property
    def healthy(self) -> bool:
        """Whether nothing was planted."""
        return self.run.fault.name == HEALTHY.name

    @property
    def delay(self) -> float | None:
        """Sampling periods from the first crossing to the alert, which may come before it; None if not found."""
        if self.right is None:
            return None
        return 0.0 if self.crossed is None else float(self.right.step - self.crossed) / self.run.every

    @property
    def in_time(self) -> bool:
        """Whether the fault is found and named within two sampling periods, or a healthy run has no alert."""
        return not self.others if self.healthy else self.delay is not None and self.delay <= PERIODS

    @property
    def false_alarms(self) -> int:
        """Alerts of a healthy run, or before the fault."""
        return sum(self.healthy or alert.step < _begin(self.run) for alert in self.others)

    @property
    def row(self) -> list[str]:
        """The run's line of the table."""
        kinds = Counter(alert.kind for alert in self.others)
        seed = f", seed {self.run.seed}" if self.healthy or self.run.seed else ""
        held_out = " (held out)" if self.run.seed == HELD_OUT else ""
        return [
            self.model,
            f"{'healthy' if self.healthy else self.run.fault.words}{seed}{held_out}",
            "none" if self.right is None else f"{self.right.kind} ({self.right.metric})",
            ("" if self.right is None else "later") if self.crossed is None else str(self.crossed),
            ("" if self.healthy else "not found") if self.right is None else str(self.right.step),
            "" if self.delay is None else f"{self.delay:.1f}",
            ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none",
            f"{self.offsets} {'without an alert' if self.healthy else 'in time'}",
        ]


class _Finder(hs.HeadMonitor):
    """Asks to stop some time after it has found the fault of a run."""

    searched: Run

    @property
    def should_stop(self) -> bool:
        """Whether the fault was found a few sampling periods ago."""
        found = [alert.step for alert in self.alerts if _is_right(alert, self.searched)]
        return bool(found) and self.n_steps > found[0] + AFTERWARDS * self.every


def record(model: str, run: Run, text: Path | None, folder: Path) -> hs.MonitorRun:
    """Train with a fault, measured at every step until it is found and a little longer.

    A run that the folder already holds whole is read.
    """
    source = "sample_text" if text is None else text.stem
    path = folder / source / f"{EXAMPLES[model]}-{run.fault.name}-{run.seed}.jsonl"
    if path.exists() and (known := hs.MonitorRun.load(path)).ended:
        return known
    path.unlink(missing_ok=True)
    torch.set_num_threads(1)
    example = importlib.import_module(EXAMPLES[model])
    trained = example.make_model(run)
    finder = _Finder(trained, every=run.every)
    finder.searched = run
    dense = hs.HeadMonitor(trained, every=1, path=path)
    with tempfile.TemporaryDirectory() as out:
        example.train(trained, [finder, dense], read_bytes(text), replace(run, out=Path(out)))
    dense.close()
    return dense.run


def outcome(model: str, run: Run, text: Path | None, folder: Path) -> Outcome:
    """Compare what a monitor says that samples now and then with what could be measured at every step."""
    dense = record(model, run, text, folder)
    found = [outcome_at(offset, model, run, dense) for offset in range(run.every)]
    return replace(found[0], offsets=sum(each.in_time for each in found))


def outcome_at(offset: int, model: str, run: Run, dense: hs.MonitorRun) -> Outcome:
    """Return what a monitor says whose first sample is that of some step."""
    alerts = sampled_alerts(dense, run.every, offset)
    right = next((alert for alert in alerts if _is_right(alert, run)), None)
    if right is not None:
        alerts = [alert for alert in alerts if alert.step <= right.step]
    others = tuple(alert for alert in alerts if alert is not right)
    crossed = None if right is None else crossing(dense, run, right)
    return Outcome(model, run, right, crossed, others)


def sampled_alerts(dense: hs.MonitorRun, every: int, first: int = 0) -> list[Any]:
    """Return the alerts of a monitor that sees every so-manieth step: those of the detector on its samples."""
    detector = Detector(dense.layers, hs.Thresholds())
    seen = [sample for sample in dense.samples if sample.step % every == first]
    return [alert for sample in seen for alert in detector.judge(sample)[1]]


def _begin(run: Run) -> int:
    """Return the first step that a fault touches; the monitor counts the updates before it."""
    return 0 if run.fault.each_step is None else run.fault_step - 1


def _is_right(alert: Any, run: Run) -> bool:
    struck = run.fault.head
    heads = [(layer, head) for _, layer, head in alert.heads]
    right = alert.kind in run.fault.alerts and (struck is None or struck in heads)
    return right and alert.step >= _begin(run)


def crossing(dense: hs.MonitorRun, run: Run, alert: Any) -> int | None:
    """Return the first step at which the metric of an alert crosses its threshold, if it does."""
    known = (*rules(hs.Thresholds()), *WITHOUT_A_RULE)
    rule = next(rule for rule in known if (rule.kind, rule.metric) == (alert.kind, alert.metric))
    values = dense.metric(rule.metric)  # (step, layer, head)
    crossed = _crossed(values, rule).reshape(len(values), -1)
    if run.fault.head is not None:
        layer, head = run.fault.head
        crossed = crossed[:, layer * values.shape[2] + head, None]
    crossed &= (dense.steps >= _begin(run))[:, None]
    any_head = crossed.any(axis=1)
    return int(dense.steps[np.argmax(any_head)]) if any_head.any() else None


def _crossed(values: Any, rule: Rule) -> Any:
    """Return where a value is beyond the limit, or beyond the level in a head that began within it."""
    beyond = values > rule.level if rule.high else values < rule.level
    crossed = beyond & ~beyond[:1]
    if rule.limit is not None:
        crossed |= values > rule.limit if rule.high else values < rule.limit
    return crossed


def outcomes(text: Path | None, folder: Path, processes: int) -> Iterator[Outcome]:
    """Run everything, a few at a time, and yield what became of it in order."""
    runs = [
        *(replace(BASE, seed=seed) for seed in range(SEEDS)),
        *(replace(BASE, fault=fault) for fault in FAULTS.values()),
        *(replace(BASE, seed=HELD_OUT, fault=fault) for fault in (HEALTHY, *FAULTS.values())),
    ]
    jobs = [
        (model, run) for model in EXAMPLES for run in runs if (model, run.fault.name) not in WITHOUT_EFFECT
    ]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(partial(_job, text, folder), jobs):
            print(" | ".join(found.row), flush=True)
            yield found


def _job(text: Path | None, folder: Path, job: tuple[str, Run]) -> Outcome:
    return outcome(*job, text, folder)


def summed_up(found: list[Outcome]) -> str:
    """Return how many faults were found, and how many alarms were false."""
    faulty = [each for each in found if not each.healthy]
    quiet = sum(each.offsets for each in found if each.healthy)
    return (
        f"{sum(each.in_time for each in faulty)} of {len(faulty)} faults are found and named within {PERIODS:.0f} "
        f"sampling periods of being measurable, {sum(each.offsets for each in faulty)} of {BASE.every * len(faulty)} "
        f"over all sampling offsets. {sum(each.false_alarms for each in found)} false alarms: in "
        f"{len(found) - len(faulty)} healthy runs of {BASE.steps} steps ({quiet} of "
        f"{BASE.every * (len(found) - len(faulty))} without an alert over all offsets), and before the fault in the "
        "others."
    )


def main() -> None:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a text file; default: sample text bundled with Python")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "monitor_faults", help="folder of the runs"
    )
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    options = parser.parse_args()
    found = list(outcomes(options.text, options.out, options.processes))
    summary = summed_up(found)
    print(summary)
    result = {"columns": COLUMNS, "rows": [each.row for each in found], "summary": summary}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
