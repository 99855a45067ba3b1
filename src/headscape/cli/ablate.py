"""``headscape ablate``: switch heads off in the order of several rankings, and say what each ranking is worth."""

import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.given import check_given, counts_of, formats_of, methods_of, opened, split_inputs
from headscape.cli.options import CALIBRATION, FIGURES, INPUTS, RUN, STACK, ModelName, Out, with_options
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError


@with_options(INPUTS, CALIBRATION, STACK, FIGURES, RUN)
def ablate(
    model: ModelName = "default",
    out: Out = Path("out/ablation"),
    methods: Annotated[
        str,
        typer.Option(
            help="haar, haar-within-layer, gradient, attention-entropy, confidence, output-norm, tree-redundancy, "
            "reconstruction, validated, flap, wanda-sp, slimgpt, osscar, leave-one-out, random, or columns of --table; "
            "':reversed' behind a name reverses it, '+repair' re-fits the output projections."
        ),
    ] = "haar,gradient,reconstruction+repair,random",
    counts: Annotated[
        str | None, typer.Option(help="How many heads off, such as 3,14,10%. (default: 1,2,5,10,20,30,50%)")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair after every removal.")] = False,
    draws: Annotated[int | None, typer.Option(help="Number of random orders. (default: 10)")] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Test rankings of the heads: switch heads off in the order of each, and measure the loss on held-out windows.

    About 20 minutes for the default model and methods on 2 cores. An interrupted study resumes when called again; to
    add methods or counts in the same folder, give the whole list again: what is finished is not computed again.

    Example:  headscape ablate default --text book.txt --methods haar,gradient,reconstruction+repair,random -o out/a
    """
    check_given([model], given, runs_model="ablate")
    inputs, calibration = split_inputs(given)
    chosen, numbers = methods_of(methods, given.table), counts_of(counts)
    formats = formats_of(given.figures)
    from headscape.ablation.ablation_study import DRAWS, MIN_DRAWS, ablation_study, curve_labels
    from headscape.ablation.curves import is_random
    from headscape.tensor.checks import MAX_DRAWS, require_integer

    labels = curve_labels(chosen, repair)
    random = any(map(is_random, labels))
    if draws is not None:
        require_integer(draws, "--draws", MIN_DRAWS, MAX_DRAWS)
        if not random:
            raise InputError("--draws is the number of random orders: add random to --methods.")
    folder = output_folder(out)
    from headscape.report.ablation_figures import ablation_figures
    from headscape.report.style import save_figures
    from headscape.study.expected_time import HELD_OUT, ablating_seconds, seconds_of
    from headscape.study.source import require_model

    sizes = {"windows": given.windows, "length": given.length, "default_windows": HELD_OUT}
    expected = partial(
        ablating_seconds,
        labels=labels,
        counts=numbers,
        draws=draws or DRAWS,
        calibration_windows=given.calibration_windows,
    )
    start = time.perf_counter()
    with shown_progress(quiet=given.quiet) as progress:
        progress("loading the model", 0, 1)
        source = require_model(opened([model], given), "ablate")
        announce_time(progress, given, lambda: seconds_of(expected, source, inputs, **sizes))
        study = ablation_study(
            source,
            inputs,
            chosen,
            numbers,
            repair,
            calibration=calibration,
            windows=given.windows,
            calibration_windows=given.calibration_windows,
            length=given.length or 256,
            sample=given.sample.value,
            seed=given.seed,
            draws=draws or DRAWS,
            stack=given.stack,
            out=folder,
            progress=progress,
        )
        pictures = save_figures(ablation_figures(study), folder / "figures", formats) if formats else []
    summary = study.summary() | {
        "total_seconds": round(time.perf_counter() - start, 2),
        "out": str(folder),
        "figures": [str(path) for path in pictures],
    }
    _tell(Console(quiet=given.quiet, json=given.json), study, summary)


def _tell(console: Console, study: Any, summary: dict[str, Any]) -> None:
    """Print the loss increase by method and count, the verdicts, and where the files are."""
    console.result(summary)
    columns = ("method", *map(str, study.counts))
    rows = [
        (method, *(f"{study.interval(method, count).estimate:+.3f}" for count in study.counts))
        for method in study.methods
    ]
    intact = f"{study.loss}; intact {study.intact.mean():.3f}"
    console.table(f"Loss increase ({intact}) by number of heads off, of {study.n_heads}", columns, rows)
    if study.intact_accuracy is not None:
        shares = [
            (name, *(f"{share:.3f}" for share in curve.accuracy.mean(axis=(0, 2))))
            for name, curve in study.curves.items()
        ]
        console.table(f"Accuracy (intact {study.intact_accuracy.mean():.3f}) by heads off", columns, shares)
    console.findings(study.warnings, study.findings)
    where = f"Curves: {summary['out']}/curves.csv. Summary: {summary['out']}/summary.json."
    pictures = f" Figures: {', '.join(summary['figures'])}" if summary["figures"] else ""
    console.say(f"{summary['total_seconds'] / 60:.1f} minutes. {where}{pictures}")
