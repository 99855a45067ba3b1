"""``headscape patterns``: what every head attends to, as scores and as a name."""

from pathlib import Path
from types import SimpleNamespace

from headscape.cli.analysis import run_analysis
from headscape.cli.options import ANALYSIS, Out, SourceNames, with_options


@with_options({name: ANALYSIS[name] for name in ANALYSIS if name != "n_iter"})
def patterns(sources: SourceNames, out: Out = Path("out/patterns"), *, given: SimpleNamespace) -> None:
    """Score the attention patterns of every head and name the heads: first token, previous token, induction, ...

    The analysis with the stage "patterns": about a second per window of 256 tokens and 270 heads on 2 cores. Scores on
    repeated random tokens and with replaced tokens need the model; tensors must hold probabilities.

    Example:  headscape patterns default -o out/patterns
    """
    run_analysis(sources, out, given, stages=["patterns"], options={})
