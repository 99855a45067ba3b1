"""``headscape analyze``: the main job. A model in, a table of its heads and a report out."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from headscape.cli.analysis import run_analysis
from headscape.cli.options import ANALYSIS, SINKS, Out, SourceNames, option, with_options
from headscape.errors import InputError


@with_options(
    ANALYSIS, SINKS, {"figures": option(str, "Formats of the figures: png,svg,pdf or none.", default="none")}
)
def analyze(
    sources: SourceNames = ["default"],  # noqa: B006  typer copies it
    out: Out = Path("out/analysis"),
    stages: Annotated[
        str | None,
        typer.Option(
            help="Only these stages, for example entropy,energy; +softmax and +ablation add long ones."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: 2 windows of 128 tokens.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of a stage as NAME=VALUE, for example k=200 or lengths=64,128."),
    ] = None,
    *,
    given: SimpleNamespace,
) -> None:
    """Map the heads of a model: capture, organize, measure, and write one table and one report.

    25 to 70 seconds for the default model on 2 cores, and 40 more the first time, when its weights are converted. An
    interrupted run resumes when called again in the same way.

    Example:  headscape analyze default --text book.txt -o out/book
    """
    if quick and None not in (given.windows, given.length):
        raise InputError("--quick chooses windows and length, but both are given: leave it out.")
    names = None if stages is None else [name.strip() for name in stages.split(",")]
    run_analysis(sources, out, given, stages=names, quick=quick, options=_options(settings or []))


def _options(words: list[str]) -> dict[str, Any]:
    """Return options of stages as the values they are written as: numbers, lists, true or false, words."""
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes NAME=VALUE, for example k=200, but is {word!r}.")
        if name.strip() in options:
            raise InputError(f"--set gives {name.strip()} twice: specify it once.")
        options[name.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    if "," in text:
        return [_value(part.strip()) for part in text.split(",") if part.strip()]
    known: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
