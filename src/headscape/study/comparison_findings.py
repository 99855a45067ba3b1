"""What a comparison says in words: one sentence that anyone understands, then the details."""

from collections.abc import Sequence

from headscape.notices import Notice
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource


def headline(sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair]) -> str:
    """Return the result in one sentence."""
    return f"{len(sources)} networks, {len(pairs)} pairs."


def comparison_findings(
    sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair], path: Sequence[str]
) -> tuple[str, ...]:
    """Return sentences about every pair, and about all networks."""
    return ()


def comparison_notices(
    sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair]
) -> tuple[Notice, ...]:
    """Return the named states in which a comparison says little."""
    return ()
