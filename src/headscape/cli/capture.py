"""``headscape capture``: queries and keys of a model, window by window, into a folder."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.given import check_given, engine_of, inputs_of, opened, parse_heads, parse_numbers
from headscape.cli.options import ENGINE, HEADS, INPUTS, RUN, WINDOWS, ModelName, Out, with_options
from headscape.cli.progress import announce_time, shown_progress
from headscape.output import counted


@with_options(INPUTS, WINDOWS, HEADS, ENGINE, RUN)
def capture(
    model: ModelName,
    out: Out,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also keep the model's own probabilities (large).")
    ] = False,
    *,
    given: SimpleNamespace,
) -> None:
    """Capture the queries and keys of every attention head.

    About the time of one forward pass per window. An interrupted capture resumes when called again.

    Example:  headscape capture default --text book.txt -o out/capture --windows 6 --length 256 --layers 0-5,8
    """
    check_given([model], given, runs_model="capture")
    inputs = inputs_of(given)
    layers, heads = parse_numbers(given.layers, "--layers"), parse_heads(given.heads, "--heads")
    folder = output_folder(out)
    # Loading torch takes seconds: only after the options are known to be good.
    from headscape.models.sample_text import sample_text
    from headscape.recorder.capturing import capture as capture_model
    from headscape.study.expected_time import capture_seconds, seconds_of
    from headscape.study.source import require_model

    sizes = {"windows": given.windows, "length": given.length}
    start = time.perf_counter()
    with shown_progress(quiet=given.quiet) as progress, engine_of(given) as engine:
        progress("loading the model", 0, 1)
        source = require_model(opened([model], given), "capture")
        announce_time(progress, given, lambda: seconds_of(capture_seconds, source, inputs, **sizes))
        result = capture_model(
            source,
            sample_text() if inputs is None else inputs,
            windows=given.windows,
            length=given.length or 256,
            sample=given.sample.value,
            seed=given.seed,
            layers=layers,
            heads=heads,
            exact=exact,
            path=folder,
            engine=engine,
            progress=progress,
        )
    summary = _summary(result, folder, time.perf_counter() - start)
    console = Console(quiet=given.quiet, json=given.json)
    console.result(summary)
    rows = [
        (name, s["layers"], s["heads"], s["kv_heads"], f"{s['queries']} x {s['keys']}")
        for name, s in summary["stacks"].items()
    ]
    console.table("Captured", ("stack", "layers", "heads", "key-value heads", "queries x keys"), rows)
    if "observed_by" in summary:
        console.say(
            f"Attention was seen by the {summary['observed_by']}: the model computes it in code of its own"
            f"{'' if result.has_products else ', which shows no queries and keys'}."
        )
    console.say(f"{counted(summary['windows'], 'window')} in {summary['seconds']:.1f} s. Capture: {folder}")


def _summary(result: Any, out: Path, seconds: float) -> dict[str, Any]:
    stacks = {}
    for name in result.stacks:
        part = result.select(name)
        first = part.record(0, part.layers[0])
        stacks[name] = {
            "layers": len(part.layers),
            "heads": len(part.heads),
            "kv_heads": len(part.kv_heads),
            "queries": first.n_queries,
            "keys": first.n_keys,
        }
    return {
        "format": "headscape/capture-summary/1",
        "model": result.provenance["model"],
        "windows": result.n_windows,
        "sources": result.provenance.get("sources"),
        "stacks": stacks,
        **{name: result.provenance[name] for name in ("observed_by",) if name in result.provenance},
        "input_hash": result.provenance["input_hash"],
        "seconds": round(seconds, 3),
        "out": str(out),
    }
