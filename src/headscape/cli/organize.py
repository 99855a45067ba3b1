"""``headscape organize``: trees, geometry and pictures of one window."""

import json
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import typer

from headscape.cli.console import Console
from headscape.cli.given import check_given, engine_of, formats_of, inputs_of, opened
from headscape.cli.options import FIGURES, INPUTS, RUN, STACK, TENSORS, THREADS, SourceName, with_options
from headscape.cli.organize_folder import (
    own_folder,
    require_same_input,
    require_same_options,
    save_organization,
)
from headscape.cli.organize_streamed import bytes_of, capture_of, organize_streamed, planned, tell_plan
from headscape.cli.progress import Display, announce_time, shown_progress
from headscape.errors import InputError


@with_options(TENSORS, INPUTS, STACK, THREADS, FIGURES, RUN)
def organize(
    source: SourceName,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for the results.")] = None,
    window: Annotated[int, typer.Option(help="Which window of a model, a capture or a study, from 0.")] = 0,
    n_iter: Annotated[int, typer.Option(help="Iterations of the tree building (questionnaire).")] = 3,
    alpha: Annotated[
        float | None,
        typer.Option(help="Folder weights fall with the level by 2^-alpha. (default: 0; one matrix: 1)"),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Folder weights grow with the size to the beta. (default: 1; one matrix: 0)"),
    ] = None,
    init: Annotated[Literal["cosine", "gaussian"], typer.Option(help="Initial affinity.")] = "cosine",
    tree: Annotated[
        Literal["flexible", "binary", "linkage"], typer.Option(help="Kind of trees.")
    ] = "flexible",
    head_trees: Annotated[
        Literal["latest", "initial"],
        typer.Option(help="Trees the head axis sees; 'initial' as in the published numbers."),
    ] = "latest",
    eps_scale: Annotated[float, typer.Option(help="Scale of the affinity, in median EMDs.")] = 1.0,
    tree_constant: Annotated[float, typer.Option(help="Larger: smaller folders.")] = 1.0,
    n_eigs: Annotated[int, typer.Option(help="Eigenpairs, the trivial one included.")] = 12,
    max_memory: Annotated[
        float, typer.Option(help="Bound on the working memory of the EMDs, in MiB.")
    ] = 1024,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Organize a capture, without its tensor and so without figures, in this much memory, for example 4GiB."
        ),
    ] = None,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate",
            help="With --memory: estimate distances from a sample of 8-bit features, and say the error.",
        ),
    ] = False,
    heads_only: Annotated[
        bool,
        typer.Option(
            "--heads-only", help="With --memory: only the heads, by the initial trees of queries and keys."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --memory: say what it would take, and end.")
    ] = False,
    *,
    given: SimpleNamespace,
) -> None:
    """Organize the queries, keys and heads of one window into trees.

    About 2 seconds for 256 x 256 x 270 on 2 cores.

    Example:  headscape organize attention.npy --axes layer,head,query,key -o out/organized
    """
    check_given([source], given)
    formats, inputs = formats_of(given.figures), inputs_of(given)
    limit = None if memory is None else bytes_of(memory, "--memory")
    modes = {"--dry-run": dry_run, "--approximate": approximate, "--heads-only": heads_only}
    if limit is None and any(modes.values()):
        name = next(name for name, chosen in modes.items() if chosen)
        raise InputError(f"{name} goes with --memory: specify that too.")
    from headscape.geometry.organization import organize as organize_tensor
    from headscape.geometry.questionnaire import Questionnaire
    from headscape.report.geometry_figures import organization_figures
    from headscape.report.style import save_figures
    from headscape.study.expected_time import organizing_seconds, seconds_of
    from headscape.tensor.checks import MAX_WINDOWS, require_integer, require_number

    require_integer(window, "--window", 0, MAX_WINDOWS)
    require_number(max_memory, "--max-memory", 1, 2**24)
    parameters: dict[str, Any] = {
        "n_iter": n_iter,
        "init": init,
        "tree": tree,
        "head_trees": head_trees,
        "eps_scale": eps_scale,
        "tree_constant": tree_constant,
        "n_eigs": n_eigs,
    }
    Questionnaire(**parameters, alpha=alpha or 0.0, beta=beta or 0.0).check()
    folder = Path() if dry_run and out is None else own_folder(out)
    with shown_progress(quiet=given.quiet) as progress, engine_of(given) as engine:
        progress("opening the source", 0, 1)
        found = opened([source], given)
        start = time.perf_counter()
        if limit is not None:
            capture = capture_of(found, given.stack)
            weights = {"alpha": alpha or 0.0, "beta": 1.0 if beta is None else beta}
            options = {**parameters, **weights, "approximate": approximate, "heads_only": heads_only}
            if out is not None:
                read = {"window": window, "field": given.field or "probs", "seed": given.seed}
                require_same_options(folder, {**options, **read})
                require_same_input(folder, str(capture.provenance.get("input_hash", "")))
            if dry_run:
                tell_plan(planned(capture, window, limit, options, engine), given)
                return
            result = organize_streamed(capture, window, folder, limit, options, given, engine, progress)
            save_organization(result, folder)
            _tell(
                Console(quiet=given.quiet, json=given.json),
                _written(result, time.perf_counter() - start, folder, []),
            )
            return
        sizes = {"windows": window + 1, "length": given.length, "stack": given.stack}
        expected = partial(organizing_seconds, n_iter=n_iter)
        announce_time(progress, given, lambda: seconds_of(expected, found, inputs, **sizes))
        data = _tensor(found, inputs, window, given, progress)
        matrix = data.data.ndim == 2
        parameters["alpha"] = (1.0 if matrix else 0.0) if alpha is None else alpha
        parameters["beta"] = (0.0 if matrix else 1.0) if beta is None else beta
        require_same_options(folder, {**parameters, "approximate": False, "heads_only": False})
        result = organize_tensor(
            data,
            **parameters,
            max_bytes=int(max_memory * 2**20),
            engine=engine,
            progress=progress,
        )
        seconds = time.perf_counter() - start
        folder.mkdir(parents=True, exist_ok=True)
        save_organization(result, folder)
        progress("drawing", 1, 1)
        figures = organization_figures(data, result) if formats else {}
        pictures = save_figures(figures, folder / "figures", formats) if formats else []
    summary = _written(result, seconds, folder, pictures)
    _tell(Console(quiet=given.quiet, json=given.json), summary)


def _tensor(source: Any, inputs: Any, window: int, given: SimpleNamespace, progress: Display) -> Any:
    """Return the tensor of one window of any source."""
    from headscape.models.loading import Model
    from headscape.models.sample_text import sample_text
    from headscape.recorder.capturing import capture
    from headscape.study.study import Study
    from headscape.tensor.capture import Capture

    if isinstance(source, Model):
        shown = sample_text() if inputs is None else inputs
        options = {"length": given.length or 256, "sample": given.sample.value, "seed": given.seed}
        source = capture(source, shown, windows=window + 1, **options, progress=progress)
    data = source.data if isinstance(source, Study) else source
    data = data.select(given.stack)
    if isinstance(data, Capture):
        return data.tensor(window, given.field or "probs")
    return data.tensor(window, given.field)


def _written(result: Any, seconds: float, folder: Path, pictures: list[Path]) -> dict[str, Any]:
    """Write the trees in Newick format and the summary, and return it."""
    from headscape.output import json_ready
    from headscape.tensor.store import write_text_atomically

    axes = {}
    for axis, tree in result.trees.items():
        write_text_atomically(folder / f"tree_{axis}.nwk", tree.to_newick(result.labels(axis)) + "\n")
        last = result.history[axis][-1]
        axes[axis] = {
            "points": tree.n_points,
            "folders": tree.n_folders,
            "levels": tree.depth,
            "emd_change": json_ready(last.emd_change),
            "folder_jaccard": json_ready(last.folder_jaccard),
            "order": tree.order.tolist(),
        }
    summary = {
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
    write_text_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary


def _tell(console: Console, summary: dict[str, Any]) -> None:
    console.result(summary)
    rows = [
        (axis, v["points"], v["folders"], v["levels"], _percent(v["emd_change"]))
        for axis, v in summary["axes"].items()
    ]
    console.table("Organized", ("axis", "points", "folders", "levels", "last EMD change"), rows)
    for warning in summary["warnings"]:
        console.say(f"Warning: {warning['name']} ({warning['axis']}): {warning['message']}")
    for axis, error in summary["parameters"].get("errors", {}).items():
        console.say(
            f"Distances of the {axis} axis are estimates: expected relative error {error['relative_error_median']:.2%} "
            f"in the median, {error['relative_error_95']:.2%} at the 95th percentile."
        )
    console.say(
        f"{summary['seconds']:.1f} s. Results: {summary['out']}/organization, summary.json, tree_*.nwk"
    )
    if summary["figures"]:
        console.say(f"Figures: {summary['out']}/figures ({len(summary['figures'])} files)")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
