"""The heads of one size where the choice depends on how many go: "validated", made anew for every size.

What is found for one size - a plan and a strength of the repair - can be used for others of the same model, which then
take a single pass over the calibration windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.choices import VALIDATED
from headscape.ablation.greedy import Moves, removable_units
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.output_metric import IntactPrices
from headscape.ablation.rankings import Method
from headscape.ablation.repair_choice import START
from headscape.ablation.ridge_fit import Strength
from headscape.ablation.validated_choice import RECONSTRUCTION, planned_choice, validated_choice
from headscape.pruning.manifest import Pairs
from headscape.pruning.removal_order import GROUPS, UNITS, whole_groups

MOVES: Mapping[str, Moves] = {UNITS: removable_units, GROUPS: whole_groups}
"""What may go together, by kind. Uniform layers must all lose the same: their heads are those of the order."""


@dataclass(frozen=True)
class Found:
    """How a size was chosen: the plan for the layers, and the strength of the repair."""

    plan: str = RECONSTRUCTION
    strength: Strength = START


@dataclass(frozen=True)
class SizedChoice:
    """The heads of one size, the first choice first, and how they were found."""

    heads: Pairs
    found: Found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the choice as arrays."""
        return {
            "heads": np.asarray(self.heads, dtype=np.int64).reshape(-1, 2),
            "found": np.frombuffer(json.dumps(asdict(self.found)).encode(), dtype=np.uint8),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> SizedChoice:
        """Return the choice that :meth:`arrays` took apart."""
        found = json.loads(arrays["found"].tobytes())
        heads = tuple((int(layer), int(head)) for layer, head in arrays["heads"])
        return cls(heads, Found(found["plan"], Strength(**found["strength"])))


def is_sized(method: Method, kind: str) -> bool:
    """Tell whether a method chooses the heads of every size anew."""
    return isinstance(method, str) and method == VALIDATED and kind in MOVES


def sized_choice(
    evaluator: HeadEvaluator,
    kind: str,
    count: int,
    intact: IntactPrices,
    like: Found | None = None,
) -> SizedChoice:
    """Return the heads of a size of at most ``count`` heads; ``like`` is how another size was found."""
    if like is None:
        choice = validated_choice(evaluator, count, MOVES[kind], intact)
    else:
        choice = planned_choice(evaluator, count, MOVES[kind], like.plan, like.strength, intact)
    assert choice.repair.strength is not None  # both kinds of choice fit with one
    return SizedChoice(choice.heads, Found(choice.plan, choice.repair.strength))
