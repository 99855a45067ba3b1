"""``headscape check``: a linter for attention implementations."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.options import Dtype, Quiet
from headscape.errors import InputError

EXIT_FAILED = 1
MOST_LINES = 20


def check(
    source: Annotated[
        str,
        typer.Argument(
            help="A model ('default', 'minilm', a folder, a .gguf file, a Hugging Face name), a folder of "
            "'headscape capture', or a file with energies or probabilities."
        ),
    ],
    against: Annotated[
        str | None, typer.Option(help="Reference model: before conversion or quantization, in another dtype.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Text file to look at. (default: random tokens)")] = None,
    image: Annotated[
        list[Path] | None, typer.Option(help="Image file to look at. (default: random pixels)")
    ] = None,
    windows: Annotated[int, typer.Option(help="How many windows.")] = 2,
    length: Annotated[
        int | None,
        typer.Option(help="Tokens per window. (default: enough for the rank bound to say something)"),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative difference to the reference. (default: by dtype)")
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--not-causal", help="Must later keys be hidden? (default: ask the model)"),
    ] = None,
    dtype: Dtype = "float32",
    against_dtype: Annotated[str, typer.Option(help="The same for the reference.")] = "float32",
    device: Annotated[
        str | None, typer.Option(help="Where models run, for example cuda. (default: cpu)")
    ] = None,
    field: Annotated[str | None, typer.Option(help="What a file holds: energy or probs.")] = None,
    axes: Annotated[str | None, typer.Option(help="Order of the axes in a file.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for check.json and differences.csv.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    quiet: Quiet = False,
) -> None:
    """Check that every attention head does what softmax attention must do. Exit code 1 if one does not.

    Example:  headscape check quantized/ --against default
    """
    console = Console(quiet=quiet, json=json)
    folder = None if out is None else output_folder(out)
    from headscape.study.check import check as check_source
    from headscape.tensor.store import write_text_atomically

    with console.progress() as progress:
        progress("loading", 0, 1)
        subject, from_data = _subject(source, field, axes, device, dtype)
        if from_data and (against or text or image):
            raise InputError(
                f"{source} holds data, not a model: --against, --text and --image are for models."
            )
        reference = None if against is None else _model(against, device, against_dtype)
        report = check_source(
            subject,
            text if text is not None else image,
            against=reference,
            length=length,
            windows=windows,
            causal=causal,
            tolerance=tolerance,
            progress=progress,
        )
    values = report.to_dict()
    if folder is not None:
        write_text_atomically(folder / "check.json", json_module.dumps(values, indent=2) + "\n")
        if report.differences is not None:
            write_text_atomically(folder / "differences.csv", report.differences.to_csv(index=False))
    console.result(values)
    _tell(console, report)
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _subject(
    source: str, field: str | None, axes: str | None, device: str | None, dtype: str
) -> tuple[Any, bool]:
    """Return what a path or name stands for, and whether it is data and not a model."""
    from headscape.tensor.store import HEADER, read_header

    path = Path(source)
    if (path / HEADER).exists():
        from headscape.tensor.capture import KIND, Capture

        if str(read_header(path).get("format")).split("/")[1:2] == [KIND]:
            return Capture.load(path), True
    if (path / HEADER).exists() or path.suffix in (".npy", ".npz", ".safetensors") or path.suffix == ".zarr":
        from headscape.tensor.files import load_tensor

        return load_tensor(path, axes=axes, field=field), True
    return _model(source, device, dtype), False


def _model(name: str, device: str | None, dtype: str) -> Any:
    from headscape.models.loading import load_model

    return load_model(name, device=device, dtype=dtype)


def _tell(console: Console, report: Any) -> None:
    from headscape.study.check_report import describe

    table = report.summary().to_dict(orient="records")
    rows = [
        (r["test"], r["passed"], r["failed"], r["not judged"], _number(r["worst"]), _number(r["tolerance"]))
        for r in table
    ]
    columns = ("test", "passed", "failed", "not judged", "worst", "allowed")
    console.table(f"Check of {report.subject}", columns, rows)
    for row in table:
        if row["remark"]:
            console.say(f"{row['test']}: {row['remark']}")
    for finding in report.failures[:MOST_LINES]:
        console.say(f"FAILED {describe(finding)}")
    if len(report.failures) > MOST_LINES:
        console.say(f"... and {len(report.failures) - MOST_LINES} more failures (--json shows all)")
    for (layer, head), mu in report.outliers.items():
        console.say(
            f"outlier: key-value head {layer}.{head} has mu_K = {mu:.3g}, far from the rest (no failure)"
        )
    console.say("all tests passed" if report.ok else f"{len(report.failures)} failures")


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3g}"
