"""``headscape entropy``: Haar entropies of the heads over windows, and what they are worth."""

import json as json_module
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.options import Json, Quiet
from headscape.errors import InputError

SYNTHETIC = "synthetic"


class TreesChoice(StrEnum):
    """Where the trees come from."""

    per_window = "per_window"
    shared = "shared"


@dataclass(frozen=True)
class TensorFiles(Sequence[Any]):
    """Tensors on disk, one per window, each loaded when it is asked for."""

    paths: Sequence[str]
    array: str | None
    axes: str | None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        from headscape.tensor.files import load_tensor

        return load_tensor(self.paths[index], array=self.array, axes=self.axes)


def entropy(
    tensors: Annotated[
        list[str],
        typer.Argument(
            help="A capture, or one tensor per window (.npy, .npz, .safetensors, zarr), or the word 'synthetic'."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for results and pictures.")],
    array: Annotated[str | None, typer.Option(help="Which array, if a file holds several.")] = None,
    axes: Annotated[
        str | None, typer.Option(help="Order of the axes in the files, for example 'layer,head,query,key'.")
    ] = None,
    field: Annotated[str, typer.Option(help="Field of a capture: probs, logits or energy.")] = "probs",
    fields: Annotated[
        str, typer.Option(help="Other fields of a capture to compare with, for example 'logits,energy'.")
    ] = "",
    stack: Annotated[
        str | None,
        typer.Option(
            help="Which attention of a capture: self, encoder, decoder, cross. (default: the first)"
        ),
    ] = None,
    k: Annotated[
        str, typer.Option(help="How many largest supports, or a share of all such as 0.01.")
    ] = "400",
    p: Annotated[float, typer.Option(help="Exponent of the entropy.")] = 1.0,
    trees: Annotated[
        TreesChoice, typer.Option(help="Organize every window for itself, or once on their mean.")
    ] = TreesChoice.per_window,
    n_iter: Annotated[int, typer.Option(help="Iterations of the questionnaire.")] = 3,
    windows: Annotated[int | None, typer.Option(help="Take only the first windows.")] = None,
    regularity: Annotated[
        bool, typer.Option("--regularity", help="Also estimate Hoelder exponents, on the first window.")
    ] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also re-run the first window with other parameters.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads; by default one per core.")] = None,
    figures: Annotated[str, typer.Option(help="Formats of the pictures: png,svg,pdf or none.")] = "png",
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table of heads as CSV.")] = False,
    quiet: Quiet = False,
) -> None:
    """Rank the heads by the l1 entropy of their Haar coefficients, and say whether the ranks repeat.

    Example:  headscape entropy out/capture -o out/entropy --fields logits
    """
    from headscape.analysis.entropy_study import entropy_study
    from headscape.engine import LocalEngine
    from headscape.tensor.store import write_text_atomically

    if json and csv:
        raise InputError("--json and --csv both print to standard output: give one of them.")
    console = Console(quiet=quiet, json=json or csv)
    formats = [] if figures == "none" else figures.split(",")
    source = _windows(tensors, array, axes, stack)
    folder = output_folder(out)
    engine = LocalEngine() if threads is None else LocalEngine(threads)
    with console.progress() as progress:
        study = entropy_study(
            source,
            field=field,
            fields=[name for name in fields.split(",") if name],
            k=_number(k),
            p=p,
            trees=trees.value,
            n_windows=windows,
            seed=seed,
            progress=progress,
            n_iter=n_iter,
            engine=engine,
        )
        study.save(folder / "study")
        first = source[0] if isinstance(source, Sequence) else source.tensor(0, field)
        table, extra = study.to_frame(), {}
        if regularity:
            table, extra["regularity"] = _with_regularity(table, first, study)
        if sensitivity:
            others = {name: source.tensor(0, name) for name in study.fields}
            options = {"n_iter": n_iter, "engine": engine}
            extra["sensitivity"] = _sensitivity(first, study, others, options, progress)
        pictures = _draw(study, first, folder / "figures", formats) if formats else []
    text = table.to_csv(index=False)
    write_text_atomically(folder / "heads.csv", text)
    summary = _summary(study, folder, pictures) | extra
    write_text_atomically(folder / "summary.json", json_module.dumps(summary, indent=2) + "\n")
    if csv:
        sys.stdout.write(text)
    else:
        console.result(summary)
    _tell(console, study, summary)


def _windows(paths: list[str], array: str | None, axes: str | None, stack: str | None) -> Any:
    from headscape.tensor.capture import Capture
    from headscape.tensor.synthetic import planted_tensor

    if paths == [SYNTHETIC]:
        return [planted_tensor()]
    if len(paths) == 1 and _kind(Path(paths[0])) == "capture":
        return Capture.load(paths[0]).select(stack)
    return TensorFiles(paths, array, axes)


def _kind(path: Path) -> str:
    """Return the kind of a folder that headscape wrote; empty for anything else."""
    from headscape.tensor.store import HEADER, read_header

    words = str(read_header(path).get("format")).split("/") if (path / HEADER).exists() else []
    return words[1] if len(words) == 3 else ""


def _number(text: str) -> float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise InputError(f"--k must be a whole number or a share such as 0.01, but is {text!r}.") from None


def _with_regularity(table: Any, x: Any, study: Any) -> tuple[Any, dict[str, Any]]:
    from headscape.analysis.regularity import holder_exponent

    found = holder_exponent(x, study.trees[0])
    return table.join(found.to_frame()), {"verdict": found.verdict, "in_range": int(found.in_range.sum())}


def _sensitivity(
    x: Any, study: Any, fields: dict[str, Any], options: dict[str, Any], progress: Any
) -> dict[str, Any]:
    from headscape.analysis.sensitivity import sensitivity

    found = sensitivity(x, k=study.parameters["k"], fields=fields, progress=progress, **options)
    return {
        "reruns": _records(found.to_frame()),
        "warnings": [str(warning) for warning in found.warnings],
    }


def _draw(study: Any, x: Any, folder: Path, formats: list[str]) -> list[Path]:
    from headscape.report.haar_figures import entropy_figures
    from headscape.report.style import save_figures

    return save_figures(entropy_figures(study, x), folder, formats)


def _summary(study: Any, folder: Path, pictures: list[Path]) -> dict[str, Any]:
    stability = study.stability
    measures = ("kendall_w", "rank_correlation", "jaccard_bottom", "jaccard_top")
    return {
        "format": "headscape/entropy-summary/1",
        "field": study.field,
        "heads": len(study.heads),
        "windows": stability.n_windows,
        "parameters": study.parameters,
        "wavelets_used": study.used.tolist(),
        "network_entropy": study.network.tolist(),
        "stability": {name: _plain(getattr(stability, name)) for name in measures},
        "verdict": stability.verdict,
        "stability_by_windows": _records(study.stability_by_count()),
        "most_frequent": study.most_frequent().to_dict(orient="records"),
        "sensitivity_to_choices": _records(study.sensitivity()),
        "warnings": [{"name": w.name, "axis": w.axis, "message": w.message} for w in study.warnings],
        "out": str(folder),
        "figures": [str(path) for path in pictures],
    }


def _records(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, which knows no NaN."""
    return [
        {name: None if value != value else value for name, value in row.items()}
        for row in table.to_dict(orient="records")
    ]


def _plain(interval: Any) -> dict[str, float | None]:
    """Return an interval for JSON, which knows no NaN."""
    return {name: None if value != value else value for name, value in vars(interval).items()}


def _tell(console: Console, study: Any, summary: dict[str, Any]) -> None:
    rows = [
        (
            row.Index,
            f"{row.top[0]}.{row.top[1]}",
            row.top_count,
            f"{row.bottom[0]}.{row.bottom[1]}",
            row.bottom_count,
        )
        for row in study.most_frequent().itertuples()
    ]
    title = f"Heads most often in the top and bottom 10 % of {summary['windows']} windows"
    console.table(title, ("place", "top", "windows", "bottom", "windows"), rows)
    choices = [tuple(row) for row in study.sensitivity().itertuples(index=False)]
    if choices:
        columns = ("parameter", "value", "rank correlation", "Jaccard bottom 10 %")
        console.table("If another value had been chosen", columns, choices)
    console.say(summary["verdict"])
    if "regularity" in summary:
        console.say(summary["regularity"]["verdict"])
    # The same state in many windows is one line; summary.json has them all.
    seen: dict[tuple[str, str], list[str]] = {}
    for warning in summary["warnings"]:
        seen.setdefault((warning["name"], warning["axis"]), []).append(warning["message"])
    for (name, axis), messages in seen.items():
        more = f" (and {len(messages) - 1} more windows)" if len(messages) > 1 else ""
        console.say(f"warning: {name} ({axis}): {messages[0]}{more}")
    for warning in summary.get("sensitivity", {}).get("warnings", []):
        console.say(f"warning: {warning}")
    console.say(
        "A low entropy says that a head's coarse coefficients are small, not that the model can spare it."
    )
    console.say(
        f"Results: {summary['out']}/study, heads.csv, summary.json, {len(summary['figures'])} pictures"
    )
