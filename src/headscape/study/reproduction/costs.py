"""What experiments take: each by itself, and the networks, trees and heads that they share."""

from collections.abc import Iterable
from pathlib import Path

from headscape.study.reproduction.experiment import Experiment
from headscape.study.reproduction.networks import (
    ENCODER,
    LANGUAGE,
    TRANSFORMER_XL,
    UNTRAINED_VISION,
    VISION,
    Sizes,
)

# CPU seconds, measured over both threads of one run (docs/results/reproduction.json).
PREPARING = {LANGUAGE: 75.0, TRANSFORMER_XL: 460.0, VISION: 2.0, UNTRAINED_VISION: 11.0, ENCODER: 6.0}
"""Seconds to load or train a network and to capture its windows."""
ORGANIZING = {LANGUAGE: 2.5, TRANSFORMER_XL: 1.3, VISION: 0.1, UNTRAINED_VISION: 1.0}
"""Seconds to organize one window."""
TAKING_APART = {LANGUAGE: 31.0, TRANSFORMER_XL: 31.0, VISION: 2.0, UNTRAINED_VISION: 21.0}
"""Seconds for the softmax of 24 heads."""
MOST_WINDOWS = {UNTRAINED_VISION: Sizes().control_windows}
"""Windows of networks that have fewer than experiments ask for."""
QUICK = 2.0
"""Seconds of an experiment at the sizes of a trial."""


def expected_seconds(wanted: Iterable[Experiment], out: Path | None = None, *, quick: bool = False) -> float:
    """Return about how long experiments take at full size on one core.

    Parameters
    ----------
    wanted
        The experiments. What they share is counted once.
    out
        A folder of an earlier run: what it holds is not counted.
    quick
        At the sizes of a trial.
    """
    left = [one for one in wanted if not _has(out, f"parts/experiment-{one.name}")]
    if quick:
        return QUICK * len(left)
    total = 60 * sum(one.minutes for one in left)
    for role in {role for one in left for role in one.networks}:
        asking = [one for one in left if role in one.networks]
        if not _has(out, f"networks/{role}-capture"):
            total += PREPARING[role]
        windows = range(max(min(one.organized, MOST_WINDOWS.get(role, one.organized)) for one in asking))
        missing = [n for n in windows if not _has(out, f"parts/organization-{role}-{n:05d}")]
        total += len(missing) * ORGANIZING.get(role, 0.0)
        if any(one.takes_apart for one in asking) and not _has(out, f"parts/softmax-{role}"):
            total += TAKING_APART[role]
    return total


def _has(out: Path | None, name: str) -> bool:
    return out is not None and (out / name).is_dir()
