"""Runs for tests of what is shown: made-up numbers and alerts, written by the real writer."""

from pathlib import Path

import numpy as np

from headscape.monitor.alert import DUPLICATE_HEADS, EXPLODING_LOGITS, Alert
from headscape.monitor.metrics import METRICS, recorded_metrics
from headscape.monitor.run_file import RunWriter
from headscape.monitor.sample import LayerShape, Sample

LAYERS, HEADS, EVERY = 4, 6, 50
STRUCK, TWINS = ("self", 2, 3), (("self", 3, 1), ("self", 3, 4))
USUAL = {"logit_max": 8.0, "effective_rank": 9.0, "attention_entropy": 2.5, "k90": 7.0}


def logits_explode(step: int, since: int) -> Alert:
    return Alert(
        EXPLODING_LOGITS,
        (STRUCK,),
        step,
        since,
        "logit_max",
        104.0,
        100.0,
        8.2,
        "very likely",
        "3 samples in a row",
    )


def heads_are_equal(step: int, since: int) -> Alert:
    return Alert(
        DUPLICATE_HEADS, TWINS, step, since, "nearest", 1e-4, 0.01, 0.8, "certain", "3 samples in a row"
    )


def values_at(index: int, rng: np.random.Generator, faulty: bool) -> dict[str, np.ndarray]:
    n = LAYERS * HEADS
    values = {
        name: USUAL.get(name, 0.5) * (1 + 0.1 * rng.random(n)).astype(np.float32)
        for name in recorded_metrics(METRICS)
    }
    values["nonfinite"] = values["future"] = np.zeros(n, np.float32)
    if faulty:
        values["logit_max"][2 * HEADS + 3] *= np.exp(0.1 * max(0, index - 20))
        values["mu_K"][5] = np.nan
    return values


def write_run(
    path: Path, samples: int = 50, *, faulty: bool = True, name: str = "llama", odd: bool = False
) -> Path:
    """Write a run; a faulty one has an alert in force and one that is over; of an odd one the last value is so."""
    rng = np.random.default_rng(0)
    shapes = [LayerShape("self", layer, HEADS) for layer in range(LAYERS)]
    writer = RunWriter(path, shapes, recorded_metrics(METRICS), {"every": EVERY, "rows": 2, "model": name})
    for index in range(samples):
        states = np.zeros(LAYERS * HEADS, np.int8)
        step = index * EVERY
        if faulty and index >= 42:
            states[2 * HEADS + 3] = 2
        if faulty and 10 <= index < 15:
            states[[3 * HEADS + 1, 3 * HEADS + 4]] = 2
        of_sample = {"states": states, "loss": 3.0, "time": 1e9 + step, "seconds": 0.1}
        values = values_at(index, rng, faulty)
        if odd and index == samples - 1:
            states[8], values["logit_max"][8], of_sample["odd"] = 1, 120.0, {"logit_max": (8,)}
        writer.write(Sample(step, values, **of_sample))
        if faulty and index == 10:
            writer.write_alert(heads_are_equal(step, step - 100))
        if faulty and index == 42:
            writer.write_alert(logits_explode(step, step - 100))
    writer.close()
    return writer.path
