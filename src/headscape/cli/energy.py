"""``headscape energy``: invariants, spectra, incoherence and spread of the energy field of every head."""

import json as json_module
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.options import Quiet
from headscape.cli.ranges import parse_heads, parse_numbers
from headscape.errors import FileFormatError, InputError
from headscape.tensor.store import HEADER, check_format, software_versions, write_text_atomically

FORMAT = "energy-summary"


def energy(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of 'headscape capture', or a model: 'default' (SmolLM2-135M), 'minilm', a folder, a "
            ".gguf file, or a Hugging Face name."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for tables and pictures.")],
    text: Annotated[
        Path | None, typer.Option(help="Text file (UTF-8) for a model. (default: Python's own help texts)")
    ] = None,
    image: Annotated[list[Path] | None, typer.Option(help="Image file for a model of images.")] = None,
    windows: Annotated[int | None, typer.Option(help="How many windows of a model. (default: 6)")] = None,
    length: Annotated[int, typer.Option(help="Tokens per window of a model.")] = 256,
    lengths: Annotated[
        str | None,
        typer.Option(help="Prefixes to measure at, for example 64,128,256. (default: powers of two)"),
    ] = None,
    stack: Annotated[
        str | None, typer.Option(help="Which stack of a model with several. (default: the first)")
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Head to draw, as layer.head. (default: a typical one)")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of an earlier run on another model, to draw mu_K over models; repeatable."),
    ] = None,
    signatures: Annotated[
        bool,
        typer.Option("--signatures", help="Also zero-sum and spectral signatures of every head (slower)."),
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Also write the tables as CSV.")] = False,
    figures: Annotated[str, typer.Option(help="Formats of the pictures: png,svg,pdf or none.")] = "png",
    device: Annotated[
        str | None, typer.Option(help="Where a model runs, for example cuda. (default: cpu)")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16, for a model.")] = "float32",
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure the energy field of every head and say what holds for the model, with counter-examples.

    Example:  headscape energy default -o out/energy --csv
    """
    console = Console(quiet=quiet, json=json)
    chosen = None if lengths is None else parse_numbers(lengths, "--lengths")
    shown = None if head is None else _one_head(head)
    formats = [] if figures == "none" else figures.split(",")
    others = [_earlier(path) for path in beside or []]
    if others and (Path(source) / HEADER).exists():
        raise InputError(
            "--beside needs the size of the model, which a capture does not know: give the model."
        )
    folder = output_folder(out)
    from headscape.energy.statements import energy_statements
    from headscape.energy.table import energy_tables

    start = time.perf_counter()
    with console.progress() as progress:
        capture, interaction, size, remark = _captured(
            source, text, image, windows, length, stack, device, dtype, progress
        )
        tables = energy_tables(
            capture,
            None if chosen is None else sorted(chosen),
            signatures=signatures,
            interaction=interaction,
            progress=progress,
        )
        statements = energy_statements(tables)
        summary = _summary(capture, tables, statements, remark, size)
        pictures = _draw(capture, tables, shown, interaction, folder, formats) if formats else []
        pictures += _draw_models([summary, *others], folder, formats) if formats and others else []
    if csv:
        for name, table in (("heads", tables.heads), ("kv_heads", tables.kv_heads)):
            write_text_atomically(folder / f"energy_{name}.csv", table.to_csv(index=False))
    summary |= {"seconds": round(time.perf_counter() - start, 3), "out": str(folder)}
    summary["figures"] = [str(path) for path in pictures]
    write_text_atomically(folder / "energy.json", json_module.dumps(summary, indent=2) + "\n")
    console.result(summary)
    for statement in statements:
        console.say(f"- {statement.text}" + (f" ({statement.published}.)" if statement.published else ""))
    if remark:
        console.say(remark)
    console.say(f"{summary['seconds']:.1f} s. Results: {folder}/energy.json{', energy_*.csv' if csv else ''}")


def _captured(
    source: str,
    text: Path | None,
    image: list[Path] | None,
    windows: int | None,
    length: int,
    stack: str | None,
    device: str | None,
    dtype: str,
    progress: Any,
) -> tuple[Any, Any, int | None, str]:
    """Return the capture; if a model is at hand its learned interactions and size; and why not, if so."""
    from headscape.errors import ModelError
    from headscape.tensor.capture import Capture

    if (Path(source) / HEADER).exists():
        if text is not None or image:
            raise InputError(f"{source} is a capture, which holds its windows: leave out --text and --image.")
        remark = "W_Q^T W_K is not known: a capture holds no weights."
        return Capture.load(source).select(stack), None, None, remark
    from headscape.models.loading import load_model
    from headscape.models.random_inputs import sample_text
    from headscape.recorder.capturing import capture
    from headscape.recorder.interaction import interaction_spectra

    progress("loading the model", 0, 1)
    loaded = load_model(source, device=device, dtype=dtype)
    if loaded.model.main_input_name == "pixel_values" and not image:
        raise InputError("this model looks at images: give at least one with --image FILE.")
    found = capture(
        loaded, image or text or sample_text(), windows=windows, length=length, progress=progress
    ).select(stack)
    size = sum(weight.numel() for weight in loaded.model.parameters())
    try:
        return found, interaction_spectra(loaded.model, found.records(0)), size, ""
    except ModelError as error:
        return found, None, size, str(error)


def _one_head(text: str) -> tuple[int, int]:
    heads = sorted(parse_heads(text, "--head"))
    if len(heads) != 1:
        raise InputError(f"--head takes one head such as 5.0, but {text!r} names {len(heads)}.")
    return heads[0]


def _draw(
    capture: Any,
    tables: Any,
    head: tuple[int, int] | None,
    interaction: Any,
    folder: Path,
    formats: list[str],
) -> list[Path]:
    from headscape.report.energy_figures import energy_figures
    from headscape.report.style import save_figures

    figures = energy_figures(capture, tables, head=head, interaction=interaction)
    return save_figures(figures, folder / "figures", formats)


def _draw_models(summaries: list[dict[str, Any]], folder: Path, formats: list[str]) -> list[Path]:
    """Draw mu_K of this model and of earlier ones against their size."""
    from headscape.report.energy_figures import ModelIncoherence, incoherence_models_figure
    from headscape.report.style import save_figures

    models = []
    for summary in summaries:
        mu = next(s["values"] for s in summary["statements"] if s["name"] == "key incoherence")
        source = summary["model"] or {}
        models.append(
            ModelIncoherence(
                str(source.get("name", "model")),
                float(summary["parameters"]),
                mu["median"],
                mu["q25"],
                mu["q75"],
                str(source.get("type", "")),
            )
        )
    return save_figures(
        {"incoherence_models": incoherence_models_figure(models)}, folder / "figures", formats
    )


def _earlier(folder: Path) -> dict[str, Any]:
    """Read the summary of an earlier run, or raise if it cannot be drawn beside others."""
    path = folder / "energy.json"
    try:
        summary: dict[str, Any] = json_module.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path} cannot be read ({error}). Give the folder of an earlier 'headscape energy'."
        ) from error
    check_format(summary.get("format"), FORMAT, 1, path)
    if not summary.get("parameters"):
        raise InputError(
            f"{path} comes from a capture, which does not know the size of its model: run it on the model."
        )
    return summary


def _summary(capture: Any, tables: Any, statements: Any, remark: str, size: int | None) -> dict[str, Any]:
    return {
        "format": f"headscape/{FORMAT}/1",
        "versions": software_versions(),
        "input_hash": capture.provenance.get("input_hash"),
        "model": capture.provenance.get("model"),
        "parameters": size,
        "stack": capture.stack,
        "centering": "full",
        "windows": capture.n_windows,
        "lengths": list(tables.lengths),
        "heads": len(capture.heads),
        "kv_heads": len(capture.kv_heads),
        "statements": [
            {
                "name": s.name,
                "text": s.text,
                "values": {name: None if v != v else float(v) for name, v in s.values.items()},
                "published": s.published,
                "exceptions": [list(pair) for pair in s.exceptions],
            }
            for s in statements
        ],
        "remark": remark,
    }
