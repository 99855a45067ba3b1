"""``headscape capture``: queries and keys of a model, window by window, into a folder."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console
from headscape.cli.options import Device, Dtype, Json, ModelName, Quiet, Revision, TrustRemoteCode
from headscape.cli.ranges import parse_heads, parse_numbers
from headscape.errors import InputError


def capture(
    model: ModelName,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the capture.")],
    text: Annotated[Path | None, typer.Option(help="Text file (UTF-8), cut into windows.")] = None,
    image: Annotated[
        list[Path] | None, typer.Option(help="Image file, a window each; give it several times for several.")
    ] = None,
    windows: Annotated[
        int | None, typer.Option(help="How many windows. (default: up to 6 of a text; all images)")
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens per window.")] = 256,
    layers: Annotated[str | None, typer.Option(help="Only these layers, for example 0-5,8.")] = None,
    heads: Annotated[
        str | None, typer.Option(help="Only these heads as layer.head, for example 3.0,3.7.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also keep the model's own probabilities (large).")
    ] = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Capture the queries and keys of every attention head. A stopped capture goes on when called again.

    Example:  headscape capture default --text book.txt -o out/capture --windows 6 --length 256 --layers 0-5,8
    """
    if (text is None) == (not image):
        raise InputError("give what the model shall look at: either --text FILE or --image FILE.")
    console = Console(quiet=quiet, json=json)
    chosen_layers = None if layers is None else parse_numbers(layers, "--layers")
    chosen_heads = None if heads is None else parse_heads(heads, "--heads")
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.recorder.capturing import capture as capture_model

    start = time.perf_counter()
    with console.progress() as progress:
        progress("loading the model", 0, 1)
        result = capture_model(
            model,
            text if text is not None else image,
            windows=windows,
            length=length,
            layers=chosen_layers,
            heads=chosen_heads,
            exact=exact,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            path=out,
            progress=progress,
        )
    summary = _summary(result, out, time.perf_counter() - start)
    console.result(summary)
    rows = [
        (name, s["layers"], s["heads"], s["kv_heads"], f"{s['queries']} x {s['keys']}")
        for name, s in summary["stacks"].items()
    ]
    console.table("Captured", ("stack", "layers", "heads", "key-value heads", "queries x keys"), rows)
    console.say(f"{summary['windows']} windows in {summary['seconds']:.1f} s. Capture: {out}")


def _summary(result: Any, out: Path, seconds: float) -> dict[str, Any]:
    stacks = {}
    for name in result.stacks:
        part = result.select(name)
        first = part.record(0, part.layers[0])
        stacks[name] = {
            "layers": len(part.layers),
            "heads": len(part.heads),
            "kv_heads": len(part.kv_heads),
            "queries": first.queries.shape[1],
            "keys": first.keys.shape[1],
        }
    return {
        "format": "headscape/capture-summary/1",
        "model": result.provenance["model"],
        "windows": result.n_windows,
        "stacks": stacks,
        "input_hash": result.provenance["input_hash"],
        "seconds": round(seconds, 3),
        "out": str(out),
    }
