"""Scores read off the probabilities alone: entropy and confidence of the rows (Voita et al. 2019)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.analysis.attention_spread import attention_confidence
from headscape.analysis.attention_spread import attention_entropy as row_entropy
from headscape.tensor.network_tensor import NetworkTensor

FloatArray64 = NDArray[np.float64]


def attention_entropy(evaluator: HeadEvaluator) -> FloatArray64:
    """Return the mean entropy of the rows of every head: heads that look at single keys go first."""
    return _mean(evaluator, row_entropy)


def confidence(evaluator: HeadEvaluator) -> FloatArray64:
    """Return the mean largest probability of every head: heads without a clear favorite go first."""
    return _mean(evaluator, attention_confidence)


def _mean(evaluator: HeadEvaluator, measure: Callable[[NetworkTensor], FloatArray64]) -> FloatArray64:
    capture = evaluator.capture
    rows = [measure(capture.tensor(window, "probs")) for window in range(capture.n_windows)]
    return np.asarray(np.mean(rows, axis=0))
