"""``headscape ablate``: switch heads off in the order of several rankings, and say what each ranking is worth."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.inputs import counts_of, methods_of, windows_inputs
from headscape.cli.options import (
    CalibrationText,
    CalibrationWindows,
    Device,
    Dtype,
    EvaluationText,
    EvaluationWindows,
    Json,
    LabeledImages,
    ModelName,
    Quiet,
    Revision,
    Seed,
    SplitText,
    Table,
    TrustRemoteCode,
)
from headscape.cli.stage_progress import stage_progress


def ablate(
    model: ModelName = "default",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the study.")] = Path("out/ablation"),
    text: SplitText = None,
    images: LabeledImages = None,
    calibrate: CalibrationText = None,
    evaluate: EvaluationText = None,
    methods: Annotated[
        str,
        typer.Option(
            help="haar, haar-within-layer, gradient, attention-entropy, confidence, output-norm, tree-redundancy, "
            "reconstruction, leave-one-out, random, or columns of --table; ':reversed' turns one round, '+repair' "
            "re-fits the output projections."
        ),
    ] = "haar,gradient,reconstruction+repair,random",
    counts: Annotated[
        str | None, typer.Option(help="How many heads off, such as 3,14,10%. (default: 1,2,5,10,20,30,50%)")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair after every removal.")] = False,
    table: Table = None,
    windows: EvaluationWindows = None,
    calibration_windows: CalibrationWindows = None,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 256,
    draws: Annotated[int, typer.Option(help="Number of random orders.")] = 10,
    stack: Annotated[
        str | None, typer.Option(help="Which stack of a model with several. (default: first)")
    ] = None,
    seed: Seed = 0,
    figures: Annotated[str, typer.Option(help="Formats of the figures: png,svg,pdf or none.")] = "png",
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Test which heads a model can spare: switch heads off in the order of several rankings, measure the loss.

    A study that was stopped goes on when called again. To add methods or counts in the same folder, give the whole list
    again: what is finished is not computed again.

    Example:  headscape ablate default --text book.txt --methods haar,gradient,reconstruction+repair,random -o out/a
    """
    inputs, calibration = windows_inputs(text, images, calibrate, evaluate)
    chosen, numbers = methods_of(methods, table), counts_of(counts)
    formats = [] if figures == "none" else figures.split(",")
    from headscape.ablation.ablation_study import ablation_study, curve_labels

    curve_labels(chosen, repair)
    folder = output_folder(out)
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.report.ablation_figures import ablation_figures
    from headscape.report.style import save_figures

    start = time.perf_counter()
    with stage_progress(quiet=quiet) as progress:
        progress("loading the model", 0, 1)
        study = ablation_study(
            model,
            inputs,
            chosen,
            numbers,
            repair,
            calibration=calibration,
            windows=windows,
            calibration_windows=calibration_windows,
            length=length,
            draws=draws,
            stack=stack,
            seed=seed,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            out=folder,
            progress=progress,
        )
        pictures = save_figures(ablation_figures(study), folder / "figures", formats) if formats else []
    summary = study.summary() | {
        "total_seconds": round(time.perf_counter() - start, 2),
        "out": str(folder),
        "figures": [str(path) for path in pictures],
    }
    tell_study(Console(quiet=quiet, json=json), study, summary)


def tell_study(console: Console, study: Any, summary: dict[str, Any]) -> None:
    """Print what a study found: the increase by method and count, the verdicts, and where the files are."""
    console.result(summary)
    rows = [
        (method, *(f"{study.interval(method, count).estimate:+.3f}" for count in study.counts))
        for method in study.methods
    ]
    console.table(
        f"Increase of the loss ({study.loss}; intact {study.intact.mean():.3f}) by heads off, of {study.n_heads}",
        ("method", *map(str, study.counts)),
        rows,
    )
    if study.intact_accuracy is not None:
        console.table(
            f"Share of right answers (intact {study.intact_accuracy.mean():.3f}) by heads off",
            ("method", *map(str, study.counts)),
            [
                (name, *(f"{share:.3f}" for share in curve.accuracy.mean(axis=(0, 2))))
                for name, curve in study.curves.items()
            ],
        )
    for warning in study.warnings:
        console.say(f"Warning: {warning}")
    for sentence in study.findings:
        console.say(f"- {sentence}")
    where = f"Curves: {summary['out']}/curves.csv. Summary: {summary['out']}/summary.json."
    pictures = f" Figures: {', '.join(summary['figures'])}" if summary["figures"] else ""
    console.say(f"{summary['total_seconds'] / 60:.1f} minutes. {where}{pictures}")
