"""Redundancy: of heads that the head tree and the EMD put together, all but the best representative go."""

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.analysis.redundancy import redundancy_order
from headscape.geometry.head_geometry import head_geometry


def tree_redundancy(evaluator: HeadEvaluator) -> NDArray[np.float64]:
    """Return the place of every head in the order of :func:`headscape.analysis.redundancy.redundancy_order`."""
    heads = head_geometry([organization.emd["head"] for organization in evaluator.organizations])
    return np.argsort(redundancy_order(heads.emd, heads.tree)).astype(np.float64)
