"""How long a command is expected to take, from the sizes of its source: told before it starts.

The seconds are those of 2 cores without a GPU (:mod:`headscape.study.stages.cost`). Loading the libraries and
writing the report are among them; converting a GGUF file for the first time has an estimate of its own.
"""

import os
from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscape.ablation.ablation_study import SHARES
from headscape.errors import HeadscapeError
from headscape.models.anatomy import heads_of, of_stack
from headscape.models.gguf import folder_of_gguf
from headscape.models.loading import Model
from headscape.models.packaged import PACKAGED, packaged_weights
from headscape.models.plain_facts import config_of
from headscape.monitor.checkpoints import Checkpoint, unmeasured
from headscape.monitor.monitor_run import MonitorRun, run_path
from headscape.pruning.recovery import WINDOWS_A_STEP
from headscape.pruning.trial import RANDOM_DRAWS
from headscape.pruning.trial_result import CURVE_REPEATS
from headscape.study.analyze import LENGTH, QUICK_LENGTH, QUICK_WINDOWS, WINDOWS
from headscape.study.compare import STAGES as COMPARED_STAGES
from headscape.study.folder import KIND, NUMBER
from headscape.study.stages import chosen_stages, stage_options
from headscape.study.stages.cost import (
    BACKWARD,
    OPERATIONS,
    ORGANIZING,
    RESUMED,
    Size,
    ablation_seconds,
    parameters_of,
    size_of_data,
)
from headscape.study.study import Study
from headscape.tensor.store import Store

STARTING, WRITING = 4.0, 4.0
"""Loading the libraries; writing tables, figures and the report."""
STORING = 0.2
"""Writing the queries and keys of one window."""
PAIR = 15.0
"""Comparing two networks of a few hundred heads, once they are analyzed."""
CHECKING = 4.0
"""Checking one window, besides the forward passes."""
TIMED_PASSES = 30
"""Forward passes, with the tokens that are decoded, that time a model before and after pruning."""
REPAIR_PASSES, SEARCHED = 9, 7
"""Passes over the calibration windows that choose and fit a repair; sizes that a search tries."""
ROWS, MEASURED = 2, 3.0
"""Windows that a checkpoint is measured on; its forward pass with the measures, in plain forward passes."""
LOADED, BYTES_A_WEIGHT = 1e8, 4
"""Weights that are read from disk in a second; a run in training saves them in single precision."""
CONVERTED = 2.3e6
"""Bytes of a GGUF file that are converted in a second."""
HELD_OUT = 16
"""Windows that calibrate, and windows that evaluate, unless others are asked for."""


def analysis_seconds(
    source: Any,
    inputs: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    windows: int | None = None,
    length: int | None = None,
    quick: bool = False,
    stages: Iterable[str] | None = None,
    stack: str | None = None,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    **options: Any,
) -> float | None:
    """Return the expected seconds of :func:`headscape.analyze`, called in the same way; None if it cannot be known.

    What is finished in the folder is not counted.
    """
    size = size_of(
        source,
        inputs,
        windows=windows or (QUICK_WINDOWS if quick else None),
        length=length or (QUICK_LENGTH if quick else LENGTH),
        stack=stack,
        layers=layers,
        heads=heads,
    )
    if size is None:
        return None
    merged, finished = stage_options(options), () if out is None else _finished(out)
    total = WRITING + (STARTING if finished else capture_seconds(size))
    for stage in chosen_stages(stages):
        count = {"window": size.windows, "layer": size.layers, "model": 1}[stage.unit]
        done = sum(part.split("-")[0] == stage.name for part in finished)
        total += max(0, count - done) * stage.seconds(size, merged[stage.name])
    return total


def comparing_seconds(
    sources: Sequence[Any],
    inputs: Any,
    out: str | os.PathLike[str],
    layers_each: Sequence[Any] | None = None,
    **sizes: Any,
) -> float | None:
    """Return the expected seconds of :func:`headscape.compare`; None if those of one of the networks cannot be known.

    Networks that are studies are taken as they are; the others are analyzed with the stages that a comparison needs.
    """
    total = STARTING
    for number, source in enumerate(sources):
        if isinstance(source, Study):
            continue
        if layers_each is not None:
            sizes["layers"] = layers_each[number]
        begun = next(Path(out).glob(f"sources/{number + 1:02d}-*"), None)
        seconds = analysis_seconds(source, inputs, out=begun, stages=COMPARED_STAGES, **sizes)
        if seconds is None:
            return None
        total += seconds
    return total + PAIR * len(sources) * (len(sources) - 1) / 2


def seconds_of(cost: Callable[[Size], float], source: Any, inputs: Any, **sizes: Any) -> float | None:
    """Return what a command is expected to cost for a source, with sizes as for :func:`size_of`."""
    size = size_of(source, inputs, **sizes)
    return None if size is None else cost(size)


def capture_seconds(size: Size) -> float:
    """Return the expected seconds of a capture; a source that has its windows needs none but those to load it."""
    windows = size.windows * (size.forward + STORING * size.times(tokens=1)) if size.parameters else 0.0
    return STARTING + windows


def organizing_seconds(size: Size, n_iter: int) -> float:
    """Return the expected seconds of organizing one window, with its figures."""
    return capture_seconds(size) + ORGANIZING * size.times() * n_iter / 3 + WRITING


def ablating_seconds(
    size: Size,
    labels: Iterable[str],
    counts: Sequence[Any] | None,
    draws: int,
    *,
    calibration_windows: int | None,
) -> float:
    """Return the expected seconds of an ablation study that evaluates on the windows of ``size``."""
    numbers = len(SHARES) if counts is None else len(counts)
    calibrating = calibration_windows or HELD_OUT
    return STARTING + ablation_seconds(
        size, labels, numbers, draws, windows=size.windows, calibration=calibrating
    )


def pruning_seconds(
    size: Size,
    *,
    calibration_windows: int | None,
    written: bool,
    sizes: int = 0,
    recover: int = 0,
    searching: bool = False,
    plans: int = 0,
) -> float:
    """Return the expected seconds of a pruning trial, and of cutting and timing the model if it is written.

    ``sizes`` are compared of two kinds; a search for a size tries some, each with a cross-validated repair and as many
    ``plans`` as the method compares.
    """
    calibrating = calibration_windows or HELD_OUT
    passes = size.windows * (2 + RESUMED * (1 + RANDOM_DRAWS))
    passes += calibrating * (2 * BACKWARD + (1 + (SEARCHED if searching else 0)) * (REPAIR_PASSES + plans))
    passes += calibrating * RANDOM_DRAWS  # random heads are repaired too
    # A method with plans chooses the heads of every size in a pass of its own.
    passes += 2 * sizes * calibrating * (4 if plans else 3) + recover * WINDOWS_A_STEP * BACKWARD
    passes += (TIMED_PASSES * (1 + 2 * sizes * CURVE_REPEATS / 5)) if written else 0
    return STARTING + passes * size.forward


def checking_seconds(size: Size, references: int) -> float:
    """Return the expected seconds of a check, with as many references."""
    return STARTING + (1 + references) * size.windows * (2 * size.forward + CHECKING * size.times())


def replaying_seconds(
    checkpoints: Sequence[Checkpoint], out: str | os.PathLike[str], length: int
) -> float | None:
    """Return the expected seconds of :func:`headscape.monitor_checkpoints`; measured checkpoints cost nothing."""
    try:
        file = run_path(out)
        left = unmeasured(checkpoints, MonitorRun.load(file)) if file.exists() else checkpoints
    except HeadscapeError:
        return None  # the command itself says what is wrong
    # Only the weights' files are looked at, since loading a model takes as long as measuring it.
    weights = sum(_weights_in(point.path) for point in left)
    return STARTING + weights * (1 / LOADED + 2 * ROWS * length * MEASURED / OPERATIONS)


def _weights_in(folder: Path) -> float:
    """Return about how many weights a checkpoint has, from the size of its files."""
    files = [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]
    return sum(file.stat().st_size for file in files) / BYTES_A_WEIGHT


def converting_seconds(source: str) -> float | None:
    """Return the expected seconds of converting the GGUF file of a model on its first use; None if it has none."""
    try:
        path = packaged_weights(source) if source in PACKAGED else Path(source)
        if path.suffix.lower() != ".gguf" or not path.is_file() or folder_of_gguf(path).is_dir():
            return None
    except HeadscapeError:
        return None  # the command itself says what is wrong
    return path.stat().st_size / CONVERTED


def size_of(
    source: Any,
    inputs: Any = None,
    *,
    windows: int | None = None,
    length: int | None = None,
    stack: str | None = None,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    default_windows: int = WINDOWS,
) -> Size | None:
    """Return the sizes of a source with the heads that are asked for; None if it does not tell them."""
    try:
        if isinstance(source, Model):
            pairs = list(heads_of(of_stack(source.modules(), stack)))
            several = isinstance(inputs, Sized) and not isinstance(inputs, str)
            count = windows or (len(inputs) if several else default_windows)
            size = Size(1, 1, _tokens(source, length or LENGTH), count, parameters_of(source))
        else:
            data = (source.data if isinstance(source, Study) else source).select(stack)
            pairs, size = list(data.heads), size_of_data(data)
            size = replace(size, windows=min(size.windows, windows or size.windows))
    except HeadscapeError:
        return None  # the command itself says what is wrong
    wanted = None if heads is None else set(heads)
    kept = [p for p in pairs if (layers is None or p[0] in layers) and (wanted is None or p in wanted)]
    return replace(size, heads=max(1, len(kept)), layers=max(1, len({layer for layer, _ in kept})))


def _tokens(model: Model, length: int) -> int:
    """Return the tokens of a window; of a model of images, its patches."""
    config = config_of(model.model)
    image, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    return (image // patch) ** 2 + 1 if isinstance(image, int) and isinstance(patch, int) else length


def _finished(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the finished parts of a study; none if there is no study yet."""
    try:
        return Store.open(folder, KIND, NUMBER).parts()
    except HeadscapeError:
        return []
