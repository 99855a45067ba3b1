"""What is attacked: an artefact that is built once, the way a user reads it, and what a right result is."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutations import Mutation

Found = Mapping[str, Any]
"""What was read: numbers, strings and arrays by name."""


@dataclass(frozen=True)
class Target:
    """One kind of artefact.

    Parameters
    ----------
    name
        For reports and replays.
    build
        Writes the artefact into an empty folder.
    read
        Reads everything from the folder, through headscape's public functions.
    mutations
        Those that apply, drawn evenly.
    cases
        How many the full trial runs.
    meanings
        What the files mean after the mutation, where they have no digests: all readings that are right, found
        without headscape. Raises if there is none. Without it, only the unmutated result is right.
    tolerance
        Of numbers against ``meanings``; the unmutated result must come out exactly.
    unfinished
        Whether parts may be missing as a whole, as after a kill: what is left must be right.
    command
        The command that reads the same folder, and where it may write.
    """

    name: str
    build: Callable[[Path], None]
    read: Callable[[Path], Found]
    mutations: Sequence[Mutation]
    cases: int
    meanings: Callable[[Path], Sequence[Found]] | None = None
    tolerance: float = 0.0
    unfinished: bool = False
    command: Callable[[Path, Path], list[Any]] | None = None

    def mutate(self, rng: random.Random, root: Path) -> str:
        """Apply one random mutation that applies."""
        while True:
            if words := rng.choice(self.mutations)(rng, root):
                return words


def same(found: Found, wanted: Found, tolerance: float = 0.0) -> bool:
    """Tell whether two results have the same entries; numbers may differ by a tolerance."""
    return set(found) == set(wanted) and all(_same(found[key], wanted[key], tolerance) for key in wanted)


def part_of(found: Found, wanted: Found) -> bool:
    """Tell whether a result has nothing but entries of another."""
    return set(found) < set(wanted) and all(_same(found[key], wanted[key], 0.0) for key in found)


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype.kind in "fiub":
        return a.shape == b.shape and (
            np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
            if tolerance
            else np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    return str(a) == str(b)


def not_finite(found: Found) -> list[str]:
    """Return the names of the tensors that hold NaN or an infinity; weights may, as their file does."""
    tensors = {name: value for name, value in found.items() if name.split()[0] in ("probs", "data")}
    return [name for name, x in tensors.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]
