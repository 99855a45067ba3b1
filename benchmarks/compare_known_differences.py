"""Does a comparison find what is known to differ, and nothing else? ``python -m benchmarks.compare_known_differences``.

Copies of the tiny model of ``examples/tiny_model`` with planted differences, its training checkpoints, two kinds of
text, and pairs of window sets of one and the same model. The table goes into docs/results/compare_tiny.json.
"""

import argparse
import copy
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import train_tiny_model  # noqa: E402

import comparison_cases as cases  # noqa: E402
import headscape as hs  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "compare_tiny.json"
COLUMNS = ["what is compared", "result"]
PAIRS, POOL, WINDOWS, LENGTH = 200, 40, 6, 64
STEPS, CHECKPOINTS = 2500, (0, 50, 100, 200, 400)
AMOUNTS = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 1.0, 2.0)
ELSEWHERE, FACTOR = 0.01, 5
TRAINING_SEEDS = (0, 1, 2)
DRAWS = 100
Rows = Iterator[tuple[str, str]]


def identical() -> Rows:
    """Compare the model with itself on the same windows."""
    pair = hs.compare([cases.tiny_study(), cases.tiny_study()]).pair()
    largest = pair.changes["times_noise"].max()
    yield "the same windows", f"distance {pair.distance:g}, largest difference {largest:g} times the noise"


def pool(name: str, length: int = LENGTH) -> hs.Study:
    """Return a study of the tiny model on 40 random windows of a text; a finished one is read again."""
    text = {"topics": cases.all_topics, "prose": cases.prose, "code": cases.code}[name]()
    folder = Path(tempfile.gettempdir()) / "headscape-benchmarks" / f"pool-{name}-{length}"
    return cases.study_of(cases.tiny(), text, sample="random", windows=POOL, length=length, out=folder)


def false_alarms() -> Rows:
    """Compare the model with itself on other windows of the same text."""
    study = pool("topics")
    sets = f"other windows of the same text, {PAIRS} pairs of {WINDOWS} windows of {LENGTH} tokens"
    for matched, words in (("number", "head by head"), ("", "as distributions")):
        alarms = cases.false_alarms(study, pairs=PAIRS, windows=WINDOWS, matched=matched)
        yield f"{sets}, {words}", f"something changed in {alarms} pairs ({alarms / PAIRS:.1%})"
    code = pool("code")
    alarms = cases.false_alarms(code, pairs=PAIRS, windows=WINDOWS)
    yield f"{sets} of code, head by head", f"something changed in {alarms} pairs ({alarms / PAIRS:.1%})"
    # The bound on the distance was chosen on windows of the first text, so another one judges it too.
    for name, one in (("distance of the geometries", study), ("the same distance on windows of code", code)):
        beyond = cases.distances_beyond_noise(one, pairs=PAIRS, windows=WINDOWS)
        yield f"{sets}, {name}", f"beyond the noise in {beyond} pairs ({beyond / PAIRS:.1%})"


def kinds_of_text() -> Rows:
    """Compare prose with code on many draws of windows."""
    for length, windows in ((48, 6), (64, 6), (48, 12), (64, 12)):
        found = cases.told_apart(pool("prose", length), pool("code", length), pairs=DRAWS, windows=windows)
        yield (
            f"prose and code, {DRAWS} draws of {windows} windows of {length} tokens each",
            f"told apart in {found['any']} ({found['any'] / DRAWS:.0%}); by a single measure, layer or head in "
            f"{found['single']} ({found['single'] / DRAWS:.0%})",
        )


def permuted() -> Rows:
    """Put the heads of every layer in another order, one layer at a time."""
    found = 0
    for layer in range(4):
        pair = hs.compare([cases.tiny_study(), cases.study_of(cases.with_heads_in_order(layer))]).pair()
        found += cases.pairs_are_of_order(pair, layer)
    yield "heads of one layer in another order", f"all 16 pairs exact for {found} of 4 layers"


def noisy() -> Rows:
    """Find the smallest noise on one layer that names the layer, as all larger amounts do."""
    for layer in range(4):
        named: list[float] = []
        beyond: list[float] = []
        for amount in reversed(AMOUNTS):
            pair = hs.compare([cases.tiny_study(), cases.study_of(cases.with_noise(layer, amount))]).pair()
            if (pair.onset.first, cases.farthest_layer(pair)) != (layer, layer):
                break
            named.append(amount)
            if layer in cases.changed(pair):
                beyond.append(amount)
        smallest = f"down to {100 * min(named):g} %" if named else f"not even at {100 * max(AMOUNTS):g} %"
        over = f"from {100 * min(beyond):g} % on" if beyond else "never"
        yield (
            f"noise on W_Q and W_K of layer {layer}, relative to their standard deviation",
            f"layer {layer} named as the first and the farthest to move {smallest}; beyond the noise of other windows "
            f"{over}",
        )
    found = 0
    for layer in range(4):
        noise = cases.with_noise(layer, FACTOR * ELSEWHERE, elsewhere=ELSEWHERE)
        found += cases.farthest_layer(hs.compare([cases.tiny_study(), cases.study_of(noise)]).pair()) == layer
    yield (
        f"noise of {ELSEWHERE:.0%} on all layers, and of {FACTOR * ELSEWHERE:.0%} on one",
        f"that layer moved farthest for {found} of 4 layers",
    )


def pruned() -> Rows:
    """Remove heads from one layer."""
    for removed in ([(0, 0), (0, 1)], [(1, 2), (1, 3)]):
        model = dataclasses.replace(cases.tiny(), model=hs.prune(cases.copy_of_tiny().model, removed).model)
        names = ["intact", "pruned"]
        yield (
            f"without heads {', '.join(f'{layer}.{head}' for layer, head in removed)}",
            hs.compare([cases.tiny_study(), cases.study_of(model)], names=names).headline,
        )


class ReachedError(Exception):
    """The last checkpoint is reached."""


def checkpoints() -> Rows:
    """Compare the first checkpoints of training runs, given in a shuffled order."""
    for seed in TRAINING_SEEDS:
        kept = first_checkpoints(seed)
        shuffled = [CHECKPOINTS[0], *np.random.default_rng(seed).permutation(CHECKPOINTS[1:]).tolist()]
        found = hs.compare([kept[step] for step in shuffled], names=[str(step) for step in shuffled])
        steps = ", ".join(map(str, CHECKPOINTS))
        yield (
            f"checkpoints after {steps} of {STEPS} training steps, shuffled, training seed {seed}",
            f"path: {', '.join(found.path)}",
        )


def first_checkpoints(seed: int) -> dict[int, hs.Study]:
    """Train until the last of the checkpoints and return the study of each."""
    kept: dict[int, hs.Study] = {}

    def keep(step: int, model: Any, tokenizer: Any) -> None:
        if step in CHECKPOINTS:
            kept[step] = cases.study_of(copy.deepcopy(model).eval(), tokenizer=tokenizer)
        if step == CHECKPOINTS[-1]:
            raise ReachedError

    with suppress(ReachedError):
        train_tiny_model.train(STEPS, keep, seed)
    return kept


PARTS: dict[str, Callable[[], Rows]] = {
    "identical": identical,
    "alarms": false_alarms,
    "texts": kinds_of_text,
    "order": permuted,
    "noise": noisy,
    "pruned": pruned,
    "checkpoints": checkpoints,
}


def main() -> None:
    """Run, print and write the table; parts that are not run keep their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"] if RESULTS.exists() else {}
    for name in options.parts or PARTS:
        known[name] = []
        for row in PARTS[name]():
            print(" | ".join(row), flush=True)
            known[name].append(list(row))
        rows = [row for part in PARTS for row in known.get(part, ())]
        found = {"columns": COLUMNS, "rows": rows, "parts": known}
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
