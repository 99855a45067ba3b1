"""A map of several networks from the distances between them, and the path through them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.geometry.diffusion import fix_signs


def network_map(distances: Any, n_components: int = 2) -> NDArray[np.float64]:
    """Place points so that their distances are kept as well as possible (classical multidimensional scaling).

        B = -1/2 J D^2 J,  J = 1 - 11^T / n;  x_i = sqrt(lambda_i) v_i

    Parameters
    ----------
    distances : (n, n) array
        Symmetric.
    n_components
        How many coordinates; those without a positive eigenvalue are 0.

    Returns
    -------
    (n, n_components) array
        Centered, largest spread first; signs fixed by the data.

    References
    ----------
    Torgerson, Multidimensional scaling: I. Theory and method, Psychometrika 17 (1952).

    Examples
    --------
    >>> places = np.array([0.0, 1.0, 4.0])
    >>> network_map(np.abs(np.subtract.outer(places, places)), 1).ravel().round(3).tolist()
    [-1.667, -0.667, 2.333]
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.isfinite(d).all():
        raise InputError(f"distances must be a square array of numbers, but has shape {d.shape}.")
    squared = (0.5 * (d + d.T)) ** 2
    centered = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    values, vectors = np.linalg.eigh(centered)
    kept = np.argsort(-values, kind="stable")[:n_components]
    coordinates = np.zeros((len(d), n_components))
    coordinates[:, : len(kept)] = fix_signs(vectors[:, kept]) * np.sqrt(np.maximum(values[kept], 0.0))
    return coordinates
