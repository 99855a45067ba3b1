"""Methods that choose heads and their compensation together, for a given number of heads.

"validated" is ours (:mod:`headscape.ablation.validated_choice`), the others are published
(:mod:`headscape.ablation.rivals`). What they choose depends on how many heads go, so that the heads of a smaller number
are not the first of a larger one.
"""

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.greedy import Moves, single_heads
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.rivals import RIVALS, Choice, rival_choice
from headscape.ablation.validated_choice import validated_choice

VALIDATED = "validated"
CHOICES = (VALIDATED, *RIVALS)


def choice_of(evaluator: HeadEvaluator, method: str, count: int, moves: Moves = single_heads) -> Choice:
    """Return the heads that a method removes, at most ``count``, and what it makes up for them with."""
    if method == VALIDATED:
        return validated_choice(evaluator, count, moves)
    return rival_choice(evaluator, method, count, moves)


def places_of(evaluator: HeadEvaluator, method: str) -> NDArray[np.float64]:
    """Return the place of every head in the order of a method; past ``evaluator.count``, heads are unranked."""
    heads, count = evaluator.heads, evaluator.count or len(evaluator.heads)
    places = np.full(len(heads), float(len(heads)))
    for place, pair in enumerate(choice_of(evaluator, method, count).heads):
        places[heads.index(pair)] = place
    return places
