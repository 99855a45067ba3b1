"""``headscape reproduce``: the tables and figures of both papers, each claim beside what is found here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.given import require_file
from headscape.cli.options import INPUTS, OUTPUT, THREADS, Out, with_options
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError


@with_options(
    {name: INPUTS[name] for name in ("text", "images", "seed")}, {"threads": THREADS["threads"]}, OUTPUT
)
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments by name, or 'all'; --list names them.")
    ] = None,
    out: Out = Path("out/reproduction"),
    describe: Annotated[
        bool, typer.Option("--list", help="List the experiments with what they take, and exit.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A trial at small sizes; it says nothing about the papers.")
    ] = False,
    language: Annotated[str, typer.Option(help="Language model: a name or folder.")] = "default",
    encoder: Annotated[str, typer.Option(help="Encoder: a name or folder.")] = "minilm",
    transformer_xl: Annotated[
        str | None,
        typer.Option(help="Folder of a Transformer-XL. (default: one of 16 x 8 heads, trained for 60 steps)"),
    ] = None,
    vision: Annotated[
        str | None,
        typer.Option(help="Trained image model, beside a ViT-B/16 with random weights. (default: none)"),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="One more model for key-incoherence; 'paper' for its 16 models by hub name."),
    ] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Run the experiments of the papers, and set each claim beside what is found on the networks at hand.

    'all' takes less than an hour on 2 cores; --list says what single ones take. An interrupted run resumes when called
    again in the same way; finished experiments and networks are shared between calls with the same -o.

    Example:  headscape reproduce table-1 figure-3 --text book.txt -o out/reproduction
    """
    from headscape.output import json_ready
    from headscape.study.reproduction.costs import expected_seconds
    from headscape.study.reproduction.experiments import EXPERIMENTS, chosen_experiments

    console = Console(quiet=given.quiet, json=given.json)
    if describe:
        rows = [one.describe() | {"minutes": expected_seconds([one]) / 60} for one in EXPERIMENTS]
        minutes = expected_seconds(EXPERIMENTS) / 60
        console.result({"experiments": rows, "minutes": minutes})
        columns = ("name", "paper", "place", "title", "networks", "minutes")
        console.table(
            "Experiments (headscape reproduce NAME ...)",
            ("name", "paper", "place", "about", "networks", "minutes alone"),
            [[_cell(row[column]) for column in columns] for row in rows],
        )
        console.say(
            f"All together: about {minutes:.0f} minutes on one core, as they share networks and trees."
        )
        return
    if not names:
        raise InputError("name at least one experiment, or 'all'; headscape reproduce --list names them.")
    wanted = chosen_experiments(names)
    for path in given.text or []:
        require_file(path, "--text")
    folder = output_folder(out)
    from headscape.engine import LocalEngine
    from headscape.study.reproduction.reproduce import reproduce as run

    with shown_progress(quiet=given.quiet) as progress:
        announce_time(progress, given, lambda: expected_seconds(wanted, folder, quick=quick))
        found = run(
            names,
            folder,
            quick=quick,
            language=language,
            encoder=encoder,
            transformer_xl=transformer_xl,
            vision=vision,
            models=models or (),
            texts=given.text or (),
            images=given.images,
            seed=given.seed,
            engine=LocalEngine() if given.threads is None else LocalEngine(given.threads),
            progress=progress,
        )
        report = found.report(folder / "report.html")
    console.result(json_ready(found.summary()) | {"out": str(folder), "report": str(report)})
    console.say(found.headline)
    for one in found.experiments:
        evidence = found.evidence[one.name]
        console.say(f"\n{one.name} ({one.place}): {evidence.verdict}. The paper: {one.claim}")
        for observation in evidence.observations:
            control = "control: " if observation.control else ""
            console.say(
                f"{observation.network}: {observation.found} ({control}{observation.verdict})", indent=2
            )
    console.say(f"\nThe page is {report}; tables, pictures and summary.json are in {folder}.")


def _cell(value: object) -> str:
    """Return a value as the table of ``--list`` shows it."""
    if isinstance(value, float):
        return f"{value:.1f}"
    return ", ".join(value) if isinstance(value, list) else str(value)
