"""``headscape analyze``: the main job. A model in, a table of its heads and a report out."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.inputs import images_of
from headscape.cli.options import Device, Dtype, Json, ModelName, Quiet, Revision, Seed, TrustRemoteCode
from headscape.cli.stage_progress import stage_progress
from headscape.errors import InputError


def analyze(
    model: ModelName = "default",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the study.")] = Path("out/analysis"),
    text: Annotated[
        Path | None,
        typer.Option(help="Text file (UTF-8), cut into windows. (default: a text that comes with Python)"),
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of images, a window each.")] = None,
    windows: Annotated[int | None, typer.Option(help="How many windows. (default: 6)")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per window. (default: 256)")] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            help="Only these stages, for example entropy,energy; +softmax and +ablation add long ones."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: 2 windows of 128 tokens.")] = False,
    stack: Annotated[
        str | None, typer.Option(help="Which stack of a model with several. (default: first)")
    ] = None,
    field: Annotated[str, typer.Option(help="What is organized: probs, logits or energy.")] = "probs",
    n_iter: Annotated[
        int | None, typer.Option(help="Iterations of the questionnaire. (default: 3; quick: 2)")
    ] = None,
    k: Annotated[int, typer.Option(help="How many Haar coefficients go into an entropy.")] = 400,
    seed: Seed = 0,
    figures: Annotated[
        str, typer.Option(help="Also figures for papers, in these formats: png,svg,pdf.")
    ] = "none",
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Map the heads of a model: capture, organize, measure, and write one table and one report.

    A run that was stopped goes on where it was when called again in the same way.

    Example:  headscape analyze default --text book.txt -o out/book
    """
    inputs = _inputs(text, images)
    options: dict[str, Any] = {} if n_iter is None else {"n_iter": n_iter}
    formats = [] if figures == "none" else figures.split(",")
    names = None if stages is None else [name.strip() for name in stages.split(",")]
    from headscape.study.stages import chosen_stages

    chosen_stages(names)
    folder = output_folder(out)
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.report.style import save_figures
    from headscape.study.analyze import analyze as analyze_model

    start = time.perf_counter()
    with stage_progress(quiet=quiet) as progress:
        study = analyze_model(
            model,
            inputs,
            out=folder,
            windows=windows,
            length=length,
            stages=names,
            quick=quick,
            field=field,
            k=k,
            stack=stack,
            seed=seed,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            command=shlex.join(["headscape", *sys.argv[1:]]),
            progress=progress,
            **options,
        )
        progress("writing the report", 1, 1)
        report = study.report(folder / "report.html")
        pictures = save_figures(study.figures(), folder / "figures", formats) if formats else []
    summary = study.summary() | {
        "total_seconds": round(time.perf_counter() - start, 2),
        "report": str(report),
        "figures": [str(path) for path in pictures],
    }
    _tell(Console(quiet=quiet, json=json), study, summary, folder)


def _inputs(text: Path | None, images: Path | None) -> Any:
    if text is not None and images is not None:
        raise InputError("give either --text FILE or --images DIR, not both.")
    if images is None:
        return text
    return [row["image"] if isinstance(row, dict) else row for row in images_of(images)]


def _tell(console: Console, study: Any, summary: dict[str, Any], folder: Path) -> None:
    console.result(summary)
    table = study.heads
    wanted = [
        name for name in ("entropy", "rank", "mu_K", "k90", "participation", "holder_mixed") if name in table
    ]
    if wanted:
        quartiles = table[wanted].quantile([0.25, 0.5, 0.75])
        rows = [(name, *(float(v) for v in quartiles[name]), _extreme(table[name])) for name in wanted]
        columns = ("measure", "lower quartile", "median", "upper quartile", "lowest and highest head")
        console.table(f"{len(table)} heads, {study.windows} windows", columns, rows)
    for warning in study.warnings:
        console.say(f"Warning: {warning}")
    for sentence in study.findings[:3]:
        console.say(f"- {sentence}")
    minutes = summary["total_seconds"] / 60
    console.say(
        f"{minutes:.1f} minutes. Table: {folder / 'heads.csv'} (and .json). Report: {summary['report']}"
    )


def _extreme(column: Any) -> str:
    low, high = column.idxmin(), column.idxmax()
    return f"{low[0]}.{low[1]}, {high[0]}.{high[1]}"
