"""How often the interval of a pruning trial covers what the whole text would have shown.

Run with ``python -m benchmarks.pruning_coverage --text wikitext2_valid.txt``. Heads are chosen and repaired as
``headscape prune --method reconstruction`` does it, on 16 windows of the first half of the text. Then *every* window of
the second half (or many, evenly spread) is evaluated, and the losses are stored. From these, trials of 16 windows are
drawn as the samplers take them: ``spread`` evenly over the text, ``random``, and ``first`` (neighbors); a "95 %"
interval should cover the mean of all.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.calibration_split import split_windows
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.repair import Repair
from headscape.ablation.ridge_fit import Strength
from headscape.analysis.intervals import bootstrap
from headscape.engine import no_progress
from headscape.models.loading import Model, load_model
from headscape.pruning.manifest import Pairs
from headscape.pruning.removal_order import UNITS, flat, require_count
from headscape.pruning.trial_parts import trial_parts
from headscape.pruning.trial_run import TrialRun
from headscape.pruning.trial_windows import trial_windows
from headscape.recorder.capturing import input_hash
from headscape.recorder.gates import gated, switched_off
from headscape.tensor.store import write_text_atomically

RESULT = Path(__file__).parents[1] / "docs" / "results" / "prune_coverage_smollm2.json"
ALL = 100_000
DIGITS, CHUNK = 5, 8


def drawn(sample: str, n: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return which of n windows in a row one trial evaluates.

    Evenly spread ones are one of each of ``count`` equal stretches: equal gaps would give n / count trials only.
    """
    if sample == "random":
        return rng.choice(n, count, replace=False)
    if sample == "spread":
        edges = np.arange(count + 1) * n // count
        return rng.integers(edges[:-1], edges[1:])
    return (int(rng.integers(n)) + np.arange(count)) % n


def coverage(
    increases: NDArray[np.float64], sample: str, *, count: int = 16, trials: int = 1000, seed: int = 0
) -> float:
    """Return the share of trials whose interval covers the mean increase of all windows."""
    rng, truth = np.random.default_rng(seed), float(increases.mean())
    found = (bootstrap(increases[drawn(sample, len(increases), count, rng)]) for _ in range(trials))
    return sum(truth in interval for interval in found) / trials


def chosen(
    loaded: Model, text: Path, fraction: float, length: int, work: Path, ridge: float | None
) -> tuple[Pairs, Repair]:
    """Return the heads that ``headscape prune --method reconstruction`` would remove, and their repair."""
    windows = trial_windows(
        loaded, text, windows=None, calibration_count=None, comparing=False, length=length
    ).calibrate
    evaluator = HeadEvaluator(loaded, windows)
    parameters = {"model": loaded.provenance(), "length": length}
    with trial_parts(work / "choice", parameters, input_hash(windows), 0) as parts:
        run = TrialRun(evaluator, None, evaluator, "reconstruction", True, parts, no_progress)
        heads = flat(run.order(UNITS, require_count(evaluator.modules, UNITS, fraction)))
        repair = run.repair(heads, None if ridge is None else Strength(ridge))
    assert repair is not None
    return heads, repair


def measure(
    model: str,
    text: Path,
    fraction: float,
    length: int,
    count: int,
    work: Path,
    ridge: float | None,
    begin: float,
) -> dict[str, object]:
    """Return the losses of the windows of the second half of a text, intact and without the chosen heads.

    What is finished is kept in ``work``: a measurement that is stopped resumes there, and further processes
    may begin in the middle (``begin``, a share).
    """
    loaded = load_model(model)
    heads, repair = chosen(loaded, text, fraction, length, work, ridge)
    windows = split_windows(loaded, text, windows=count, length=length).evaluation
    starts = range(0, len(windows), CHUNK)
    first = int(begin * len(starts))
    for start in [*starts[first:], *starts[:first]]:
        kept = work / f"losses-{start}.json"
        if not kept.exists():
            judge = HeadEvaluator(loaded, windows[start : start + CHUNK])
            with gated(judge.modules, {}):
                intact = judge.objective.evaluate(loaded.model).losses
            with repair.applied(judge.projections), switched_off(judge.modules, heads):
                repaired = judge.objective.evaluate(loaded.model).losses
            losses = {"intact": intact, "repaired": repaired}
            text_of = json.dumps({name: np.round(x, DIGITS).tolist() for name, x in losses.items()})
            write_text_atomically(kept, text_of)
    found = [json.loads((work / f"losses-{start}.json").read_text()) for start in starts]
    return {
        "made_with": f"python -m benchmarks.pruning_coverage: {model}, {text.name}, windows of {length} tokens, "
        f"{len(heads)} heads removed and repaired ({repair.strength})",
        **{name: [loss for part in found for loss in part[name]] for name in ("intact", "repaired")},
    }


def main() -> None:
    """Measure, store, and print the coverage of every sampler."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="default")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--windows", type=int, default=ALL, help="at most so many, evenly spread")
    parser.add_argument("--work", type=Path, default=Path("out/coverage"))
    parser.add_argument("--ridge", type=float, help="of the repair; by default chosen by cross-validation")
    parser.add_argument(
        "--begin", type=float, default=0.0, help="begin here, for processes that share the work"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    found = measure(
        given.model,
        given.text,
        given.fraction,
        given.length,
        given.windows,
        given.work,
        given.ridge,
        given.begin,
    )
    given.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    increases = np.array(found["repaired"]) - np.array(found["intact"])
    print(f"{len(increases)} windows, mean loss increase {increases.mean():.4f}")
    for sample in ("spread", "random", "first"):
        print(f"{sample}: {coverage(increases, sample):.3f} of the intervals cover it")


if __name__ == "__main__":
    main()
