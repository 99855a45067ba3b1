"""Mutual coherence of the keys of a head: the largest absolute cosine of two distinct keys."""

import numpy as np

from headscape.energy.query_key import as_double, require_keys
from headscape.errors import InputError


def mutual_coherence(keys: object) -> float:
    """Return the mutual coherence of one head's keys.

        max over i != j of |k_i . k_j| / (|k_i| |k_j|),        0 <= mutual coherence <= 1

    where k_j (d,) is key j as it enters the dot product.

    Parameters
    ----------
    keys : (key, d) array
        At least two keys of one key-value head, none of them zero.

    Notes
    -----
    O(L^2 d). With more keys than dimensions it cannot be small: it is at least sqrt((L - d) / (d (L - 1)))
    (Welch 1974), and two equal tokens far apart can bring it to 1. It is another quantity than mu_K
    (:func:`headscape.key_incoherence`).

    References
    ----------
    The definition that a review of IS (arXiv 2605.02907) attributes to its authors.

    Examples
    --------
    >>> mutual_coherence([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    0.8
    """
    rows = as_double(require_keys(keys))
    norms = np.linalg.norm(rows, axis=1)
    if not norms.all():
        raise InputError("keys must not be zero: the cosine with a zero key is undefined.")
    unit = rows / norms[:, None]
    cosines = np.abs(unit @ unit.T)
    np.fill_diagonal(cosines, 0.0)
    return float(min(1.0, cosines.max()))
