"""The energy field of a head: its logits without the part that softmax cannot see (IS)."""

import numpy as np
from numpy.typing import NDArray

from headscape.energy.query_key import centered_keys, require_query_key
from headscape.errors import InputError
from headscape.tensor.checks import FloatArray, as_float_array, require_finite


def energy_field(queries: object, keys: object, scale: float) -> FloatArray:
    """Return the energy field of one head, fully centered.

        E = s Q (K - mean K)^T,        every row of E sums to zero

    where Q (query, d) and K (key, d) are taken as they enter the dot product, and s is the scale. Full
    centering means that each row is centered over *all* keys, also those that a causal mask hides; the field
    that is centered over the visible keys only is the field "energy" of a capture.

    Parameters
    ----------
    queries : (query, d) array
    keys : (key, d) array
        At least two keys, after position encoding.
    scale
        The factor of the dot product, as the model uses it (not always 1 / sqrt(d)).

    Returns
    -------
    (query, key) array
        float32 if both are float32, else float64.

    Notes
    -----
    O(L^2 d) for L queries and keys. The rank is at most min(d, L - 1); :func:`energy_spectrum` gives the
    singular values without forming this matrix.

    References
    ----------
    IS, definition of the energy field and its zero-sum and rank invariants.

    Examples
    --------
    >>> energy_field([[1.0, 0.0]], [[1.0, 0.0], [3.0, 5.0]], scale=0.5)
    array([[-0.5,  0.5]])
    """
    query, key = require_query_key(queries, keys)
    return np.asarray((query * query.dtype.type(scale)) @ centered_keys(key).T)


def log_ratio_energy(probs: object, visible: NDArray[np.bool_] | None = None) -> FloatArray:
    """Return the energy field of one head from its probabilities alone: their centered log-ratio.

        E_ij = log p_ij - mean over visible j' of log p_ij',        0 where masked

    Softmax forgets exactly a constant per row, so this is the same field that queries and keys give.

    Parameters
    ----------
    probs : (query, key) array
        Rows are distributions over the visible keys.
    visible : (query, key) boolean array, optional
        Which keys each query sees; by default all of them.

    Returns
    -------
    (query, key) array of float64

    Raises
    ------
    InputError
        If a visible probability is zero: its logarithm is lost, and no repair brings it back. float16 flushes
        most of a head to zero; save probabilities as float32, or queries and keys.

    References
    ----------
    Aitchison (1986), centered log-ratio; IS, appendix A.

    Examples
    --------
    >>> log_ratio_energy([[0.5, 0.125, 0.125, 0.25]]).round(3)
    array([[ 0.866, -0.52 , -0.52 ,  0.173]])
    """
    p = as_float_array(probs, "probs")
    if p.ndim != 2 or p.shape[1] < 2 or p.shape[0] < 1:
        raise InputError(
            f"probs must be the matrix (query, key) of one head with at least 2 keys, but the shape is "
            f"{p.shape}."
        )
    require_finite(p, "probs")
    seen = np.ones(p.shape, dtype=bool) if visible is None else np.asarray(visible, dtype=bool)
    if seen.shape != p.shape:
        raise InputError(f"visible must have the shape of probs {p.shape}, but has {seen.shape}.")
    _require_positive(p, seen)
    logs = np.log(p, where=seen, out=np.zeros(p.shape, dtype=np.float64), dtype=np.float64)
    count = np.maximum(seen.sum(axis=1, keepdims=True), 1)
    return np.where(seen, logs - logs.sum(axis=1, keepdims=True) / count, 0.0)


def zero_sum_error(field: FloatArray) -> float:
    """Return how far the rows of a field are from summing to zero.

        max over rows of |sum_j E_ij| / (L max|E|)

    At rounding level for an energy field: below 1e-15 in float64 and 1e-6 in float32. 0 for a zero field.

    Examples
    --------
    >>> zero_sum_error(np.array([[1.0, -1.0], [2.0, 0.0]]))
    0.5
    """
    peak = float(np.abs(field).max(initial=0.0))
    if peak == 0:
        return 0.0
    # Summed in float64, so that the sum itself adds nothing to what is measured.
    largest = float(np.max(np.abs(np.sum(field, axis=1, dtype=np.float64))))
    return float(largest / (field.shape[1] * peak))


def _require_positive(p: FloatArray, seen: NDArray[np.bool_]) -> None:
    """Raise if a visible probability is negative or zero, with count and place."""
    bad = seen & (p <= 0)
    if not bad.any():
        return
    count = int(bad.sum())
    query, key = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    raise InputError(
        f"the log-ratio route needs every visible probability above zero, but {count} of {int(seen.sum())} "
        f"are not; the first is {p[query, key]!s} at query {query}, key {key}. They were rounded to zero or "
        "hidden by a mask: give the mask as visible=, save probabilities as float32, or use queries and keys."
    )
