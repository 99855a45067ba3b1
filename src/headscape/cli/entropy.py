"""``headscape entropy``: Haar entropies of the heads over windows, and whether their ranking is stable."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from headscape.cli.analysis import run_analysis
from headscape.cli.options import ANALYSIS, SINKS, Out, SourceNames, with_options
from headscape.errors import InputError


@with_options(ANALYSIS, SINKS)
def entropy(
    sources: SourceNames,
    out: Out = Path("out/entropy"),
    k: Annotated[
        str, typer.Option(help="How many wavelets of largest support, or a share of all such as 0.01.")
    ] = "400",
    p: Annotated[float, typer.Option(help="Exponent of the entropy.")] = 1.0,
    fields: Annotated[
        str | None,
        typer.Option(help="Other fields to compare the ranking with, for example logits,energy."),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also re-run the first window with neighboring parameters.")
    ] = False,
    *,
    given: SimpleNamespace,
) -> None:
    """Rank the heads by the l1 entropy of their Haar coefficients, and say whether the ranking is stable.

    The analysis with the stage "entropy": about 5 seconds per window of 256 tokens and 270 heads on 2 cores.

    Example:  headscape entropy out/capture -o out/entropy --fields logits
    """
    options = {
        "k": _number(k),
        "p": p,
        "fields": [] if fields is None else [name.strip() for name in fields.split(",")],
        "sensitivity": sensitivity,
    }
    run_analysis(sources, out, given, stages=["entropy"], options=options)


def _number(text: str) -> float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise InputError(f"--k must be a whole number or a share such as 0.01, but is {text!r}.") from None
