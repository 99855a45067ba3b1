"""``analyze``: capture, organize, measure, and put everything into one table with a row per head."""

import os
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headscape.engine import Engine, Progress, no_progress
from headscape.engine.blas import one_blas_thread
from headscape.errors import InputError
from headscape.models.anatomy import of_stack
from headscape.models.loading import Model
from headscape.models.plain_facts import is_plain
from headscape.models.sample_text import sample_text
from headscape.recorder.capturing import capture_windows, input_hash
from headscape.recorder.inputs import InputReader
from headscape.study.engines import AnyEngine, open_engine
from headscape.study.folder import CAPTURE, StudyFolder, limited, save_data
from headscape.study.source import Source, open_source
from headscape.study.stage_run import StageRun
from headscape.study.stages import chosen_stages, stage_options
from headscape.study.stages.context import Context, Data
from headscape.study.stages.stage import require_one_of
from headscape.study.study import Study
from headscape.study.weighted_progress import WeightedProgress
from headscape.tensor.capture import Capture
from headscape.tensor.checks import MAX_LENGTH, MAX_SEED, MAX_WINDOWS, require_integer
from headscape.tensor.network_tensor import WITHOUT_SINKS
from headscape.tensor.tensor_windows import TensorWindows

CAPTURE_COST = 1.0
"""Expected seconds of a window, as long as the sizes are not known."""
WINDOWS, LENGTH = 6, 256
QUICK_WINDOWS, QUICK_LENGTH = 2, 128


def analyze(
    source: Any = "default",
    inputs: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    windows: int | None = None,
    length: int | None = None,
    sample: str = "spread",
    stages: Iterable[str] | None = None,
    quick: bool = False,
    field: str | None = None,
    sinks: str = "keep",
    stack: str | None = None,
    layers: Collection[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    command: str = "",
    engine: AnyEngine = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Study:
    """Map the heads of a model: capture, organize every window, measure, and sum up in one table.

    Parameters
    ----------
    source
        A model (name, folder, .gguf file, pruned model, or a loaded one), a capture, a study, or tensors: whatever
        :func:`headscape.open_source` opens. A study gives its windows, and its trees where they fit; with its own
        folder as ``out``, stages are added to it.
    inputs
        What a model is shown, as for :func:`headscape.capture`; by default sample text bundled with Python.
    out
        Folder for the study. An interrupted run resumes there when it is called again in the same way; without a
        folder everything stays in memory.
    windows, length, sample
        How many windows, how many tokens each, and where in the text they lie; by default 6 of 256 (2 of 128 if
        ``quick``) spread evenly over the text, and all of a list or batch. Of a capture, a study or tensors, the first
        ``windows``.
    stages
        Names of the stages to run, out of "geometry", "patterns", "folders", "sinks", "entropy", "first_test",
        "energy", "regularity", "interaction", "softmax" and "ablation"; by default all but the last two, which take
        minutes.
        "+softmax" adds a stage to the default ones. What a stage needs runs too, and stages that are finished in
        ``out`` are part of the study.
    quick
        Fewer and shorter windows: a first look in a minute.
    field
        What is organized: "probs" (the default), "logits", "energy" or "probs_without_sinks"; tensors are what they
        are.
    sinks
        "keep" (the default), or "leave out": probabilities are organized without the keys that are attention sinks
        and their own queries, as the field "probs_without_sinks" has them (:mod:`headscape.tensor.sinks`). In either
        case the stage "sinks" says which keys are sinks.
    stack
        Which stack of a model with several; by default the first.
    layers, heads
        Only these layers, or these (layer, head) pairs.
    seed
        Of everything random (sampled windows, bootstrap, shuffles).
    tokenizer
        For a loaded model that is shown text.
    command
        The command line that the report shows.
    engine, progress
        How work is spread: "local" (one thread a core, the default), "dask" (a cluster that is started on this
        machine), or what :func:`headscape.open_engine` makes and takes; progress callback.
    **options
        Those of :func:`headscape.organize` (``n_iter``, ``alpha``, ...) and of the stages: ``noise`` and
        ``repetitions`` (folders), ``k``, ``p``, ``fields`` and ``sensitivity`` (entropy), ``lengths`` and
        ``signatures`` (energy), ``softmax_windows``, ``softmax_n_iter``, ``masked``, ``causal`` and ``draws``
        (softmax), ``methods`` (ablation), ``picture_windows`` (windows whose attention the report shows; each adds
        about 6 MB for 270 heads of 256 tokens).

    Returns
    -------
    Study

    Notes
    -----
    Every window is organized once; all stages use that organization. One window per
    thread is in memory at a time, fewer if they would take more than half of it.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(2, 4, 32, 8)), rng.normal(size=(2, 2, 32, 8)))
    >>> study = analyze(capture, stages=["entropy", "energy"])
    >>> study
    Study(model: 8 heads, 1 window; stages: pictures, geometry, folders, entropy, energy)
    >>> study.heads.index.names, len(study.heads)
    (FrozenList(['layer', 'head']), 8)
    """
    chosen = chosen_stages(stages)
    asked = frozenset(name.strip() for name in stages or ())
    merged = stage_options(options)
    _check_counts(windows, length, seed)
    require_one_of(sinks, "sinks", ("keep", "leave out"))
    told = WeightedProgress(progress)
    start = time.perf_counter()
    expected = windows or (QUICK_WINDOWS if quick else WINDOWS)
    told.plan(
        CAPTURE_COST * expected
        + sum(max(0.1, s.cost) * (expected if s.unit == "window" else 1) for s in chosen)
    )
    with told.step("opening the source", 0.3 * CAPTURE_COST * expected):
        opened = open_source(source, tokenizer=tokenizer, field=field)
    if isinstance(opened, Model):
        if stack is not None and not is_plain(opened.model):
            of_stack(opened.modules(), stack)  # raises before anything is captured
    else:
        _require_no_inputs(inputs, length, sample)
        _require_windows(_data(opened), windows)
    parameters: dict[str, Any] = {
        "model": opened.name if isinstance(opened, Model) else "given data",
        "windows": windows or (QUICK_WINDOWS if quick else None),
        "length": length or (QUICK_LENGTH if quick else LENGTH),
        "sample": sample,
        "field": _field(opened, field, sinks),
        "stack": stack,
        "heads": None if heads is None else sorted([int(layer), int(head)] for layer, head in heads),
        "layers": None if layers is None else sorted(map(int, layers)),
        "seed": seed,
    }
    if not isinstance(opened, Model):
        n = _data(opened).n_windows
        parameters |= {"windows": min(n, parameters["windows"] or n), "length": None, "sample": None}
    resumed = isinstance(opened, Study) and out is not None and opened.is_in(out)
    if isinstance(opened, Study) and resumed:
        parameters = _own_parameters(opened, parameters, windows)
    windows_of = _ModelWindows(opened, inputs, parameters) if isinstance(opened, Model) else None
    about: dict[str, Any] = {
        "command": command or "hs.analyze(...)",
        "license": opened.license if isinstance(opened, Model) else "not stated",
        "input_hash": _hash(opened) if windows_of is None else windows_of.hash,
    }
    with StudyFolder(out, parameters, about["input_hash"]) as folder, open_engine(engine) as spread:
        for stage in chosen:
            folder.require_same_options(stage, merged[stage.name])
        with told.step("capturing", 0.7 * CAPTURE_COST * expected) as tell:
            data = _data(opened) if windows_of is None else windows_of.captured(folder, spread, tell)
            if folder.path is not None and windows_of is None and not resumed:
                data = save_data(data, folder.path)
            data = limited(data, parameters)
        about["seconds"] = {"capture": time.perf_counter() - start}
        context = Context(
            data,
            parameters,
            merged,
            model=opened if isinstance(opened, Model) else None,
            inputs=None if windows_of is None else windows_of.inputs,
            arguments=() if windows_of is None else tuple(w.arguments for w in windows_of.windows),
            folder=folder.path,
            engine=spread,
        )
        if isinstance(opened, Study):
            _reuse_geometry(opened, folder, context)
        # Heads are small matrices and the engine's threads work on several at once: BLAS must not add threads.
        with one_blas_thread():
            results = StageRun(context, chosen, folder, told, asked).all()
    study = Study(context.data, results, parameters, about)
    if out is not None:
        study.save(out)
    return study


class _ModelWindows:
    """The windows of a model's input: read before anything is computed, captured once."""

    def __init__(self, model: Model, inputs: Any, parameters: Mapping[str, Any]) -> None:
        self.model, self.parameters = model, parameters
        self.inputs = sample_text() if inputs is None else inputs
        names = ("length", "windows", "sample", "seed")
        reader = InputReader(model.model, model.tokenizer, **{name: parameters[name] for name in names})
        self.windows = reader.read(self.inputs)
        if is_plain(model.model):  # no probe fits every module, but its own input does
            of_stack(model.modules(self.windows[0].arguments), parameters["stack"])

    @property
    def hash(self) -> str:
        """A hash of everything the model is given."""
        return input_hash(self.windows)

    def captured(self, folder: StudyFolder, engine: Engine, progress: Progress) -> Capture:
        """Return the capture; finished windows are read."""
        path = None if folder.path is None else folder.path / CAPTURE
        how = {name: self.parameters[name] for name in ("layers", "length", "sample", "seed")}
        return capture_windows(self.model, self.windows, **how, path=path, engine=engine, progress=progress)


def _check_counts(windows: int | None, length: int | None, seed: int) -> None:
    """Raise, before anything is loaded, unless all counts are within their bounds."""
    for name, value, most in (("windows", windows, MAX_WINDOWS), ("length", length, MAX_LENGTH)):
        if value is not None:
            require_integer(value, name, 1, most)
    require_integer(seed, "seed", 0, MAX_SEED)


def _require_windows(data: Data, windows: int | None) -> None:
    """Raise if more windows are asked for than there are."""
    if windows is not None and windows > data.n_windows:
        raise InputError(f"expected {windows} windows, but the source has only {data.n_windows}.")


def _own_parameters(study: Study, asked: Mapping[str, Any], windows: int | None) -> dict[str, Any]:
    """Return the parameters of a study that gets further stages, or raise if other windows or heads are asked for."""
    own = dict(study.parameters)
    names = ("field", "stack", "heads", "layers", *(["windows"] if windows is not None else []))
    changed = [name for name in names if asked[name] is not None and asked[name] != own[name]]
    if changed:
        raise InputError(
            f"{study.folder} was started with {changed[0]}={own[changed[0]]!r}, now {asked[changed[0]]!r}: a study "
            "that gets further stages keeps its windows and heads. Use another folder."
        )
    return own


def _require_no_inputs(inputs: Any, length: int | None, sample: str) -> None:
    """Raise if a source that has its windows already is given some, or told how to cut them."""
    if inputs is not None or length is not None or sample != "spread":
        raise InputError(
            "inputs, length and sample are for models: a capture, a study or a tensor has its windows already."
        )


def _data(source: Source) -> Data:
    """Return the windows of a source that has some."""
    assert not isinstance(source, Model)  # a model has to be captured
    return source.data if isinstance(source, Study) else source


def _field(source: Source, field: str | None, sinks: str) -> str:
    """Return the field that is organized, or raise if the source does not have it."""
    own = source.parameters["field"] if isinstance(source, Study) else getattr(source, "field", "probs")
    chosen = str(field or own)
    if sinks == "leave out":
        if chosen not in ("probs", WITHOUT_SINKS):
            raise InputError(
                f"sinks='leave out' is for probabilities, but the field is {chosen!r}. Leave out field, or name it "
                "field='probs' if the tensors hold probabilities."
            )
        chosen = WITHOUT_SINKS
    data = None if isinstance(source, Model) else _data(source)
    had = isinstance(data, TensorWindows) and data.field
    if had and chosen != had and (had, chosen) != ("probs", WITHOUT_SINKS):
        raise InputError(
            f"the tensors hold {had!r}, but field={chosen!r} was asked for: pass a capture or a model."
        )
    return chosen


def _hash(source: Source) -> str:
    if isinstance(source, Study):
        return str(source.about["input_hash"])
    data = _data(source)
    return str(data.provenance.get("input_hash", "")) if isinstance(data, Capture) else data.input_hash


def _reuse_geometry(study: Study, folder: StudyFolder, context: Context) -> None:
    """Take over the trees of a study whose windows, field and options are the same."""
    same = (
        study.data.heads == context.data.heads
        and study.parameters["field"] == context.parameters["field"]
        and study.options["geometry"] == context.options["geometry"]
    )
    for window, result in enumerate(study.results.get("geometry", ()) if same else ()):
        folder.write(f"geometry-window-{window:05d}", result)
