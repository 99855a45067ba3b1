"""Log-softmax over the visible keys, with masked entries filled so that averages over folders exist."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.tensor.attention_record import BoolArray, causal_visibility
from headscape.tensor.checks import as_float_array, require_axes, require_finite

FloatArray64 = NDArray[np.float64]


def filled_logits(f: Any, visible: BoolArray | None = None) -> FloatArray64:
    """Return logits whose masked entries are the mean of the visible ones of their row.

        f_ij  ->  mean over visible j of f_ij   where j is masked for i

    Parameters
    ----------
    f : (query, key) array
        Finite where visible; what is masked may be anything, -inf as well.
    visible : (query, key) bool
        Which keys each query sees; all by default.

    Returns
    -------
    (query, key) float64

    Notes
    -----
    Filling keeps the averages over folders finite and leaves the mean of every row as it is. Filled entries are
    no data: score visible entries only. A row that sees no key gets the mean of all visible entries.

    Examples
    --------
    >>> filled_logits(np.array([[1.0, -np.inf], [2.0, 4.0]]), np.tri(2, dtype=bool)).tolist()
    [[1.0, 1.0], [2.0, 4.0]]
    """
    array = as_float_array(f, "f")
    require_axes(array, (2,), "f")
    if visible is None:
        require_finite(array, "f")
        # numpy adds up rows and columns in different orders: one layout, so that sums depend on the values only.
        return np.array(array, dtype=np.float64, order="C")
    values = np.where(visible, array, 0.0).astype(np.float64, order="C")
    require_finite(values, "f, where visible,")
    count = visible.sum(axis=1, keepdims=True)
    if not count.any():
        raise InputError("visible must leave at least one key to a query, but masks all of them.")
    means = np.where(
        count > 0, values.sum(axis=1, keepdims=True) / np.maximum(count, 1), values.sum() / count.sum()
    )
    return np.asarray(np.where(visible, values, means), order="C")


def log_softmax(f: Any, visible: BoolArray | None = None, sink: float | None = None) -> FloatArray64:
    """Return g = log softmax(f) over the visible keys, masked entries filled with the row's visible mean.

        g_ij = f_ij - log(sum over visible j of exp(f_ij) [+ exp(sink)])

    Parameters
    ----------
    f, visible
        As in :func:`filled_logits`.
    sink
        One more logit that takes probability but belongs to no key.

    Returns
    -------
    (query, key) float64
        exp(g) are the probabilities, where visible.

    Notes
    -----
    The row's largest visible logit is subtracted first, so nothing overflows. O(L^2).

    Examples
    --------
    >>> np.exp(log_softmax(np.array([[0.0, np.log(3.0)]]))).round(12).tolist()
    [[0.25, 0.75]]
    """
    filled = filled_logits(f, visible)
    # Filled entries are means of visible ones, never above the largest; rows that see nothing are not scored.
    top = filled.max(axis=1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    filled -= top
    total = np.exp(filled).sum(axis=1, keepdims=True, where=True if visible is None else visible)
    if sink is not None:
        total += np.exp(sink - top)
    total[total == 0.0] = 1.0
    filled -= np.log(total)
    return filled


def as_visibility(visible: Any, shape: tuple[int, int]) -> BoolArray | None:
    """Return a (query, key) visibility from an array, the word "causal", or None for all; all True becomes None.

    Examples
    --------
    >>> as_visibility("causal", (2, 2)).tolist()
    [[True, False], [True, True]]
    """
    if visible is None:
        return None
    if isinstance(visible, str):
        if visible != "causal":
            raise InputError(f"visible must be 'causal', a boolean array or None, but is {visible!r}.")
        return np.array(causal_visibility(*shape))
    array = np.asarray(visible)
    if array.shape != shape or array.dtype != np.bool_:
        raise InputError(
            f"visible must be a boolean array of the shape {shape}, but is {array.dtype} of shape {array.shape}."
        )
    return None if array.all() else array
