"""``headscape check``: a linter for attention implementations."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.given import check_given, inputs_of, loading_of, opened
from headscape.cli.options import INPUTS, RUN, TENSORS, SourceName, option, with_options
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError

EXIT_FAILED = 1
TEXT = option(list[Path] | None, "Text file to look at. (default: random tokens)")
MOST_LINES = 20
PROBE_LENGTH = 144
"""Random tokens that a model with heads of 64 dimensions is shown."""


@with_options(INPUTS, {"text": TEXT}, TENSORS, RUN)
def check(
    source: SourceName,
    against: Annotated[
        str | None, typer.Option(help="Reference model: before conversion or quantization, in another dtype.")
    ] = None,
    against_dtype: Annotated[
        str | None, typer.Option(help="Precision of the reference. (default: float32)")
    ] = None,
    windows: Annotated[int | None, typer.Option(help="How many windows. (default: 2)")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative difference to the reference. (default: by dtype)")
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--not-causal", help="Must later keys be hidden? (default: ask the model)"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for check.json and differences.csv.")
    ] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Check that every attention head obeys the invariants of softmax attention. Exit code 1 if one does not.

    Models are shown random tokens or pixels unless --text or --images is given. About 10 seconds for the default model.

    Example:  headscape check quantized/ --against default
    """
    given.windows = windows
    check_given([source], given)
    _check_own(source, given, against, against_dtype, tolerance)
    inputs = inputs_of(given)
    folder = None if out is None else output_folder(out)
    from headscape.models.loading import load_model
    from headscape.study.check import check as check_source
    from headscape.study.expected_time import checking_seconds, seconds_of
    from headscape.tensor.store import write_text_atomically

    with shown_progress(quiet=given.quiet) as progress:
        progress("opening the source", 0, 1)
        loading = loading_of(given) | {"dtype": against_dtype or "float32"}
        subject = opened([source], given)
        sizes = {"windows": windows or 2, "length": given.length or PROBE_LENGTH}
        expected = partial(checking_seconds, references=int(against is not None))
        announce_time(progress, given, lambda: seconds_of(expected, subject, inputs, **sizes))
        report = check_source(
            subject,
            inputs,
            against=None if against is None else load_model(against, **loading),
            length=given.length,
            windows=windows or 2,
            sample=given.sample.value,
            causal=causal,
            tolerance=tolerance,
            seed=given.seed,
            progress=progress,
        )
    summary = report.summary()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(folder / "check.json", json.dumps(summary, indent=2) + "\n")
        if report.differences is not None:
            write_text_atomically(folder / "differences.csv", report.differences.to_csv(index=False))
    console = Console(quiet=given.quiet, json=given.json)
    console.result(summary)
    _tell(console, report)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _check_own(
    source: str,
    given: SimpleNamespace,
    against: str | None,
    against_dtype: str | None,
    tolerance: float | None,
) -> None:
    """Raise unless the options of a comparison come with a reference, and all apply to the source."""
    from headscape.models.loading import require_dtype
    from headscape.study.source import MODEL, TENSOR, source_kind
    from headscape.tensor.checks import require_number

    kind = source_kind(source)
    if against is None and (against_dtype is not None or tolerance is not None):
        raise InputError("--against-dtype and --tolerance are for a comparison: specify --against.")
    for name, value in (("--against", against), ("--windows", given.windows)):
        if value is not None and kind != MODEL:
            raise InputError(f"{name} is for models, but {source} is a {kind}.")
    if against is not None and (not against.strip() or source_kind(against) != MODEL):
        raise InputError(f"--against must be a model, but is {against!r}.")
    if against_dtype is not None:
        require_dtype(against_dtype, "--against-dtype")
    if tolerance is not None:
        require_number(tolerance, "--tolerance", 1e-12, 1e6)
    if given.field is not None and kind != TENSOR:
        raise InputError(f"--field says what a tensor file holds, but {source} is a {kind}.")


def _tell(console: Console, report: Any) -> None:
    rows = [
        (r["test"], r["passed"], r["failed"], r["not judged"], _number(r["worst"]), _number(r["tolerance"]))
        for r in report.table().to_dict(orient="records")
    ]
    columns = ("test", "passed", "failed", "not judged", "worst", "allowed")
    console.table(f"Check of {report.subject}", columns, rows)
    for line in report.lines(MOST_LINES):
        console.say(line)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3g}"
