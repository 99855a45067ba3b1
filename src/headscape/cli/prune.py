"""``headscape prune``: choose heads, measure what it costs, and write the smaller model."""

import hashlib
import json
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.console import Console
from headscape.cli.given import check_given, methods_of, opened, parse_heads, split_inputs
from headscape.cli.options import CALIBRATION, INPUTS, OUTPUT, RUN, Group, ModelName, option, with_options
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError, StorageError

WISHES = ("fraction", "heads", "target_kv", "target_params", "max_loss")
DEFAULT_FRACTION = 0.1
REPORT = "report.html"
GOAL: Group = {
    "fraction": option(float | None, "Which share of the heads may go. (default: 0.1)"),
    "heads": option(str | None, "These heads as layer.head, for example 3.0,3.7."),
    "target_kv": option(
        float | None, "Bring the key-value cache down to this share of what it was; whole groups go."
    ),
    "target_params": option(float | None, "Bring the parameters down to this share of what they were."),
    "max_loss": option(float | None, "Remove as many heads as possible for at most this loss increase."),
    "groups": option(bool, "Remove whole key-value groups only.", "--groups", default=False),
    "uniform": option(
        bool,
        "Remove the same number of heads from every layer, for plain from_pretrained.",
        "--uniform",
        default=False,
    ),
    "sizes": option(
        int, "Sizes of the trade-off to measure, of each kind of removal; 0 for none.", default=4
    ),
    "recover": option(
        int, "Train the output projections for so many steps afterwards.", metavar="STEPS", default=0
    ),
}


@with_options(GOAL, INPUTS, CALIBRATION, RUN)
def prune(
    model: ModelName,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the pruned model and its report.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="How heads are chosen: a method of ablate, or a column of --table. (default: validated)"
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair/--no-repair", help="Re-fit the output projections of touched layers.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would cost, and write nothing.")
    ] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(help="Also write the recipe alone, for others to apply to the original weights."),
    ] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Remove heads permanently: choose them, repair what is left, measure the cost on held-out text, write the model.

    Say what you want: a share of the heads, a smaller cache, fewer parameters, or a bound on the loss.

    The report shows the trade-off. An interrupted run resumes when called again in the same way.

    5 to 10 minutes for the default model on 2 cores, 2 to 5 with --sizes 0; --max-loss searches, and takes longer.

    Example:  headscape prune default --target-kv 0.8 --text book.txt -o out/smaller
    """
    check_given([model], given, runs_model="prune")
    wish = _wish(method, given)
    inputs, calibration = split_inputs(given)
    score = _score("validated" if method is None else method, given)
    if dry_run and manifest is not None:
        raise InputError("--dry-run writes nothing: leave out --manifest.")
    said = {"model": model, "method": method, "repair": repair, "manifest": manifest, **vars(given)}
    mark = _mark({name: value for name, value in said.items() if name not in (*OUTPUT, "explicit")})
    if not dry_run or out is not None:
        _require_target(out, manifest, dry_run, mark)
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.ablation.validated_choice import PLANS
    from headscape.pruning.manifest_files import export_manifest
    from headscape.pruning.pruned_files import claimed, save_pruned, work_folder
    from headscape.pruning.trial import pruning_trial
    from headscape.study.expected_time import HELD_OUT, pruning_seconds, seconds_of
    from headscape.study.pruning_report import pruning_report
    from headscape.study.source import require_model

    start = time.perf_counter()
    written = None if dry_run else out
    sizes = {"windows": given.windows, "length": given.length, "default_windows": HELD_OUT}
    expected = partial(
        pruning_seconds,
        calibration_windows=given.calibration_windows,
        written=written is not None,
        sizes=given.sizes,
        recover=given.recover,
        searching=given.max_loss is not None,
        plans=len(PLANS) if isinstance(score, str) and score == "validated" else 0,
    )
    with nullcontext() if written is None else claimed(written), shown_progress(given.quiet) as progress:
        progress("loading the model", 0, 1)
        source = require_model(opened([model], given), "prune")
        announce_time(progress, given, lambda: seconds_of(expected, source, inputs, **sizes))
        trial = pruning_trial(
            source,
            inputs,
            method=score,
            **wish,
            groups=given.groups,
            uniform=given.uniform,
            repair=repair,
            recover=given.recover,
            sizes=given.sizes,
            calibration=calibration,
            windows=given.windows,
            calibration_windows=given.calibration_windows,
            length=given.length or 256,
            sample=given.sample.value,
            seed=given.seed,
            out=None if written is None else work_folder(written),
            progress=progress,
        )
        pruned = None
        if written is not None:
            trial = trial.timed(progress)  # first: measured times decide which sizes the card names
            pruned = trial.prune(progress=progress)
            save_pruned(replace(pruned, card=f"{pruned.card}\n{mark}\n"), written)
            if manifest is not None:
                export_manifest(pruned, manifest)
            progress("writing the report", 0, 1)
            command = shlex.join(["headscape", *sys.argv[1:]])
            pruning_report(trial, written / REPORT, pruned=pruned, command=command)
            shutil.rmtree(work_folder(written), ignore_errors=True)
    summary = ({} if pruned is None else pruned.summary()) | trial.summary()
    summary |= {"total_seconds": round(time.perf_counter() - start, 2), "out": None if dry_run else str(out)}
    _tell(Console(quiet=given.quiet, json=given.json), trial, pruned, summary)


def _wish(method: str | None, given: SimpleNamespace) -> dict[str, Any]:
    """Return what is wanted as an argument of the trial, or raise unless it is said in one way."""
    from headscape.pruning.goal import require_steps, require_wishes
    from headscape.pruning.trial import MAX_SIZES
    from headscape.tensor.checks import require_integer

    wanted = [name for name in WISHES if getattr(given, name) is not None]
    if len(wanted) > 1:
        first, second = (_flag(name) for name in wanted[:2])
        raise InputError(f"specify either {first} or {second}, not both.")
    if given.heads is not None:
        of_choice = {
            "--method": method,
            "--table": given.table,
            "--groups": given.groups,
            "--uniform": given.uniform,
        }
        for name, value in of_choice.items():
            if value not in (None, False):
                raise InputError(f"specify either {name} or --heads, not both.")
    require_wishes(vars(given), "--")
    require_integer(given.sizes, "--sizes", 0, MAX_SIZES)
    require_steps(given.recover, "--recover")
    if not wanted:
        return {"fraction": DEFAULT_FRACTION}
    [name] = wanted
    return {name: parse_heads(given.heads, "--heads") if name == "heads" else getattr(given, name)}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _score(method: str, given: SimpleNamespace) -> Any:
    """Return the method by which heads are chosen: a name, or the scores of a column of the table."""
    from headscape.ablation.rankings import check_method
    from headscape.pruning.removal_order import require_priced

    if "," in method:
        raise InputError(
            f"--method must be one method, but is {method!r}. headscape ablate compares several."
        )
    # As ablate writes it; here the repair is an option of its own.
    [score] = methods_of(method.removesuffix("+repair"), given.table).values()
    check_method(score)
    require_priced(score)
    return score


def _require_target(out: Path | None, manifest: Path | None, dry_run: bool, mark: str) -> None:
    """Raise, before a model is loaded, unless there is a folder that can be written without losing anything."""
    if out is None or str(out) == ".":
        raise InputError(
            "specify a folder for the pruned model with -o, or --dry-run to see what it would cost."
        )
    if manifest is not None and (str(manifest) == "." or (manifest.exists() and not manifest.is_dir())):
        raise StorageError(f"--manifest takes a folder, but is {str(manifest)!r}.")
    from headscape.pruning.pruned_files import CARD, require_free

    require_free(out)
    card = out / CARD
    same_run = card.exists() and mark in card.read_text(encoding="utf-8", errors="replace")
    if not dry_run and out.is_dir() and any(out.iterdir()) and not same_run:
        raise StorageError(
            f"{out} holds a pruned model that was made with other options, and would be lost: choose another folder "
            "with -o, or delete this one."
        )


def _mark(said: Mapping[str, Any]) -> str:
    """Return the line by which a model card shows that it was written with these options."""
    digest = hashlib.blake2b(
        json.dumps(said, sort_keys=True, default=str).encode(), digest_size=8
    ).hexdigest()
    return f"<!-- headscape prune {digest} -->"


def _tell(console: Console, trial: Any, pruned: Any, summary: dict[str, Any]) -> None:
    console.result(summary)
    rows = [
        (
            name,
            f"{i.estimate:+.4f}",
            f"{i.low:+.4f} to {i.high:+.4f}{' (draws)' if name.startswith('random') else ''}"
            if i.low == i.low
            else "-",
        )
        for name, i in trial.increases.items()
    ]
    console.table(
        f"Loss increase ({trial.loss}; intact {trial.intact.mean():.3f}) without {len(trial.heads)} of "
        f"{trial.n_heads} heads",
        ("", "loss increase", "interval"),
        rows,
    )
    console.findings(trial.warnings, trial.findings)
    if trial.curve is not None:
        _tell_curve(console, trial.curve)
    if pruned is None:
        named = ", ".join(f"{layer}.{head}" for layer, head in trial.heads)
        console.say(f"Nothing was written. These heads would go: {named}")
        return
    console.say(f"- {pruned.description}")
    console.say(str(pruned.speed))
    plain = pruned.manifest.plain
    loads = "transformers' from_pretrained and headscape" if plain else "headscape (hs.load_pruned)"
    shows = "what it costs" if trial.curve is None else "the trade-off"
    console.say(
        f"{summary['total_seconds'] / 60:.1f} minutes. Model: {summary['out']}, loaded by {loads}; its README.md says "
        f"what was removed and what it cost, its {REPORT} shows {shows}."
    )


def _tell_curve(console: Console, curve: Any) -> None:
    names = {id(point): name for name, point in curve.choices.items()}
    rows = [
        (
            names.get(id(point), "") + (" (chosen)" if point.chosen else ""),
            f"{len(point.heads)} in {point.kind}",
            f"{point.increase.estimate:+.4f}",
            f"{point.savings.parameters.share:.1%}",
            f"{point.savings.cache_bytes_per_token.share:.1%}",
            f"{point.speed.prefill.ratio:.2f}x" if point.speed and not point.speed.prefill.noisy else "-",
        )
        for point in curve.points
    ]
    title = f"Trade-off on {curve.windows} other calibration windows; letters are Pareto choices"
    console.table(
        title, ("", "heads", "loss increase", "fewer parameters", "smaller cache", "prefill speed"), rows
    )
