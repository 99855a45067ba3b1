"""``reproduce``: run experiments of the papers, finished one by one, and set each claim beside what was found."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from headscape.engine import Engine, Progress, no_progress
from headscape.errors import FileFormatError, InputError
from headscape.output import counted, json_ready
from headscape.report.reproduction_page import ReproducedClaim, write_reproduction_page
from headscape.study.reproduction.experiment import Evidence, Experiment, Verdict
from headscape.study.reproduction.experiments import chosen_experiments
from headscape.study.reproduction.networks import QUICK, Choice, Networks, Sizes
from headscape.study.reproduction.work_times import WorkTimes
from headscape.study.stages.result import Result
from headscape.tensor.store import Store, content_hash, explain_write_errors, write_text_atomically

KIND = "reproduction"
_PART = "experiment-"


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was found for the claims of the papers: evidence by the name of the experiment.

    Attributes
    ----------
    evidence
        :class:`Evidence` by experiment: ``observations`` (network, data, found, verdict), ``tables``, ``pictures``.
    experiments
        The experiments that were run, with their claims.
    parameters
        Networks, sizes and seed.
    times
        ``seconds`` and ``cpu_seconds`` of every experiment by itself ("experiment NAME"), and of what they share.
    """

    evidence: Mapping[str, Evidence]
    experiments: tuple[Experiment, ...]
    parameters: Mapping[str, Any]
    times: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return everything but pictures as plain values, one entry per experiment."""
        rows = [
            one.describe()
            | {
                "verdict": self.evidence[one.name].verdict.value,
                "observations": [asdict(found) for found in self.evidence[one.name].observations],
            }
            for one in self.experiments
        ]
        return {"parameters": dict(self.parameters), "times": dict(self.times), "experiments": rows}

    @property
    def headline(self) -> str:
        """One sentence: how many claims hold here."""
        verdicts = [found.verdict for found in self.evidence.values()]
        counts = {verdict: verdicts.count(verdict) for verdict in Verdict}
        words = ", ".join(f"{verdict.value} ({count})" for verdict, count in counts.items() if count)
        return (
            f"Verdicts on {counted(len(verdicts), 'claim')} of the papers, on the networks at hand: {words}."
        )

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the page that sets each claim beside what was found; one HTML file that works offline."""
        claims = [
            ReproducedClaim(
                **{
                    name: one.describe()[name]
                    for name in ("name", "paper", "place", "title", "claim", "measure", "remark")
                },
                verdict=self.evidence[one.name].verdict.value,
                observations=[asdict(found) for found in self.evidence[one.name].observations],
                tables=self.evidence[one.name].tables,
                pictures=self.evidence[one.name].pictures,
            )
            for one in self.experiments
        ]
        return write_reproduction_page(Path(path), self.headline, claims, self.parameters)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what is finished in a folder."""
        store = Store.open(path, KIND)
        return cls._of(store, [name.removeprefix(_PART) for name in store.parts() if name.startswith(_PART)])

    @classmethod
    def _of(cls, store: Store, names: Iterable[str]) -> Self:
        finished = [name for name in names if store.has(_PART + name)]
        if not finished:
            raise FileFormatError(
                f"{store.path} has no finished experiment yet: run headscape reproduce again."
            )
        evidence = {name: Evidence.from_result(Result.read(store.read(_PART + name))) for name in finished}
        times = WorkTimes(store.path / "times.json").read()
        return cls(evidence, chosen_experiments(finished), store.header["parameters"], times)


def reproduce(
    names: str | Iterable[str] = "all",
    out: str | os.PathLike[str] = "out/reproduction",
    *,
    quick: bool = False,
    language: str = "default",
    encoder: str = "minilm",
    transformer_xl: str | os.PathLike[str] | None = None,
    vision: str | os.PathLike[str] | None = None,
    models: Iterable[str | os.PathLike[str]] = (),
    texts: Iterable[str | os.PathLike[str]] = (),
    images: str | os.PathLike[str] | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> Reproduction:
    """Run experiments of arXiv 2506.15541 and arXiv 2605.02907 on networks that are at hand.

    Parameters
    ----------
    names
        Experiments by name (``headscape reproduce --list``), or "all".
    out
        Folder: finished experiments and networks are kept there, and an interrupted run resumes.
    quick
        A trial at small sizes: what it finds says nothing about the papers.
    language, encoder
        The language model and the encoder, as :func:`headscape.load_model` takes them.
    transformer_xl
        Folder of a Transformer-XL, such as the published checkpoint; by default one of the paper's size (16 layers of 8
        heads) is trained for a few steps on the texts.
    vision
        A trained image model, beside the ViT-B/16 with random weights that serves as a control.
    models
        More models for figure 2 of arXiv 2605.02907, by name or folder; "paper" for its 16 models by hub name.
    texts, images
        Text files (default: sample text bundled with Python); image file or folder (default: drawn shapes).
    seed
        Of windows, heads, weights and draws.
    engine, progress
        Where the work is done, and the progress callback.

    Returns
    -------
    Reproduction
    """
    wanted = chosen_experiments([names] if isinstance(names, str) else names)
    files = tuple(os.fspath(text) for text in texts)
    missing = [file for file in files if not Path(file).is_file()]
    if missing:
        raise InputError(f"texts must be text files, but {missing[0]} is not a file.")
    choice = Choice(
        language,
        encoder,
        None if transformer_xl is None else os.fspath(transformer_xl),
        None if vision is None else os.fspath(vision),
        tuple(os.fspath(model) for model in models),
        files,
        None if images is None else os.fspath(images),
    )
    sizes = QUICK if quick else Sizes()
    parameters = {**asdict(choice), **asdict(sizes), "quick": quick}
    with Store.create(out, KIND, parameters=parameters, input_hash=_hash(files), seed=seed) as store:
        networks = Networks(store, choice, sizes, seed, engine, progress)
        for done, one in enumerate(wanted):
            if store.has(_PART + one.name):
                continue
            progress(f"{one.name}: {one.title}", done, len(wanted))
            with networks.times.timed(f"experiment {one.name}"), store.writing(_PART + one.name) as part:
                one.run(networks).to_result().write(part)
        result = Reproduction._of(store, [one.name for one in wanted])
        _write_files(result, store.path)
    return result


def _hash(files: Iterable[str]) -> str:
    """Return a hash of the texts."""
    return content_hash(*(np.fromfile(file, np.uint8) for file in files))


def _write_files(result: Reproduction, folder: Path) -> None:
    """Write summary.json, and tables and pictures of every experiment into a folder of its own."""
    with explain_write_errors(folder):
        for name, found in result.evidence.items():
            own = folder / name
            own.mkdir(exist_ok=True)
            for title, table in found.tables.items():
                table.to_csv(own / f"{_file_name(title)}.csv", index=False)
            for title, data in found.pictures.items():
                (own / f"{_file_name(title)}.png").write_bytes(data)
    write_text_atomically(folder / "summary.json", json.dumps(json_ready(result.summary()), indent=2) + "\n")


def _file_name(title: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title)
