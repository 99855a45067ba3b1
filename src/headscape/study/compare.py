"""``compare``: how far networks are apart, which heads belong together, what changed, and what is only noise."""

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from headscape.analysis.comparison.gromov_wasserstein import require_pot
from headscape.analysis.comparison.window_test import LEVEL
from headscape.engine import Engine, Progress, no_progress
from headscape.errors import InputError
from headscape.models.loading import Model
from headscape.models.sample_text import sample_text
from headscape.recorder.inputs import InputReader, WindowInput
from headscape.study.analyze import analyze
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.comparison import (
    Comparison,
    comparison_store,
    pair_part,
    source_part,
    write_part,
)
from headscape.study.engines import AnyEngine, open_engine
from headscape.study.pair_comparison import Opened, PairComparison
from headscape.study.source import Source, open_source
from headscape.study.source_words import about_source, original_heads, source_hash, source_names
from headscape.study.stages.result import Result
from headscape.study.study import Study
from headscape.study.weighted_progress import WeightedProgress
from headscape.tensor.checks import require_number
from headscape.tensor.tensor_windows import TensorWindows

STAGES = ("patterns", "entropy", "energy")
SOURCE_COST, PAIR_COST = 10.0, 3.0


def compare(
    sources: Sequence[Any],
    inputs: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    names: Sequence[str] | None = None,
    inputs_each: Sequence[Any] | None = None,
    layers: Collection[int] | None = None,
    layers_each: Sequence[Collection[int] | None] | None = None,
    windows: int | None = None,
    length: int | None = None,
    sample: str = "spread",
    field: str | None = None,
    stack: str | None = None,
    paired: bool | None = None,
    level: float = LEVEL,
    seed: int = 0,
    tokenizer: Any = None,
    command: str = "",
    engine: AnyEngine = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Comparison:
    """Compare networks: how far apart they are, which heads belong together, what changed, and what is only noise.

    Parameters
    ----------
    sources
        Two or more models, captures, studies or tensors: whatever :func:`headscape.open_source` opens. The same model
        twice compares two texts (``inputs_each``) or two ranges of layers (``layers_each``).
    inputs
        What all models are shown, as for :func:`headscape.analyze`; by default sample text bundled with Python.
    out
        Folder for the comparison and the studies of its sources. An interrupted run resumes there; without a folder
        everything stays in memory. Studies that have the stages "patterns", "entropy" and "energy" are taken as they
        are.
    names
        What the networks are called; by default after their models and files.
    inputs_each
        An input for every source, in place of ``inputs``; None for sources that have their windows already.
    layers, layers_each
        Only these layers, of all sources or of each.
    windows, length, sample, field, stack, seed, tokenizer
        As for :func:`headscape.analyze`; ``windows`` counts per source. The noise needs several windows: 5 or more
        of each network.
    paired
        Whether both networks saw the same windows. By default that is seen from their tokens; True demands it (and
        takes windows without tokens, such as those of tensors, one by one), False treats the windows as different ones.
    level
        How often a network may seem to differ from itself on other windows of the same text, over all measures, layers
        and heads together.
    command
        The command line that the report shows.
    engine, progress
        How work is spread, by default one thread a core; progress callback.
    **options
        Of the analyses, as for :func:`headscape.analyze`.

    Returns
    -------
    Comparison

    Notes
    -----
    Needs POT: ``pip install 'headscape[compare]'``. Every source is analyzed once; a pair of networks with 270 heads
    then takes seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from headscape.tensor.capture import Capture
    >>> q, k = np.random.default_rng(0).normal(size=(2, 6, 2, 3, 16, 4))
    >>> capture = Capture.from_arrays(q, k, tokens=[f"token{i}" for i in range(16)])
    >>> found = compare([capture, capture], names=["before", "after"])
    >>> float(found.distances.loc["before", "after"]), set(found.changes["verdict"])
    (0.0, {'identical'})
    """
    require_pot()
    require_number(level, "level", 0.0001, 0.5)
    given = _given(sources, inputs, inputs_each, layers, layers_each)
    told = WeightedProgress(progress)
    n_pairs = len(given) * (len(given) - 1) // 2
    told.plan(SOURCE_COST * len(given) + PAIR_COST * n_pairs)
    start = time.perf_counter()
    opened = [open_source(source, tokenizer=tokenizer, field=field) for source, _, _ in given]
    called = source_names(opened, names, [(of, limit) for _, of, limit in given])
    _require_models(opened, called, inputs, inputs_each, length)
    parameters: dict[str, Any] = {
        "names": list(called),
        "hashes": [source_hash(source) for source in opened],
        "windows": windows,
        "length": length,
        "sample": sample,
        "field": field,
        "stack": stack,
        "layers": [None if limit is None else sorted(map(int, limit)) for _, _, limit in given],
        "paired": paired,
        "level": level,
        "seed": seed,
        "options": {name: options[name] for name in sorted(options)},
    }
    shared = {
        "windows": windows,
        "length": length,
        "sample": sample,
        "field": field,
        "stack": stack,
        "seed": seed,
    }
    folder = None if out is None else Path(out)
    with open_engine(engine) as spread, _Run(folder, parameters, shared, options, spread, told) as run:
        networks = [
            run.source(i, source, of, limit)
            for i, (source, (_, of, limit)) in enumerate(zip(opened, given, strict=True))
        ]
        _require_same_field(networks)
        pairs = [run.pair(networks, i, j) for i in range(len(networks)) for j in range(i + 1, len(networks))]
    about = {"command": command or "hs.compare(...)", "seconds": round(time.perf_counter() - start, 2)}
    comparison = Comparison(tuple(one.source for one in networks), tuple(pairs), parameters, about)
    if out is not None:
        comparison.save(out)
    return comparison


class _Run:
    """Analyzes the sources and compares the pairs of one comparison, leaving out what is finished in its folder."""

    def __init__(
        self,
        folder: Path | None,
        parameters: Mapping[str, Any],
        shared: Mapping[str, Any],
        options: Mapping[str, Any],
        engine: Engine,
        told: WeightedProgress,
    ) -> None:
        self.folder, self.parameters, self.shared, self.options = folder, parameters, shared, options
        self.engine, self.told = engine, told
        self.store = None if folder is None else comparison_store(folder, parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.store is not None:
            self.store.__exit__(None, None, None)

    def source(self, number: int, source: Source, inputs: Any, layers: Collection[int] | None) -> Opened:
        """Return a network with its study; a study that has what is needed is taken as it is."""
        name = self.parameters["names"][number]
        with self.told.step(f"analyzing {name}", SOURCE_COST) as tell:
            study = self._study(number, source, inputs, layers, tell)
            part = source_part(number)
            if self.store is not None and self.store.has(part):
                found = ComparedSource.from_result(Result.read(self.store.read(part)))
            else:
                about = about_source(source, study)
                found = ComparedSource.of_study(name, study, about, original_heads(study, about))
                if self.store is not None:
                    write_part(self.store, part, found.to_result())
        if not isinstance(source, Model):
            return Opened(found, study)
        return Opened(found, study, source, _windows(source, inputs, study))

    def _study(
        self, number: int, source: Source, inputs: Any, layers: Collection[int] | None, tell: Progress
    ) -> Study:
        shared = dict(self.shared)
        if not isinstance(source, Model):
            shared |= {"length": None, "sample": "spread"}
        if isinstance(source, Study) and layers is None and _is_enough(source, shared, self.options):
            return source
        data = source.data if isinstance(source, Study) else source
        stages = list(STAGES)
        if isinstance(data, TensorWindows):
            stages = ["patterns", "entropy"] if data.field == "probs" else ["entropy"]
        place = re.sub(r"[^A-Za-z0-9._-]+", "-", self.parameters["names"][number]).strip("-.")[:60]
        out = None if self.folder is None else self.folder / "sources" / f"{number + 1:02d}-{place}"
        return analyze(
            source,
            inputs if isinstance(source, Model) else None,
            out=out,
            stages=stages,
            layers=layers,
            engine=self.engine,
            progress=tell,
            **shared,
            **self.options,
        )

    def pair(self, networks: Sequence[Opened], a: int, b: int) -> ComparedPair:
        """Compare two networks."""
        part = pair_part(a, b)
        names = [networks[i].source.name for i in (a, b)]
        with self.told.step(f"comparing {names[0]} with {names[1]}", PAIR_COST) as tell:
            if self.store is not None and self.store.has(part):
                return ComparedPair.from_result(Result.read(self.store.read(part)))
            found = PairComparison(
                networks[a],
                networks[b],
                (a, b),
                self.parameters["level"],
                self.parameters["paired"],
                self.parameters["seed"],
                self.engine,
                tell,
            ).run()
            if self.store is not None:
                write_part(self.store, part, found.to_result())
        return found


def _given(
    sources: Sequence[Any],
    inputs: Any,
    inputs_each: Sequence[Any] | None,
    layers: Collection[int] | None,
    layers_each: Sequence[Collection[int] | None] | None,
) -> list[tuple[Any, Any, Collection[int] | None]]:
    """Return every source with its input and its layers, or raise unless there are two sources and as many of each."""
    if isinstance(sources, str | os.PathLike) or not isinstance(sources, Sequence):
        raise InputError("compare takes a list of sources, such as [model, other_model].")
    n = len(sources)
    if n < 2:
        raise InputError(f"compare needs at least two sources, but got {n}.")
    each: dict[str, Sequence[Any]] = {}
    for name, one, many in (("inputs", inputs, inputs_each), ("layers", layers, layers_each)):
        if one is not None and many is not None:
            raise InputError(f"specify either {name} or {name}_each, not both.")
        if many is not None and len(many) != n:
            raise InputError(f"{name}_each must have one entry per source ({n}), but has {len(many)}.")
        each[name] = [one] * n if many is None else many
    return list(zip(sources, each["inputs"], each["layers"], strict=True))


def _require_models(
    opened: Sequence[Source],
    names: Sequence[str],
    inputs: Any,
    inputs_each: Sequence[Any] | None,
    length: int | None,
) -> None:
    """Raise if something is said about windows that no model reads: other sources have theirs already."""
    models = [isinstance(source, Model) for source in opened]
    said = [name for name, value in (("inputs", inputs), ("length", length)) if value is not None]
    if said and not any(models):
        raise InputError(f"{said[0]} is for models, but every source has its windows already: leave it out.")
    for name, is_model, of in zip(names, models, inputs_each or (), strict=False):
        if of is not None and not is_model:
            raise InputError(f"inputs_each must be None for {name}, which has its windows already.")


def _is_enough(study: Study, asked: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Tell whether a study has all that is compared, of the windows and heads that are asked for."""
    held = isinstance(study.data, TensorWindows)
    wanted = ("entropy", "folders") if held else (*STAGES, "folders")
    same = all(asked[name] in (None, study.parameters[name]) for name in ("windows", "field", "stack"))
    return all(name in study for name in wanted) and same and not options


def _windows(model: Model, inputs: Any, study: Study) -> list[WindowInput]:
    """Return the windows that a model was shown, as the arguments of its forward passes."""
    names = ("length", "windows", "sample", "seed")
    reader = InputReader(model.model, model.tokenizer, **{name: study.parameters[name] for name in names})
    return list(reader.read(sample_text() if inputs is None else inputs))


def _require_same_field(networks: Sequence[Opened]) -> None:
    fields = {one.source.name: str(one.source.about["field"]) for one in networks}
    if len(set(fields.values())) > 1:
        listed = ", ".join(f"{name} holds {field}" for name, field in fields.items())
        raise InputError(
            f"networks are compared in the same field, but {listed}: pass field=, or analyze them in the same field."
        )
