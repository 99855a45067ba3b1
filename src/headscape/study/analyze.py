"""``analyze``: capture, organize, measure, and put everything into one table with a row per head."""

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import organize
from headscape.models.license import weights_license
from headscape.models.sample_text import sample_text
from headscape.study.folder import StudyFolder, organization_part
from headscape.study.stage import Material, Result, Stage
from headscape.study.stages import STAGES, chosen_stages
from headscape.study.study import Study
from headscape.study.weighted_progress import Steps
from headscape.tensor.capture import Capture

CAPTURE_COST, ORGANIZE_COST = 4.0, 12.0
QUICK = {"windows": 2, "length": 128, "n_iter": 2}


def analyze(
    model: Any = "default",
    inputs: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    windows: int | None = None,
    length: int | None = None,
    stages: Iterable[str] | None = None,
    quick: bool = False,
    field: str = "probs",
    k: float = 400,
    p: float = 1.0,
    lengths: Iterable[int] | None = None,
    stack: str | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    device: str | None = None,
    dtype: Any = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    command: str = "",
    progress: Progress = no_progress,
    **organize_options: Any,
) -> Study:
    """Map the heads of a model: capture, organize every window, measure, and sum up in one table.

    Parameters
    ----------
    model
        As for :func:`headscape.capture`, or a capture that is already there.
    inputs
        As for :func:`headscape.capture`; by default a text that every Python has.
    out
        Folder for the study. A run that was stopped goes on there when it is called again in the same way;
        without a folder everything stays in memory.
    windows, length
        How many windows and how many tokens each; by default 6 of 256 (2 of 128 if ``quick``), and all of a list
        or batch.
    stages
        Names of the stages to run, out of "entropy", "energy", "regularity", "interaction", "softmax" and
        "ablation"; by default all but the last two, which take minutes. "+softmax" adds a stage to the default
        ones. Stages that are finished in ``out`` are part of the study in any case.
    quick
        Fewer and shorter windows and one iteration less: a first look in a minute.
    field
        What is organized: "probs", "logits" or "energy".
    k, p
        Of the entropies, as in :func:`headscape.head_entropy`.
    lengths
        Numbers of keys for the energy measures; by default 64, 128, ... up to the window.
    stack
        Which stack of a model with several; by default the first.
    seed
        Of everything random (bootstrap, sampled constants).
    tokenizer, device, dtype, revision, trust_remote_code
        As for :func:`headscape.capture`.
    command
        How the analysis was asked for, for the report.
    progress
        Told what is being done and how far the whole analysis is.
    **organize_options
        Those of :func:`headscape.organize`.

    Returns
    -------
    Study

    Notes
    -----
    Every window is organized once; all stages use that organization. One window is in memory at a time.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 32, 8)), rng.normal(size=(2, 2, 32, 8)))
    >>> study = analyze(capture, stages=["entropy", "energy"])
    >>> study
    Study(model: 8 heads, 1 windows; stages: entropy, energy)
    >>> study.heads.index.names, len(study.heads)
    (FrozenList(['layer', 'head']), 8)
    """
    chosen = chosen_stages(stages)
    given = isinstance(model, Capture)
    if given and inputs is not None:
        raise InputError("a capture has its inputs already: leave inputs out, or give the model.")
    options = {"n_iter": QUICK["n_iter"] if quick else 3} | organize_options
    parameters: dict[str, Any] = {
        "model": "a capture" if given else _model_name(model),
        "windows": model.n_windows if given else windows or (QUICK["windows"] if quick else None),
        "length": None if given else length or (QUICK["length"] if quick else 256),
        "field": field,
        "k": k,
        "p": p,
        "lengths": None if lengths is None else sorted(int(n) for n in lengths),
        "stack": stack,
        "seed": seed,
        "organize": {name: v for name, v in options.items() if name not in ("engine", "progress")},
    }
    if not given and inputs is None:
        inputs = sample_text()
    about: dict[str, Any] = {
        "command": command or "hs.analyze(...)",
        "license": weights_license(model),
        "input_hash": model.provenance.get("input_hash", "") if given else _input_hash(inputs),
    }
    how = {"device": device, "dtype": dtype, "revision": revision, "trust_remote_code": trust_remote_code}
    with StudyFolder(out, parameters, about["input_hash"]) as folder:
        steps = Steps(progress)
        start = time.perf_counter()
        if given:
            capture = model if folder.capture_path is None else model.save(folder.capture_path)
            loaded = None
        else:
            capture, loaded = _captured(model, inputs, parameters, tokenizer, how, chosen, folder, steps)
        about["seconds"] = {"capture": time.perf_counter() - start}
        material = Material(
            capture.select(stack), parameters, loaded=loaded, inputs=inputs, folder=folder.path
        )
        # The stages run one task per core themselves: threads inside each of them would only wait for cores.
        with threadpool_limits(1, user_api="blas"):
            about["seconds"]["organize"] = _run(material, chosen, options, folder, steps)
        results = {stage.name: folder.results(stage, capture.n_windows) for stage in STAGES}
    study = Study(
        capture=material.capture,
        organizations=tuple(material.organizations),
        results={name: found for name, found in results.items() if found is not None},
        parameters=parameters,
        about=about,
    )
    if out is not None:
        study.save(out)
    return study


def _captured(
    model: Any,
    inputs: Any,
    parameters: Mapping[str, Any],
    tokenizer: Any,
    how: Mapping[str, Any],
    stages: tuple[Stage, ...],
    folder: StudyFolder,
    steps: Steps,
) -> tuple[Capture, Any]:
    """Load the model, capture its windows (finished ones not again), and return both."""
    from headscape.models.loading import Model, load_model
    from headscape.recorder.capturing import capture as capture_model
    from headscape.recorder.inputs import DEFAULT_WINDOWS

    expected = parameters["windows"] or DEFAULT_WINDOWS
    cost = CAPTURE_COST * expected
    # What is finished already is known only with the capture: until then the display expects everything.
    steps.plan(cost + expected * (ORGANIZE_COST + sum(stage.cost for stage in stages)))
    with steps.step("loading the model", 0.3 * cost):
        if isinstance(model, (str, os.PathLike)):
            known = {name: value for name, value in how.items() if value is not None}
            loaded = load_model(model, **known)
        else:
            loaded = model if isinstance(model, Model) else Model(model, tokenizer, _model_name(model))
        if tokenizer is not None:
            loaded = dataclasses.replace(loaded, tokenizer=tokenizer)
    with steps.step("capturing", 0.7 * cost) as tell:
        found = capture_model(
            loaded,
            inputs,
            tokenizer=tokenizer,
            windows=parameters["windows"],
            length=parameters["length"],
            path=folder.capture_path,
            progress=tell,
        )
    return found, loaded


def _run(
    material: Material,
    stages: tuple[Stage, ...],
    options: Mapping[str, Any],
    folder: StudyFolder,
    steps: Steps,
) -> float:
    """Organize and measure window by window, leaving out what is finished; return the time for organizing."""
    n = material.capture.n_windows
    todo = [(s, w) for s in stages for w in range(n if s.per_window else 1) if not folder.has(s.part(w))]
    to_organize = [w for w in range(n) if not folder.has(organization_part(w))]
    steps.plan(sum(stage.cost for stage, _ in todo) + ORGANIZE_COST * len(to_organize))
    spent = 0.0
    for window in range(n):
        of = f"window {window + 1} of {n}"
        found = folder.organization(window)
        if found is None:
            with steps.step(f"organizing {of}", ORGANIZE_COST) as tell:
                start = time.perf_counter()
                x = material.tensor(window, material.parameters["field"])
                found = organize(x, **{**options, "progress": tell})
                folder.write_organization(window, found, time.perf_counter() - start)
        spent += folder.read(organization_part(window)).attributes["seconds"]
        material.organizations.append(found)
        for stage in (s for s, w in todo if w == window and s.per_window):
            _measure(stage, material, window, f"{stage.doing}, {of}", folder, steps)
    for stage in (s for s, _ in todo if not s.per_window):
        _measure(stage, material, 0, stage.doing, folder, steps)
    return spent


def _measure(
    stage: Stage, material: Material, window: int, text: str, folder: StudyFolder, steps: Steps
) -> None:
    """Run a stage on a window and finish its part."""
    with steps.step(text, stage.cost) as tell:
        material.progress = tell
        start = time.perf_counter()
        result = stage.run(material, window)
        seconds = time.perf_counter() - start
        folder.write(stage.part(window), Result(result.arrays, {**result.attributes, "seconds": seconds}))


def _model_name(model: Any) -> str:
    if isinstance(model, (str, os.PathLike)):
        return str(model)
    name = getattr(model, "name", None) or getattr(getattr(model, "config", None), "_name_or_path", "")
    return str(name or type(model).__name__)


def _input_hash(inputs: Any) -> str:
    """Return a hash of texts and files; of other inputs the capture keeps the hash, so here it is empty."""
    digest = hashlib.blake2b(digest_size=16)
    readers: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
        (Path, lambda path: path.read_bytes() if path.is_file() else str(path).encode()),
        (str, lambda text: text.encode()),
    )
    for item in inputs if isinstance(inputs, (list, tuple)) else [inputs]:
        reader = next((read for kind, read in readers if isinstance(item, kind)), None)
        if reader is None:
            return ""
        digest.update(reader(item))
    return digest.hexdigest()
