"""Does a comparison find what is known to differ, and nothing else? ``python -m benchmarks.compare_known_differences``.

Copies of the tiny model of ``examples/tiny_model`` with planted differences, its training checkpoints, two kinds of
text, and pairs of window sets of one and the same model. The table goes into docs/results/compare_tiny.json.
"""

import argparse
import dataclasses
import importlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
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
STEPS, CHECKPOINTS = 2500, (0, 50, 100, 200, 400, 800, 1600, 2500)
AMOUNTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CODE = ("argparse", "inspect", "typing")
Rows = Iterator[tuple[str, str]]


def identical() -> Rows:
    """Compare the model with itself on the same windows."""
    pair = hs.compare([cases.tiny_study(), cases.tiny_study()]).pair()
    largest = pair.changes["times_noise"].max()
    yield "the same windows", f"distance {pair.distance:g}, largest difference {largest:g} times the noise"


def false_alarms() -> Rows:
    """Compare the model with itself on other windows of the same text."""
    study = cases.study_of_all_topics(windows=POOL, length=LENGTH)
    sets = f"other windows of the same text, {PAIRS} pairs of {WINDOWS} windows of {LENGTH} tokens"
    for matched, words in (("number", "head by head"), ("", "as distributions")):
        alarms = cases.false_alarms(study, pairs=PAIRS, windows=WINDOWS, matched=matched)
        yield f"{sets}, {words}", f"something changed in {alarms} pairs ({alarms / PAIRS:.1%})"
    beyond = cases.distances_beyond_noise(study, pairs=PAIRS, windows=WINDOWS)
    yield f"{sets}, distance of the geometries", f"beyond the noise in {beyond} pairs ({beyond / PAIRS:.1%})"


def kinds_of_text() -> Rows:
    """Compare prose with code, and prose with prose."""
    code = "\n".join(inspect.getsource(importlib.import_module(name)) for name in CODE)
    prose = cases.all_topics()
    half = len(prose) // 2
    texts = {"prose and code": (prose, code), "two halves of the prose": (prose[:half], prose[half:])}
    for name, each in texts.items():
        pair = hs.compare([cases.study_of(cases.tiny(), text, sample="random") for text in each]).pair()
        heads, layers = (len(cases.changed(pair, level)) for level in ("head", "layer"))
        largest = pair.changes["times_noise"].max()
        told = f"{heads} of 16 heads and {layers} of 4 layers changed, at most {largest:.1f} times the noise"
        yield name, told


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
        for amount in reversed(AMOUNTS):
            pair = hs.compare([cases.tiny_study(), cases.study_of(cases.with_noise(layer, amount))]).pair()
            layers = cases.changed(pair)
            if not layers or min(layers) != layer:
                break
            named.append(amount)
        smallest = (
            f"smallest amount seen: {min(named):.0%}" if named else f"not seen up to {max(AMOUNTS):.0%}"
        )
        yield f"noise on W_Q and W_K of layer {layer}, relative to their standard deviation", smallest


def pruned() -> Rows:
    """Remove heads from one layer."""
    for removed in ([(0, 0), (0, 1)], [(1, 2), (1, 3)]):
        model = dataclasses.replace(cases.tiny(), model=hs.prune(cases.copy_of_tiny().model, removed).model)
        names = ["intact", "pruned"]
        yield (
            f"without heads {', '.join(f'{layer}.{head}' for layer, head in removed)}",
            hs.compare([cases.tiny_study(), cases.study_of(model)], names=names).headline,
        )


def checkpoints(folder: Path) -> Rows:
    """Compare the checkpoints of one training run, given in a shuffled order."""

    def keep(step: int, model: Any, tokenizer: Any) -> None:
        if step in CHECKPOINTS and not (folder / str(step)).exists():
            model.save_pretrained(folder / str(step))
            tokenizer.save_pretrained(folder / str(step))

    if not all((folder / str(step)).exists() for step in CHECKPOINTS):
        train_tiny_model.train(STEPS, keep)
    shuffled = [CHECKPOINTS[0], *np.random.default_rng(0).permutation(CHECKPOINTS[1:]).tolist()]
    studies = [cases.study_of(hs.load_model(folder / str(step))) for step in shuffled]
    found = hs.compare(studies, names=[str(step) for step in shuffled])
    yield (
        f"checkpoints after {', '.join(map(str, CHECKPOINTS))} steps, shuffled",
        f"path: {', '.join(found.path)}",
    )


def main() -> None:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--checkpoints", type=Path, help="folder for the training checkpoints; default: temporary"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.checkpoints or Path(temporary)
        parts: list[Callable[[], Rows]] = [
            identical,
            false_alarms,
            kinds_of_text,
            permuted,
            noisy,
            pruned,
            lambda: checkpoints(folder),
        ]
        rows = []
        for part in parts:
            for row in part():
                print(" | ".join(row), flush=True)
                rows.append(list(row))
    RESULTS.write_text(json.dumps({"columns": COLUMNS, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
