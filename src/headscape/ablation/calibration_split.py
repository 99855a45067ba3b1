"""Which windows calibrate a ranking and which evaluate it: far apart, and never the same ones unnoticed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headscape.analysis.intervals import FEWEST_UNITS
from headscape.errors import InputError
from headscape.models.loading import Model
from headscape.recorder.inputs import InputReader, WindowInput, is_run_of_ids, looks_at_images
from headscape.recorder.text import Text, texts_of

DEFAULT_WINDOWS = 16
"""Windows of a text, if the number is not given."""
GAP = 20
"""The share 1 / GAP of a text is left out on either side of its middle, so that the halves are apart."""


@dataclass(frozen=True, eq=False)
class SplitWindows:
    """Windows to calibrate on and windows to evaluate on, and what to know about the split."""

    calibration: tuple[WindowInput, ...]
    evaluation: tuple[WindowInput, ...]
    warnings: tuple[str, ...] = ()


def calibration_windows(
    loaded: Model,
    inputs: Any,
    windows: int | None,
    length: int | None,
    *,
    sample: str = "spread",
    seed: int = 0,
) -> list[WindowInput]:
    """Return at most ``windows`` windows of any kind of input."""
    return _read(_reader(loaded, length, sample, seed), inputs, windows, "inputs")


def split_windows(
    loaded: Model,
    inputs: Any,
    calibration: Any = None,
    *,
    windows: int | None = None,
    calibration_count: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    seed: int = 0,
) -> SplitWindows:
    """Read the windows to evaluate on and those to calibrate on, at most as many as are asked for.

    Without ``calibration`` the first half of the inputs calibrates and the second evaluates (of several text files,
    the halves of each). Unless ``sample`` is "first", a tenth of a text in its middle is left out.
    """
    for count in (windows, calibration_count):
        if count is not None and count < 1:
            raise InputError(f"windows must be a positive integer, but is {count}.")
    reader = _reader(loaded, length, sample, seed)
    if calibration is None:
        return _halves(reader, inputs, windows, calibration_count)
    evaluating = _read(reader, inputs, windows, "the evaluation inputs")
    return _checked(_read(reader, calibration, calibration_count, "the calibration inputs"), evaluating)


def _reader(loaded: Model, length: int | None, sample: str, seed: int) -> InputReader:
    return InputReader(loaded.model, loaded.tokenizer, length, at_most=True, sample=sample, seed=seed)


def _read(reader: InputReader, inputs: Any, windows: int | None, what: str) -> list[WindowInput]:
    if inputs is None:
        raise InputError(f"{what} are missing: pass text, token ids or images.")
    try:
        runs = _runs(reader, inputs)
        if windows is None and runs is not None:
            # Of a long run a few windows will do; of a list or batch all are meant.
            windows = len(runs) * -(-DEFAULT_WINDOWS // len(runs))
        return replace(reader, windows=windows).read(inputs)
    except InputError as error:
        raise InputError(f"{what} cannot be used: {error}") from error


def _runs(reader: InputReader, inputs: Any) -> Sequence[Any] | None:
    """Return the texts or the run of token ids that windows are sampled from; None for lists and batches."""
    if is_run_of_ids(inputs):
        return [inputs]
    return None if looks_at_images(reader.model) else texts_of(inputs)


def _halves(reader: InputReader, inputs: Any, windows: int | None, calibrating: int | None) -> SplitWindows:
    runs = _runs(reader, inputs) or ()
    if runs and isinstance(runs[0], Text):
        halves = [_halves_of_text(text, reader.sample) for text in runs]
        return _checked(
            _read(reader, [first for first, _ in halves], calibrating, "the first half of the text"),
            _read(reader, [second for _, second in halves], windows, "the second half of the text"),
        )
    if runs and reader.sample != "first":
        middle, gap = len(inputs) // 2, len(inputs) // GAP
        return _checked(
            _read(reader, inputs[: middle - gap], calibrating, "the first half of the token ids"),
            _read(reader, inputs[middle + gap :], windows, "the second half of the token ids"),
        )
    if runs:
        windows, calibrating = windows or DEFAULT_WINDOWS, calibrating or DEFAULT_WINDOWS
    wanted = None if windows is None or calibrating is None else windows + calibrating
    found = _read(reader, inputs, wanted, "the inputs")
    if len(found) < 2:
        raise InputError(
            f"expected at least two windows, one to calibrate on and one to evaluate on, but the inputs have only "
            f"{len(found)}: pass more inputs, or other inputs for calibration (--calibrate) too."
        )
    cut = len(found) // 2 if wanted is None or calibrating is None else len(found) * calibrating // wanted
    cut = min(max(cut, 1), len(found) - 1)
    return _checked(found[:cut][:calibrating], found[cut:][:windows])


def _halves_of_text(text: Text, sample: str) -> tuple[Text, Text]:
    """Return the halves of a text; where windows reach up to the middle, without what is next to it."""
    if sample == "first":
        cut = text.middle_line()
        return text.part(text.start, cut), text.part(cut, text.stop)
    middle, gap = text.start + text.size // 2, text.size // GAP
    first, second = text.word_start(middle - gap), text.word_start(middle + gap)
    return text.part(text.start, first), text.part(second, text.stop)


def _checked(calibrating: Sequence[WindowInput], evaluating: Sequence[WindowInput]) -> SplitWindows:
    known = {window.hash() for window in calibrating}
    shared = sum(window.hash() in known for window in evaluating)
    warnings = []
    if shared:
        warnings.append(
            f"{shared} of {len(evaluating)} evaluation windows are calibration windows too, so that losses there are "
            "underestimated. Pass different inputs to evaluate on."
        )
    if len(evaluating) < FEWEST_UNITS:
        warnings.append(
            f"fewer than {FEWEST_UNITS} evaluation windows ({len(evaluating)}): too few for intervals and verdicts. "
            "Pass more inputs."
        )
    return SplitWindows(tuple(calibrating), tuple(evaluating), tuple(warnings))
