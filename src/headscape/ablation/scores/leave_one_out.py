"""Leave one out: the exact price of every head alone."""

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator


def leave_one_out(evaluator: HeadEvaluator) -> NDArray[np.float64]:
    """Return the mean increase of the loss when a head alone is switched off.

    Notes
    -----
    One evaluation of all windows per head. The price of several heads is not the sum of their prices: two heads
    that stand in for each other cost little alone and much together.
    """
    intact = evaluator.losses().mean()
    prices = []
    for done, head in enumerate(evaluator.heads):
        evaluator.progress("leaving one head out", done, len(evaluator.heads))
        prices.append(evaluator.losses([head]).mean() - intact)
    return np.asarray(prices)
