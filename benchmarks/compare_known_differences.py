"""Does a comparison find what is known to differ, and nothing else? ``python -m benchmarks.compare_known_differences``.

Copies of the tiny model of ``examples/tiny_model`` with planted differences, its training checkpoints, two kinds of
text, and pairs of window sets of one and the same model. The table goes into docs/results/compare_tiny.json, row by
row: ``--missing`` resumes, and names such as ``noise`` or ``noise/2`` run only these rows.
"""

import argparse
import copy
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
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
DRAWS = 100
STEPS, CHECKPOINTS, TRAINING_SEEDS = 2500, (0, 50, 100, 200, 400), (0, 1)
AMOUNTS = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 1.0, 2.0)
ELSEWHERE, FACTOR = 0.01, 5
REMOVED = ([(0, 0), (0, 1)], [(1, 2), (1, 3)])
OTHER = f"other windows of the same text, {PAIRS} pairs of {WINDOWS} windows of {LENGTH} tokens"
Row = tuple[str, str]


@cache
def pool(name: str, length: int = LENGTH) -> hs.Study:
    """Return a study of the tiny model on 40 random windows of a text; a finished one is read again."""
    text = {"topics": cases.all_topics, "prose": cases.prose, "code": cases.code}[name]()
    folder = Path(tempfile.gettempdir()) / "headscape-benchmarks" / f"pool-{name}-{length}"
    return cases.study_of(cases.tiny(), text, sample="random", windows=POOL, length=length, out=folder)


def identical() -> Row:
    """Compare the model with itself on the same windows."""
    pair = hs.compare([cases.tiny_study(), cases.tiny_study()]).pair()
    largest = pair.changes["times_noise"].max()
    return "the same windows", f"distance {pair.distance:g}, largest difference {largest:g} times the noise"


def false_alarms(text: str, matched: str, words: str) -> Row:
    """Compare the model with itself on other windows of the same text."""
    alarms = cases.false_alarms(pool(text), pairs=PAIRS, windows=WINDOWS, matched=matched)
    return f"{OTHER}, {words}", f"something changed in {alarms} pairs ({alarms / PAIRS:.1%})"


def distances(text: str, words: str) -> Row:
    """Compare the geometries of the model on other windows of the same text."""
    beyond = cases.distances_beyond_noise(pool(text), pairs=PAIRS, windows=WINDOWS)
    return f"{OTHER}, {words}", f"beyond the noise in {beyond} pairs ({beyond / PAIRS:.1%})"


def kinds_of_text(windows: int, length: int) -> Row:
    """Compare prose with code on many draws of windows."""
    found = cases.told_apart(pool("prose", length), pool("code", length), pairs=DRAWS, windows=windows)
    shares = {name: f"{count / DRAWS:.0%}" for name, count in found.items()}
    return (
        f"prose and code, {DRAWS} draws of {windows} windows of {length} tokens each",
        f"told apart in {shares['any']}; by a single measure, layer or head in {shares['single']}",
    )


def permuted() -> Row:
    """Put the heads of every layer in another order, one layer at a time."""
    found = 0
    for layer in range(4):
        pair = hs.compare([cases.tiny_study(), cases.study_of(cases.with_heads_in_order(layer))]).pair()
        found += cases.pairs_are_of_order(pair, layer)
    return "heads of one layer in another order", f"all 16 pairs exact for {found} of 4 layers"


def noisy(layer: int) -> Row:
    """Find the smallest noise on one layer that names the layer, as all larger amounts do."""
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
    return (
        f"noise on W_Q and W_K of layer {layer}, relative to their standard deviation",
        f"named as the first and the farthest layer to move {smallest}; beyond the noise of other windows {over}",
    )


def noisy_everywhere() -> Row:
    """Put a little noise on all layers, and more on one."""
    found = 0
    for layer in range(4):
        noise = cases.with_noise(layer, FACTOR * ELSEWHERE, elsewhere=ELSEWHERE)
        found += cases.farthest_layer(hs.compare([cases.tiny_study(), cases.study_of(noise)]).pair()) == layer
    return (
        f"noise of {ELSEWHERE:.0%} on all layers, and of {FACTOR * ELSEWHERE:.0%} on one",
        f"that layer moved farthest for {found} of 4 layers",
    )


def pruned(removed: list[tuple[int, int]]) -> Row:
    """Remove heads from one layer."""
    model = dataclasses.replace(cases.tiny(), model=hs.prune(cases.copy_of_tiny().model, removed).model)
    names = ["intact", "pruned"]
    return (
        f"without heads {', '.join(f'{layer}.{head}' for layer, head in removed)}",
        hs.compare([cases.tiny_study(), cases.study_of(model)], names=names).headline,
    )


def checkpoints(seed: int) -> Row:
    """Compare the first checkpoints of a training run, given in a shuffled order."""
    kept = first_checkpoints(seed)
    shuffled = [CHECKPOINTS[0], *np.random.default_rng(seed).permutation(CHECKPOINTS[1:]).tolist()]
    found = hs.compare([kept[step] for step in shuffled], names=[str(step) for step in shuffled])
    steps = ", ".join(map(str, CHECKPOINTS))
    return (
        f"checkpoints after {steps} of {STEPS} training steps, shuffled, training seed {seed}",
        f"path: {', '.join(found.path)}",
    )


class ReachedError(Exception):
    """The last checkpoint is reached."""


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


ROWS: dict[str, Callable[[], Row]] = {
    "identical": identical,
    "alarms/heads": partial(false_alarms, "topics", "number", "head by head"),
    "alarms/distributions": partial(false_alarms, "topics", "", "as distributions"),
    "alarms/code": partial(false_alarms, "code", "number", "head by head on windows of code"),
    # The bound on the distance was chosen on windows of the first text, so another one judges it too.
    "distance/topics": partial(distances, "topics", "distance of the geometries"),
    "distance/code": partial(distances, "code", "the same distance on windows of code"),
    **{f"texts/{n}x{of}": partial(kinds_of_text, n, of) for n, of in ((6, 48), (12, 48), (6, 64), (12, 64))},
    "order": permuted,
    **{f"noise/{layer}": partial(noisy, layer) for layer in range(4)},
    "noise/everywhere": noisy_everywhere,
    **{f"pruned/{removed[0][0]}": partial(pruned, removed) for removed in REMOVED},
    **{f"checkpoints/{seed}": partial(checkpoints, seed) for seed in TRAINING_SEEDS},
}


def main() -> None:
    """Run, print and write the table; rows that are not run stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which rows, all by default: {', '.join(ROWS)}")
    parser.add_argument("--missing", action="store_true", help="only rows that the table does not have")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, row in ROWS.items():
        if options.names and not {name, name.split("/")[0]} & set(options.names):
            continue
        if options.missing and name in measured():
            continue
        found = row()
        print(" | ".join(found), flush=True)
        known = measured() | {name: list(found)}
        parts = {one: known[one] for one in ROWS if one in known}
        table = {"columns": COLUMNS, "rows": list(parts.values()), "parts": parts}
        RESULTS.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def measured() -> dict[str, list[str]]:
    """Return the rows that were measured before, by name."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"] if RESULTS.exists() else {}
    return {name: row for name, row in known.items() if name in ROWS}


if __name__ == "__main__":
    main()
