"""``headscape ablate``: switch heads off in the order of several rankings, and say what each ranking is worth."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.inputs import counts_of, methods_of, windows_inputs
from headscape.cli.stage_progress import stage_progress


def ablate(
    model: Annotated[
        str,
        typer.Argument(
            help="'default' (SmolLM2-135M), 'minilm', a model folder, a .gguf file, or a Hugging Face name."
        ),
    ] = "default",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the study.")] = Path("out/ablation"),
    text: Annotated[
        Path | None,
        typer.Option(
            help="Text file: its first half calibrates, its second evaluates.  [a text that comes with Python]"
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of images; a subfolder per label gives accuracies.")
    ] = None,
    calibrate: Annotated[Path | None, typer.Option(help="Text file to calibrate the rankings on.")] = None,
    evaluate: Annotated[Path | None, typer.Option(help="Text file to evaluate on.")] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="haar, haar-within-layer, gradient, attention-entropy, confidence, output-norm, tree-redundancy, "
            "reconstruction, leave-one-out, random, or columns of --table; ':reversed' turns one round, '+repair' "
            "re-fits the output projections."
        ),
    ] = "haar,gradient,reconstruction,random",
    counts: Annotated[
        str | None, typer.Option(help="How many heads off, such as 3,14,10%.  [1,2,5,10,20,30,50%]")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair after every removal.")] = False,
    table: Annotated[
        Path | None, typer.Option(help="A heads.csv whose columns can be methods (low goes first).")
    ] = None,
    windows: Annotated[
        int | None, typer.Option(help="Windows to evaluate on.  [16 of a text, all images]")
    ] = None,
    calibration_windows: Annotated[
        int | None, typer.Option(help="Windows to calibrate on.  [16 of a text, all images]")
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 256,
    draws: Annotated[int, typer.Option(help="Number of random orders.")] = 10,
    stack: Annotated[str | None, typer.Option(help="Which stack of a model with several.  [first]")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    figures: Annotated[str, typer.Option(help="Formats of the figures: png,svg,pdf or none.")] = "png",
    device: Annotated[str | None, typer.Option(help="Where the model runs, for example cuda.  [cpu]")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a Hugging Face name.")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the model run code that comes with it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Test which heads a model can spare: switch heads off in the order of several rankings, measure the loss.

    A study that was stopped goes on when called again; methods and counts can be added in the same folder.

    Example:  headscape ablate default --text book.txt --methods haar,gradient,reconstruction+repair,random -o out/a
    """
    inputs, calibration = windows_inputs(text, images, calibrate, evaluate)
    chosen, numbers = methods_of(methods, table), counts_of(counts)
    formats = [] if figures == "none" else figures.split(",")
    from headscape.pruning.ablation import ablation_study, curve_labels

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
