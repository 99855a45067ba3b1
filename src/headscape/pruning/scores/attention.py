"""Scores read off the probabilities alone: entropy and confidence of the rows (Voita et al. 2019)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.attention_spread import attention_confidence
from headscape.analysis.attention_spread import attention_entropy as row_entropy
from headscape.pruning.evidence import Evidence
from headscape.tensor.network_tensor import NetworkTensor

FloatArray64 = NDArray[np.float64]


def attention_entropy(evidence: Evidence) -> FloatArray64:
    """Return the mean entropy of the rows of every head: heads that look at single keys go first."""
    return _mean(evidence, row_entropy)


def confidence(evidence: Evidence) -> FloatArray64:
    """Return the mean largest probability of every head: heads without a clear favorite go first."""
    return _mean(evidence, attention_confidence)


def _mean(evidence: Evidence, measure: Callable[[NetworkTensor], FloatArray64]) -> FloatArray64:
    capture = evidence.capture
    rows = [measure(capture.tensor(window, "probs")) for window in range(capture.n_windows)]
    return np.asarray(np.mean(rows, axis=0))
