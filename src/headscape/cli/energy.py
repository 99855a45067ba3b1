"""``headscape energy``: invariants, spectra, incoherence and spread of the energy field of every head."""

import json as json_module
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.ranges import parse_heads, parse_numbers
from headscape.errors import InputError


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
        Path | None, typer.Option(help="Text file (UTF-8) for a model.  [Python's own help texts]")
    ] = None,
    image: Annotated[list[Path] | None, typer.Option(help="Image file for a model of images.")] = None,
    windows: Annotated[int | None, typer.Option(help="How many windows of a model.  [6]")] = None,
    length: Annotated[int, typer.Option(help="Tokens per window of a model.")] = 256,
    lengths: Annotated[
        str | None, typer.Option(help="Prefixes to measure at, for example 64,128,256.  [powers of two]")
    ] = None,
    stack: Annotated[
        str | None, typer.Option(help="Which stack of a model with several.  [the first]")
    ] = None,
    head: Annotated[str | None, typer.Option(help="Head to draw, as layer.head.  [a typical one]")] = None,
    signatures: Annotated[
        bool,
        typer.Option("--signatures", help="Also zero-sum and spectral signatures of every head (slower)."),
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Also write the tables as CSV.")] = False,
    figures: Annotated[str, typer.Option(help="Formats of the pictures: png,svg,pdf or none.")] = "png",
    device: Annotated[str | None, typer.Option(help="Where a model runs, for example cuda.  [cpu]")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16, for a model.")] = "float32",
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Measure the energy field of every head and say what holds for the model, with counter-examples.

    Example:  headscape energy default -o out/energy --csv
    """
    console = Console(quiet=quiet, json=json)
    chosen = None if lengths is None else parse_numbers(lengths, "--lengths")
    shown = None if head is None else _one_head(head)
    formats = [] if figures == "none" else figures.split(",")
    folder = output_folder(out)
    from headscape.energy.statements import energy_statements
    from headscape.energy.table import energy_tables
    from headscape.tensor.store import write_text_atomically

    start = time.perf_counter()
    with console.progress() as progress:
        capture, interaction, remark = _captured(
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
        pictures = _draw(capture, tables, shown, interaction, folder, formats) if formats else []
    if csv:
        for name, table in (("heads", tables.heads), ("kv_heads", tables.kv_heads)):
            write_text_atomically(folder / f"energy_{name}.csv", table.to_csv(index=False))
    summary = _summary(capture, tables, statements, remark)
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
) -> tuple[Any, Any, str]:
    """Return the capture, the learned interactions if a model is at hand, and why they are missing if not."""
    from headscape.errors import ModelError
    from headscape.tensor.capture import Capture
    from headscape.tensor.store import HEADER

    if (Path(source) / HEADER).exists():
        if text is not None or image:
            raise InputError(f"{source} is a capture, which holds its windows: leave out --text and --image.")
        return Capture.load(source).select(stack), None, "W_Q^T W_K is not known: a capture holds no weights."
    from headscape.recorder.capturing import capture
    from headscape.recorder.interaction import interaction_spectra
    from headscape.recorder.models import load_model
    from headscape.recorder.probe import sample_text

    progress("loading the model", 0, 1)
    loaded = load_model(source, device=device, dtype=dtype)
    if loaded.model.main_input_name == "pixel_values" and not image:
        raise InputError("this model looks at images: give at least one with --image FILE.")
    found = capture(
        loaded, image or text or sample_text(), windows=windows, length=length, progress=progress
    ).select(stack)
    try:
        return found, interaction_spectra(loaded.model, found.records(0)), ""
    except ModelError as error:
        return found, None, str(error)


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


def _summary(capture: Any, tables: Any, statements: Any, remark: str) -> dict[str, Any]:
    return {
        "format": "headscape/energy-summary/1",
        "model": capture.provenance.get("model"),
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
