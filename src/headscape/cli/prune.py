"""``headscape prune``: choose heads, measure what it costs, and write the smaller model."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console
from headscape.cli.inputs import methods_of, windows_inputs
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
from headscape.cli.ranges import parse_heads
from headscape.cli.stage_progress import stage_progress
from headscape.errors import InputError, StorageError


def prune(
    model: ModelName,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for the pruned model.")] = None,
    fraction: Annotated[
        float | None, typer.Option(help="Which share of the heads may go. (default: 0.1)")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(help="These heads as layer.head, for example 3.0,3.7, in place of a share.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="How heads are chosen: a method of ablate, or a column of --table.")
    ] = "reconstruction",
    repair: Annotated[
        bool, typer.Option("--repair/--no-repair", help="Re-fit the output projections of touched layers.")
    ] = True,
    text: SplitText = None,
    images: LabeledImages = None,
    calibrate: CalibrationText = None,
    evaluate: EvaluationText = None,
    table: Table = None,
    windows: EvaluationWindows = None,
    calibration_windows: CalibrationWindows = None,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 256,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would cost, and write nothing.")
    ] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(help="Folder for the recipe alone, for others to apply to the original weights."),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove heads for real: choose them, repair what is left, measure the cost on held-out text, write the model.

    Example:  headscape prune default --fraction 0.1 --text book.txt -o out/smaller
    """
    if not dry_run:
        _require_target(out)
        if manifest is not None and manifest.exists() and not manifest.is_dir():
            raise StorageError(f"{manifest} is a file: --manifest takes a folder.")
    if fraction is not None and heads is not None:
        raise InputError("give either --fraction or --heads, not both.")
    chosen = None if heads is None else parse_heads(heads, "--heads")
    share = (0.1 if fraction is None else fraction) if chosen is None else None
    inputs, calibration = windows_inputs(text, images, calibrate, evaluate)
    if "," in method:
        raise InputError(
            f"--method must be one method, but is {method!r}. headscape ablate compares several."
        )
    # As ablate writes it; here the repair is an option of its own.
    [score] = methods_of(method.removesuffix("+repair"), table).values()
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.pruning.trial import pruning_trial
    from headscape.recorder.capturing import as_loaded

    start = time.perf_counter()
    with stage_progress(quiet=quiet) as progress:
        progress("loading the model", 0, 1)
        loaded = as_loaded(model, None, device, dtype, revision, trust_remote_code)
        trial = pruning_trial(
            loaded,
            inputs,
            method=score,
            fraction=share,
            heads=chosen,
            repair=repair,
            calibration=calibration,
            windows=windows,
            calibration_windows=calibration_windows,
            length=length,
            seed=seed,
            progress=progress,
        )
        summary = trial.summary()
        if not dry_run and out is not None:
            summary |= _made(trial, loaded, model, out, manifest, progress)
    summary |= {"total_seconds": round(time.perf_counter() - start, 2), "out": None if dry_run else str(out)}
    _tell(Console(quiet=quiet, json=json), trial, summary)


def _require_target(out: Path | None) -> None:
    """Raise, before a model is loaded, unless there is a folder that can be written."""
    if out is None:
        raise InputError(
            "give a folder for the pruned model with -o, or --dry-run to see what it would cost."
        )
    from headscape.pruning.pruned_files import require_free

    require_free(out)


def _made(
    trial: Any, loaded: Any, name: str, out: Path, manifest: Path | None, progress: Any
) -> dict[str, Any]:
    """Cut, save, time, and return what that gave."""
    from headscape.models.license import packaged_name, weights_license
    from headscape.pruning.manifest_files import export_manifest
    from headscape.pruning.model_card import model_card
    from headscape.pruning.pruned_files import save_pruned
    from headscape.pruning.speed import measured_speed

    progress("cutting heads out", 0, 1)
    pruned = trial.prune()
    speed = measured_speed(trial.model, pruned.model, progress=progress)
    card = model_card(
        trial, pruned, name=packaged_name(name), weights_license=weights_license(name), measured=speed
    )
    save_pruned(pruned, out, tokenizer=loaded.tokenizer, card=card)
    if manifest is not None:
        export_manifest(pruned, manifest)
    timings = {"prefill": speed.prefill, "decoding": speed.decoding}
    return {
        "removed": [list(pair) for pair in pruned.removed],
        "kept_back": [list(pair) for pair in pruned.kept_back],
        "plain": pruned.manifest.plain,
        "savings": pruned.savings.to_dict(),
        "speed": {
            what: [timing.ratio, *timing.range] for what, timing in timings.items() if timing is not None
        },
        "summary": pruned.summary,
        "speed_text": str(speed),
    }


def _tell(console: Console, trial: Any, summary: dict[str, Any]) -> None:
    console.result(summary)
    rows = [
        (name, f"{i.estimate:+.4f}", f"{i.low:+.4f} to {i.high:+.4f}") for name, i in trial.increases.items()
    ]
    console.table(
        f"Rise of the loss ({trial.loss}; intact {trial.intact.mean():.3f}) without {len(trial.heads)} of "
        f"{trial.n_heads} heads",
        ("", "rise", "interval"),
        rows,
    )
    for warning in trial.warnings:
        console.say(f"Warning: {warning}")
    for sentence in trial.findings:
        console.say(f"- {sentence}")
    if summary["out"] is None:
        named = ", ".join(f"{layer}.{head}" for layer, head in trial.heads)
        console.say(f"Nothing was written. These heads would go: {named}")
        return
    console.say(f"- {summary['summary']}")
    console.say(summary["speed_text"])
    loads = (
        "transformers' from_pretrained and headscape" if summary["plain"] else "headscape (hs.load_pruned)"
    )
    console.say(
        f"{summary['total_seconds'] / 60:.1f} minutes. Model: {summary['out']}, loaded by {loads}; its README.md says "
        "what was removed and what it cost."
    )
