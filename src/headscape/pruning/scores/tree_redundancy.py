"""Redundancy: of heads that the head tree and the EMD put together, all but the best representative go."""

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.redundancy import mean_head_tree, redundancy_order
from headscape.pruning.evidence import Evidence


def tree_redundancy(evidence: Evidence) -> NDArray[np.float64]:
    """Return the place of every head in the order of :func:`headscape.analysis.redundancy.redundancy_order`."""
    emds = [organization.emd["head"] for organization in evidence.organizations]
    order = redundancy_order(*mean_head_tree(emds))
    places = np.empty(len(order))
    places[order] = np.arange(len(order))
    return places
