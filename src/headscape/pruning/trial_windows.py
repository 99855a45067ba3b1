"""The windows of a pruning trial: those that calibrate, those that compare sizes, and those that are judged by.

What is promised is measured on windows that took no part in any choice. So sizes and kinds of removal are compared on
further windows of the calibration inputs, set aside from those that heads are chosen and projections fitted on; whether
a recovery is used is decided there too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscape.ablation.calibration_split import SplitWindows, split_windows
from headscape.analysis.intervals import FEWEST_UNITS
from headscape.models.loading import Model
from headscape.recorder.inputs import WindowInput

Windows = tuple[WindowInput, ...]
PASSAGE = 16
"""Tokens in a row that two windows have in common only if they overlap, or repeat each other."""


@dataclass(frozen=True, eq=False)
class TrialWindows:
    """Windows of a trial: to ``calibrate``, to ``compare`` sizes, and to ``evaluate`` what was chosen."""

    calibrate: Windows
    compare: Windows
    evaluate: Windows
    warnings: tuple[str, ...] = ()


def trial_windows(
    loaded: Model,
    inputs: Any,
    calibration: Any = None,
    *,
    windows: int | None,
    calibration_count: int | None,
    comparing: bool,
    **reading: Any,
) -> TrialWindows:
    """Read the windows of a trial.

    As many windows as calibrate are set aside from what the calibration inputs have beyond them. Of a list whose
    windows all calibrate, half are set aside if sizes are compared (``comparing``), and none otherwise.
    """
    split = split_windows(
        loaded, inputs, calibration, windows=windows, calibration_count=calibration_count, **reading
    )
    count = len(split.calibration)
    more = split_windows(loaded, inputs, calibration, windows=windows, calibration_count=2 * count, **reading)
    if len(more.calibration) > count and len(more.evaluation) == len(split.evaluation):
        return _set_aside(more, count, reading.get("sample", "spread"))
    if comparing and count > 1:
        return _set_aside(split, count - max(count // 2, min(FEWEST_UNITS, count // 2)), "spread")
    return TrialWindows(split.calibration, (), split.evaluation, split.warnings)


def training_windows(
    loaded: Model, inputs: Any, calibration: Any, known: TrialWindows, count: int, **reading: Any
) -> Windows:
    """Return at most ``count`` windows of the calibration inputs, none of which is evaluated or compared on.

    Windows of a text that share a passage with those that compare are left out too: more windows than calibrate lie
    closer together, and overlap them.
    """
    found = split_windows(
        loaded, inputs, calibration, windows=len(known.evaluate), calibration_count=count, **reading
    )
    aside = {passage for window in (*known.evaluate, *known.compare) for passage in _passages(window)}
    left = tuple(window for window in found.calibration if aside.isdisjoint(_passages(window)))
    return left or known.calibrate


def _passages(window: WindowInput) -> set[object]:
    """Return every run of ``PASSAGE`` tokens of a window, or what stands for all of it if it is no text."""
    ids = window.arguments.get("input_ids")
    if ids is None or ids.shape[-1] < PASSAGE:
        return {window.hash()}
    tokens = ids.flatten().tolist()
    return {tuple(tokens[at : at + PASSAGE]) for at in range(len(tokens) - PASSAGE + 1)}


def _set_aside(split: SplitWindows, count: int, sample: str) -> TrialWindows:
    """Keep ``count`` windows to calibrate on, evenly spread (the first ones if so they were sampled)."""
    found: Sequence[WindowInput] = split.calibration
    places = np.arange(count) if sample == "first" else np.arange(count) * len(found) // count
    kept = set(places.tolist())
    calibrate = tuple(window for i, window in enumerate(found) if i in kept)
    compare = tuple(window for i, window in enumerate(found) if i not in kept)
    return TrialWindows(calibrate, compare, split.evaluation, split.warnings)
