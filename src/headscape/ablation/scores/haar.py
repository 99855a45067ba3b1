"""Low Haar entropy first: the hypothesis of OA, over the whole network or within each layer."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.analysis.entropy import head_entropy

FloatArray64 = NDArray[np.float64]
K = 400


def haar(evaluator: HeadEvaluator) -> FloatArray64:
    """Return the mean rank over windows of the l1 entropy of every head (OA 21)."""
    return np.asarray(_window_ranks(evaluator).mean(axis=0))


def haar_within_layer(evaluator: HeadEvaluator) -> FloatArray64:
    """Return the mean rank of every head within its own layer; equal ones in the order of :func:`haar`."""
    ranks = _window_ranks(evaluator)
    layers = np.array([layer for layer, _ in evaluator.heads])
    within = np.empty(len(layers))
    for layer in np.unique(layers):
        # The mean rank over the network orders the heads of a layer; their place in that order is the score.
        within[layers == layer] = rankdata(ranks[:, layers == layer].mean(axis=0), method="ordinal")
    return np.asarray(within + ranks.mean(axis=0) / (2 * len(layers)))


def _window_ranks(evaluator: HeadEvaluator) -> FloatArray64:
    capture, rows = evaluator.capture, []
    for window, organization in enumerate(evaluator.organizations):
        x = capture.tensor(window, "probs")
        k = min(K, x.data.shape[0] * x.data.shape[1])
        rows.append(rankdata(head_entropy(x, organization.trees, k)))
    return np.stack(rows)
