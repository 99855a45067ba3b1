"""``headscape softmax``: softmax against its paraproduct, head by head, and the paper's claim in words."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal

import typer

from headscape.cli.analysis import run_analysis
from headscape.cli.options import ANALYSIS, Out, SourceNames, option, with_options

_SHARED = {name: ANALYSIS[name] for name in ANALYSIS if name != "n_iter"}


@with_options(_SHARED, {"windows": option(int, "How many windows.", default=1)})
def softmax(
    sources: SourceNames,
    out: Out = Path("out/softmax"),
    masked: Annotated[
        Literal["fill", "block"],
        typer.Option(help="Masked entries: fill with the row's mean, or take the fully visible block."),
    ] = "fill",
    n_iter: Annotated[
        int, typer.Option(help="Iterations of the tree building (questionnaire) of every head.")
    ] = 10,
    causal: Annotated[
        bool, typer.Option("--causal", help="A file of logits or energies is of a causal model.")
    ] = False,
    draws: Annotated[int, typer.Option(help="Shuffles that the organized order is compared with.")] = 3,
    *,
    given: SimpleNamespace,
) -> None:
    """Compare the softmax of every head with its paraproduct, and say whether attention is invariant to softmax.

    The analysis with the stage "softmax": more than a second per head of 256 tokens; it resumes layer by layer.

    Example:  headscape softmax out/capture --heads 3.5,10.7 -o out/softmax
    """
    options = {
        "softmax_windows": given.windows,
        "softmax_n_iter": n_iter,
        "masked": masked,
        "causal": causal,
        "draws": draws,
    }
    run_analysis(sources, out, given, stages=["softmax"], options=options)
