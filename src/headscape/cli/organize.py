"""``headscape organize``: trees, geometry and pictures of one network tensor."""

import json as json_module
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.options import Json, Quiet

SYNTHETIC = "synthetic"


class TreeChoice(StrEnum):
    """The kinds of trees."""

    flexible = "flexible"
    binary = "binary"


class InitChoice(StrEnum):
    """The initial affinities."""

    cosine = "cosine"
    gaussian = "gaussian"


class HeadTreesChoice(StrEnum):
    """Which query and key trees the head axis sees."""

    latest = "latest"
    initial = "initial"


def organize(
    tensor: Annotated[
        str,
        typer.Argument(
            help="A .npy, .npz or .safetensors file, a zarr folder, or the word 'synthetic' for a built-in example."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for results and pictures.")],
    array: Annotated[str | None, typer.Option(help="Which array, if the file holds several.")] = None,
    axes: Annotated[
        str | None, typer.Option(help="Order of the axes in the file, for example 'layer,head,query,key'.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="What the numbers are: probs, logits or energy.")] = None,
    n_iter: Annotated[int, typer.Option(help="Iterations of the questionnaire.")] = 3,
    alpha: Annotated[
        float | None,
        typer.Option(help="Folder weights fall with the level by 2^-alpha. (default: 0; one matrix: 1)"),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Folder weights grow with the size to the beta. (default: 1; one matrix: 0)"),
    ] = None,
    init: Annotated[InitChoice, typer.Option(help="Initial affinity.")] = InitChoice.cosine,
    tree: Annotated[TreeChoice, typer.Option(help="Kind of trees.")] = TreeChoice.flexible,
    head_trees: Annotated[
        HeadTreesChoice, typer.Option(help="Trees the head axis sees; 'initial' as in the published numbers.")
    ] = HeadTreesChoice.latest,
    eps_scale: Annotated[float, typer.Option(help="Scale of the affinity, in median EMDs.")] = 1.0,
    tree_constant: Annotated[float, typer.Option(help="Larger: smaller folders.")] = 1.0,
    n_eigs: Annotated[int, typer.Option(help="Eigenpairs, the trivial one included.")] = 12,
    max_memory: Annotated[
        float, typer.Option(help="Bound on the working memory of the EMDs, in MiB.")
    ] = 1024,
    threads: Annotated[int | None, typer.Option(help="Threads; by default one per core.")] = None,
    figures: Annotated[str, typer.Option(help="Formats of the pictures: png,svg,pdf or none.")] = "png",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Organize the queries, keys and heads of a network tensor into trees.

    Example:  headscape organize attention.npy --axes layer,head,query,key -o out/organized
    """
    from headscape.engine import LocalEngine
    from headscape.geometry.organization import organize as organize_tensor
    from headscape.tensor.files import load_tensor
    from headscape.tensor.store import write_text_atomically
    from headscape.tensor.synthetic import planted_tensor

    console = Console(quiet=quiet, json=json)
    formats = [] if figures == "none" else figures.split(",")
    data = (
        planted_tensor() if tensor == SYNTHETIC else load_tensor(tensor, array=array, axes=axes, field=field)
    )
    folder = output_folder(out)
    matrix = data.data.ndim == 2
    start = time.perf_counter()
    with console.progress() as progress:
        result = organize_tensor(
            data,
            n_iter=n_iter,
            alpha=(1.0 if matrix else 0.0) if alpha is None else alpha,
            beta=(0.0 if matrix else 1.0) if beta is None else beta,
            init=init.value,
            tree=tree.value,
            head_trees=head_trees.value,
            eps_scale=eps_scale,
            tree_constant=tree_constant,
            n_eigs=n_eigs,
            max_bytes=int(max_memory * 2**20),
            engine=LocalEngine() if threads is None else LocalEngine(threads),
            progress=progress,
        )
        seconds = time.perf_counter() - start
        result.save(folder / "organization")
        pictures = _draw(data, result, folder / "figures", formats, progress) if formats else []
    for axis in result.axes:
        newick = result.trees[axis].to_newick(result.labels(axis))
        write_text_atomically(folder / f"tree_{axis}.nwk", newick + "\n")
    summary = _summary(result, seconds, folder, pictures)
    write_text_atomically(folder / "summary.json", json_module.dumps(summary, indent=2) + "\n")
    _tell(console, summary)


def _draw(data: Any, result: Any, folder: Path, formats: list[str], progress: Any) -> list[Path]:
    from headscape.report.geometry_figures import organization_figures
    from headscape.report.style import save_figures

    progress("drawing", 0, 1)
    paths = save_figures(organization_figures(data, result), folder, formats)
    progress("drawing", 1, 1)
    return paths


def _summary(result: Any, seconds: float, folder: Path, pictures: list[Path]) -> dict[str, Any]:
    axes = {}
    for axis, tree in result.trees.items():
        last = result.history[axis][-1]
        axes[axis] = {
            "points": tree.n_points,
            "folders": tree.n_folders,
            "levels": tree.depth,
            "emd_change": None if last.emd_change != last.emd_change else last.emd_change,
            "folder_jaccard": None if last.folder_jaccard != last.folder_jaccard else last.folder_jaccard,
            "order": tree.order.tolist(),
        }
    return {
        "format": "headscape/organize-summary/1",
        "axes": axes,
        "warnings": [{"name": w.name, "axis": w.axis, "message": w.message} for w in result.warnings],
        "parameters": dict(result.parameters),
        "input_hash": result.input_hash,
        "field": result.field,
        "seconds": round(seconds, 3),
        "out": str(folder),
        "figures": [str(path) for path in pictures],
    }


def _tell(console: Console, summary: dict[str, Any]) -> None:
    console.result(summary)
    rows = [
        (
            axis,
            v["points"],
            v["folders"],
            v["levels"],
            "-" if v["emd_change"] is None else f"{v['emd_change']:.1%}",
        )
        for axis, v in summary["axes"].items()
    ]
    console.table("Organized", ("axis", "points", "folders", "levels", "last EMD change"), rows)
    for warning in summary["warnings"]:
        console.say(f"warning: {warning['name']} ({warning['axis']}): {warning['message']}")
    console.say(
        f"{summary['seconds']:.1f} s. Results: {summary['out']}/organization, summary.json, tree_*.nwk"
    )
    if summary["figures"]:
        console.say(f"Pictures: {summary['out']}/figures ({len(summary['figures'])} files)")
