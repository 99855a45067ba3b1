"""Which windows calibrate a ranking and which judge it: never the same ones without a word."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscape.errors import InputError
from headscape.models.loading import Model
from headscape.recorder.images import IMAGE_ENDINGS
from headscape.recorder.inputs import InputReader, WindowInput, is_run_of_ids
from headscape.recorder.text import read_text, require_text

DEFAULT_WINDOWS = 16
"""Windows of one text, if the number is not given."""
FEW_WINDOWS = 6
"""Below so many windows a percentile interval covers far less than it says."""


@dataclass(frozen=True, eq=False)
class SplitWindows:
    """Windows to calibrate on and windows to evaluate on, and what to know about the split."""

    calibration: tuple[WindowInput, ...]
    evaluation: tuple[WindowInput, ...]
    warnings: tuple[str, ...] = ()


def calibration_windows(
    loaded: Model, inputs: Any, windows: int | None, length: int | None
) -> list[WindowInput]:
    """Return at most ``windows`` windows of any kind of input."""
    return _read(loaded, inputs, windows, length, "inputs")


def split_windows(
    loaded: Model,
    inputs: Any,
    calibration: Any = None,
    *,
    windows: int | None = None,
    calibration_count: int | None = None,
    length: int | None = 256,
) -> SplitWindows:
    """Read the windows to evaluate on and those to calibrate on.

    Parameters
    ----------
    loaded
        The model they are for.
    inputs
        To evaluate on; without ``calibration`` the first half calibrates and the second evaluates.
    calibration
        To calibrate on.
    windows, calibration_count
        How many windows evaluate and calibrate, at most; by default 16 of one text and all of a list or batch.
    length
        Tokens per window.
    """
    for count in (windows, calibration_count):
        if count is not None and count < 1:
            raise InputError(f"windows must be a whole number from 1 up, but is {count}.")
    if calibration is None:
        return _halves(loaded, inputs, windows, calibration_count, length)
    evaluating = _read(loaded, inputs, windows, length, "the evaluation inputs")
    calibrating = _read(loaded, calibration, calibration_count, length, "the calibration inputs")
    return _checked(calibrating, evaluating)


def _halves(
    loaded: Model, inputs: Any, windows: int | None, calibrating: int | None, length: int | None
) -> SplitWindows:
    text = _whole_text(inputs)
    if text is not None:
        # Far from each other, so that no article is in both.
        cut = text.rfind("\n", 0, len(text) // 2) + 1 or len(text) // 2
        return _checked(
            _read(loaded, text[:cut], calibrating, length, "the first half of the text"),
            _read(loaded, text[cut:], windows, length, "the second half of the text"),
        )
    if _is_one_run(inputs):
        windows, calibrating = windows or DEFAULT_WINDOWS, calibrating or DEFAULT_WINDOWS
    wanted = None if windows is None or calibrating is None else windows + calibrating
    found = _read(loaded, inputs, wanted, length, "the inputs")
    if len(found) < 2:
        raise InputError(
            "a study needs at least one window to calibrate on and another to evaluate on, but the inputs have "
            f"only {len(found)}. Give more, or give calibration=... too."
        )
    cut = len(found) // 2 if wanted is None or calibrating is None else len(found) * calibrating // wanted
    cut = min(max(cut, 1), len(found) - 1)
    return _checked(found[:cut][:calibrating], found[cut:][:windows])


def _whole_text(inputs: Any) -> str | None:
    """Return the text of one string or text file; None for lists, ids and images."""
    if isinstance(inputs, os.PathLike) or (isinstance(inputs, str) and _is_file(inputs)):
        path = Path(inputs)
        return None if path.suffix.lower() in IMAGE_ENDINGS or path.is_dir() else read_text(path)
    if isinstance(inputs, str):
        require_text(inputs)
        return inputs
    return None


def _is_one_run(inputs: Any) -> bool:
    """Tell whether inputs are one text or one row of token ids, to be cut into windows."""
    return _whole_text(inputs) is not None or is_run_of_ids(inputs)


def _is_file(name: str) -> bool:
    try:
        return len(name) < 1024 and Path(name).is_file()
    except (OSError, ValueError):
        return False


def _checked(calibrating: Sequence[WindowInput], evaluating: Sequence[WindowInput]) -> SplitWindows:
    known = {window.hash() for window in calibrating}
    shared = sum(window.hash() in known for window in evaluating)
    warnings = []
    if shared:
        warnings.append(
            f"{shared} of {len(evaluating)} windows to evaluate on were calibrated on too: what is found there is "
            "too good. Give other text to one of them."
        )
    if len(evaluating) < FEW_WINDOWS:
        warnings.append(
            f"only {len(evaluating)} windows evaluate: the intervals are too narrow to rely on. Give more text."
        )
    return SplitWindows(tuple(calibrating), tuple(evaluating), tuple(warnings))


def _read(
    loaded: Model, inputs: Any, windows: int | None, length: int | None, what: str
) -> list[WindowInput]:
    if inputs is None:
        raise InputError(f"{what} are missing: give text, token ids or images.")
    # Of one long run of text or token ids a few windows will do; of a list or batch all are meant.
    count = DEFAULT_WINDOWS if windows is None and _is_one_run(inputs) else windows
    reader = InputReader(loaded.model, loaded.tokenizer, length, count, at_most=True)
    try:
        return reader.read(inputs)
    except InputError as error:
        raise InputError(f"{what} cannot be used: {error}") from error
