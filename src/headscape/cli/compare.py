"""``headscape compare``: two networks or more, what differs between them, and whether that is more than noise."""

import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.console import Console, output_folder
from headscape.cli.given import (
    check_given,
    engine_of,
    inputs_of,
    loading_of,
    parse_numbers,
    require_file,
    tell_conversion,
)
from headscape.cli.options import (
    INPUTS,
    RUN,
    SOURCE_HELP,
    STACK,
    TENSORS,
    THREADS,
    WINDOWS,
    Out,
    option,
    with_options,
)
from headscape.cli.progress import announce_time, shown_progress
from headscape.errors import InputError

FIRST_ANSWERS = 4
"""Answers to one question that the terminal shows; the report and --json have all."""

COMPARED = {
    **INPUTS,
    **WINDOWS,
    **TENSORS,
    **STACK,
    "layers": option(str | None, "Only these layers of every network, for example 0-5,8."),
    "text_each": option(list[Path] | None, "Text file of one network; repeat it for each, in their order."),
    "layers_each": option(list[str] | None, "Layers of one network; repeat it for each, in their order."),
    "names": option(str | None, "What the networks are called, separated by commas."),
    **THREADS,
    **RUN,
}


@with_options(COMPARED)
def compare(
    sources: Annotated[list[str], typer.Argument(help=f"Two or more. {SOURCE_HELP}")],
    out: Out = Path("out/comparison"),
    *,
    given: SimpleNamespace,
) -> None:
    """Compare networks: what differs, which heads belong together, and what is only noise.

    About 3 minutes for two models of the default's size on 2 cores: models are analyzed first, studies are taken as
    they are. An interrupted run resumes when called again in the same way.

    Examples:  headscape compare model/ finetuned/ --text book.txt -o out/compared

    headscape compare default default --layers-each 0-14 --layers-each 15-29 -o out/halves
    """
    if len(sources) < 2:
        raise InputError(f"compare needs at least two sources, but got {len(sources)}.")
    _check(sources, given)
    inputs, layers = inputs_of(given), parse_numbers(given.layers, "--layers")
    inputs_each, layers_each = _each(sources, given)
    names = None if given.names is None else [name.strip() for name in given.names.split(",")]
    folder = output_folder(out)
    from headscape.analysis.comparison.gromov_wasserstein import require_pot
    from headscape.study.compare import compare as compare_networks
    from headscape.study.expected_time import comparing_seconds
    from headscape.study.source import open_source

    require_pot()
    options = {name: getattr(given, name) for name in ("array", "axes", "field")}
    with shown_progress(quiet=given.quiet) as progress, engine_of(given) as engine:
        progress("opening the sources", 0, 1)
        for source in dict.fromkeys(sources):
            tell_conversion(source, given)
        opened = [open_source(source, **options, load=loading_of(given)) for source in sources]
        sizes = {"windows": given.windows, "length": given.length, "stack": given.stack, "layers": layers}
        announce_time(
            progress, given, lambda: comparing_seconds(opened, inputs, folder, layers_each, **sizes)
        )
        found = compare_networks(
            opened,
            inputs,
            out=folder,
            names=names,
            inputs_each=inputs_each,
            layers=layers,
            layers_each=layers_each,
            windows=given.windows,
            length=given.length,
            sample=given.sample.value,
            field=given.field,
            stack=given.stack,
            seed=given.seed,
            command=shlex.join(["headscape", *sys.argv[1:]]),
            engine=engine,
            progress=progress,
        )
        progress("writing the report", 1, 1)
        report = found.report(folder / "report.html")
    _tell(Console(quiet=given.quiet, json=given.json), found, folder, report)


def _each(
    sources: list[str], given: SimpleNamespace
) -> tuple[list[Path] | None, list[list[int] | None] | None]:
    """Return the text and the layers of every network, where they were given one by one."""
    n = len(sources)
    for name, shared in (("text_each", ("text", "images")), ("layers_each", ("layers",))):
        flag, values = f"--{name.replace('_', '-')}", getattr(given, name)
        if values and len(values) != n:
            raise InputError(
                f"{flag} must be given once per network ({n} times), but was given {len(values)} times."
            )
        both = [other for other in shared if values and getattr(given, other)]
        if both:
            raise InputError(f"specify either --{both[0]} or {flag}, not both.")
    from headscape.study.source import MODEL, source_kind

    for path, source in zip(given.text_each or (), sources, strict=False):
        require_file(path, "--text-each")
        if source_kind(source) != MODEL:
            raise InputError(f"--text-each is for models, but {source} is a {source_kind(source)}.")
    layers = [parse_numbers(text, "--layers-each") for text in given.layers_each or ()]
    return given.text_each or None, layers or None


def _check(sources: list[str], given: SimpleNamespace) -> None:
    """Raise unless the options are good, and apply to one of the sources at least."""
    refused: list[InputError] = []
    for source in sources:
        try:
            check_given([source], given)
        except InputError as error:
            refused.append(error)
    if len(refused) == len(sources):
        raise refused[0]


def _tell(console: Console, found: Any, folder: Path, report: Path) -> None:
    """Print the headline, the answers by question, the warnings, and where the rest is."""
    from headscape.output import json_ready

    summary = json_ready(found.summary()) | {"out": str(folder), "report": str(report)}
    console.result(summary)
    console.say(found.headline)
    for question in dict.fromkeys(finding.question for finding in found.findings):
        answers = [one for one in found.findings[1:] if one.question == question]
        if answers:
            console.say(f"\n{question}")
        for answer in answers[:FIRST_ANSWERS]:
            console.say(str(answer), indent=2)
    console.say("")
    for warning in found.warnings:
        console.say(f"Warning: {warning}")
    console.say(
        f"{found.about['seconds'] / 60:.1f} minutes. Report: {report}. Tables: {folder}/changes.csv and others."
    )
