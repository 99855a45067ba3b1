"""``headscape softmax``: softmax against its paraproduct, head by head, and the paper's claim in words."""

import json as json_module
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.options import Json, Quiet
from headscape.cli.ranges import parse_heads
from headscape.errors import InputError

SYNTHETIC = "synthetic"


class MaskedChoice(StrEnum):
    """What is done about masked entries."""

    fill = "fill"
    block = "block"


def softmax(
    source: Annotated[
        str,
        typer.Argument(
            help="A capture folder, a tensor (.npy, .npz, .safetensors, zarr), the word 'synthetic', or a model as in "
            "headscape capture (with --text or --image)."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for results and pictures.")],
    heads: Annotated[
        str | None, typer.Option(help="Only these heads as layer.head, each drawn; for example 3.5,10.7.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Text file for a model.")] = None,
    image: Annotated[list[Path] | None, typer.Option(help="Image file for a model, a window each.")] = None,
    windows: Annotated[int, typer.Option(help="How many windows.")] = 1,
    length: Annotated[int, typer.Option(help="Tokens per window, for a model.")] = 256,
    array: Annotated[str | None, typer.Option(help="Which array, if a file holds several.")] = None,
    axes: Annotated[
        str | None, typer.Option(help="Order of the axes in a file, for example 'layer,head,query,key'.")
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="What a file holds: logits (taken if it does not say), probs or energy."),
    ] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="A file of logits or energies is of a causal model.")
    ] = False,
    masked: Annotated[
        MaskedChoice,
        typer.Option(
            help="Masked entries: filled with the row's mean, or only the block that is fully visible."
        ),
    ] = MaskedChoice.fill,
    n_iter: Annotated[int, typer.Option(help="Iterations of the questionnaire of every head.")] = 10,
    draws: Annotated[int, typer.Option(help="Shuffles that the organized order is compared with.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the shuffles and of the bootstrap.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads; by default one per core.")] = None,
    figures: Annotated[str, typer.Option(help="Formats of the pictures: png,svg,pdf or none.")] = "png",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare the softmax of every head with its paraproduct, and say whether attention is invariant to softmax.

    Example:  headscape softmax out/capture --heads 3.5,10.7 -o out/softmax
    """
    from headscape.analysis.softmax_invariance import softmax_invariance
    from headscape.engine import LocalEngine
    from headscape.tensor.store import write_text_atomically

    console = Console(quiet=quiet, json=json)
    formats = [] if figures == "none" else figures.split(",")
    chosen = None if heads is None else parse_heads(heads, "--heads")
    start = time.perf_counter()
    options: dict[str, Any] = {
        "visible": "causal" if causal else None,
        "masked": masked.value,
        "draws": draws,
        "seed": seed,
        "n_iter": n_iter,
        "engine": LocalEngine() if threads is None else LocalEngine(threads),
    }
    with console.progress() as progress:
        progress("loading", 0, 1)
        if text is None and not image:
            given, count = _open(source, {"array": array, "axes": axes, "field": field}), windows
        else:
            given, count = _capture(source, text, image, windows, length, chosen, progress), None
        folder = output_folder(out)
        study = softmax_invariance(given, heads=chosen, windows=count, progress=progress, **options)
        study.save(folder / "study")
        pictures = _draw(study, given, chosen, options, folder / "figures", formats) if formats else []
    write_text_atomically(folder / "heads.csv", study.to_frame().to_csv(index=False))
    summary = _summary(study, folder, pictures, time.perf_counter() - start)
    write_text_atomically(folder / "summary.json", json_module.dumps(summary, indent=2) + "\n")
    console.result(summary)
    _tell(console, study, summary)


def _open(source: str, file_options: dict[str, Any]) -> Any:
    """Open a capture, a tensor, or the synthetic tensor."""
    from headscape.tensor.capture import KIND, Capture
    from headscape.tensor.files import load_tensor
    from headscape.tensor.store import HEADER, read_header
    from headscape.tensor.synthetic import planted_tensor

    if source == SYNTHETIC:
        return planted_tensor(48, 48, layers=3, heads_per_layer=4)
    path = Path(source)
    if not path.exists():
        raise InputError(
            f"{source} is no file or folder. For a model give what it shall look at: --text FILE or --image FILE."
        )
    if path.is_dir() and (path / HEADER).exists() and f"/{KIND}/" in str(read_header(path).get("format")):
        return Capture.load(path)
    return load_tensor(path, **file_options)


def _capture(
    model: str,
    text: Path | None,
    image: list[Path] | None,
    windows: int,
    length: int,
    heads: list[tuple[int, int]] | None,
    progress: Any,
) -> Any:
    if text is not None and image:
        raise InputError("give either --text FILE or --image FILE, not both.")
    from headscape.recorder.capturing import capture

    inputs = text if text is not None else image
    return capture(model, inputs, windows=windows, length=length, heads=heads, progress=progress)


def _draw(
    study: Any, given: Any, chosen: Any, options: dict[str, Any], folder: Path, formats: list[str]
) -> list[Path]:
    """Draw the network, and the chosen heads (by default three) in the first window."""
    from headscape.analysis.head_logits import LogitSource
    from headscape.analysis.softmax_experiment import softmax_experiment
    from headscape.report.softmax_figures import softmax_figures
    from headscape.report.style import save_figures

    shown = study.heads if chosen is not None else study.examples()
    source = LogitSource(given, shown, options["visible"])
    experiments = {
        head.head: softmax_experiment(head.logits, **(options | {"visible": head.visible, "sink": head.sink}))
        for head in source.window(0)
    }
    return save_figures(softmax_figures(study, experiments), folder, formats)


def _summary(study: Any, folder: Path, pictures: list[Path], seconds: float) -> dict[str, Any]:
    import numpy as np

    quartiles = {}
    for name in study.measures:
        values = study.of_heads(name)
        known = values[np.isfinite(values)]
        quartiles[name] = np.quantile(known, [0.25, 0.5, 0.75]).tolist() if len(known) else None
    found = study.correlation
    return {
        "format": "headscape/softmax-summary/1",
        "verdict": study.verdict,
        "heads": [f"{layer}.{head}" for layer, head in study.heads],
        "windows": len(study.measures["residual"]),
        "quartiles": quartiles,
        "correlation": {name: None if value != value else value for name, value in vars(found).items()},
        "regular_heads": study.n_regular,
        "warnings": [{"name": w.name, "message": w.message} for w in study.warnings],
        "parameters": dict(study.parameters),
        "seconds": round(seconds, 3),
        "out": str(folder),
        "figures": [str(path) for path in pictures],
    }


def _tell(console: Console, study: Any, summary: dict[str, Any]) -> None:
    table = study.to_frame().set_index(["layer", "head"])
    shown = study.heads if len(study.heads) <= 12 else study.examples()
    columns = ("residual", "residual_shuffled", "share_explained", "mean", "mixed_size", "holder_mixed")
    rows = [
        (f"{layer}.{head}", *(f"{table.loc[(layer, head), name]:.3g}" for name in columns))
        for layer, head in shown
    ]
    console.table("Softmax against its paraproduct", ("head", *columns), rows)
    console.say(summary["verdict"])
    for warning in summary["warnings"]:
        console.say(f"warning: {warning['name']}: {warning['message']}")
    console.say(
        f"{summary['seconds']:.1f} s. Results: {summary['out']}/study, heads.csv, summary.json, "
        f"{len(summary['figures'])} pictures"
    )
