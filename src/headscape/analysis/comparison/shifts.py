"""How far every head moved between two networks on the same windows, and in which layer that begins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError

FloatArray64 = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROUNDING = 1e-5
"""What moved by less than this, in median EMDs, is the same: float32 arithmetic in another order gives 1e-7 to 1e-6."""
STEP = 3.0
"""From this ratio to all layers before it on, a layer stands out."""


def head_shifts(emds: Any, rows: Any, columns: Any) -> FloatArray64:
    """Return how far the attention of every head is from that of its partner, window by window.

        m_wi = d_w(i, partner of i) / median of d_w

    where d_w is the tree EMD between the heads of both networks on window w. Both saw the same tokens, so the text
    cancels: m is 0 (up to rounding) where nothing changed, however much heads vary from window to window.

    Parameters
    ----------
    emds : (window, head of a, head of b) array
    rows, columns : (pair,) arrays
        The heads of both networks that belong together.

    Returns
    -------
    (window, pair) array
        In median EMDs between heads.

    Examples
    --------
    >>> head_shifts([[[0.0, 2.0], [2.0, 1.0]]], [0, 1], [0, 1]).round(2).tolist()
    [[0.0, 0.67]]
    """
    array = np.asarray(emds, dtype=np.float64)
    if array.ndim != 3 or not np.isfinite(array).all():
        raise InputError(f"EMDs must be a finite (window, head, head) array, but have shape {array.shape}.")
    medians = np.median(array.reshape(len(array), -1), axis=1)
    scale = np.where(medians > 0, medians, 1.0)
    return np.asarray(array[:, np.asarray(rows), np.asarray(columns)] / scale[:, None])


@dataclass(frozen=True)
class Onset:
    """In which layer a difference begins.

    Attributes
    ----------
    first
        The place of the first layer that moved; None if none did.
    step, ratio
        The later layer that moved farthest in comparison with every layer before it, and how many times as far; None
        and 1 if no layer moved at least 3 times as far as those before it.
    """

    first: int | None
    step: int | None = None
    ratio: float = 1.0


def onset(moved: Any) -> Onset:
    """Say where a difference begins, from how far every layer moved.

        first = min {l : m_l > rounding},  ratio_l = m_l / max of m_k over k < l

    A change of one layer's weights changes the attention of that layer and of those behind it, never of those before.
    So the first layer that moved holds a change; where all layers changed a little, a large ratio shows one that
    changed more. The converse does not hold: a later layer can move far because of what it is fed.

    Parameters
    ----------
    moved : (layer,) array
        Mean shift of every layer's heads in median EMDs, from the first layer to the last.

    Examples
    --------
    >>> onset([0.0, 0.0, 0.2, 0.1])
    Onset(first=2, step=None, ratio=1.0)
    >>> onset([0.01, 0.02, 0.3, 0.4])
    Onset(first=0, step=2, ratio=15.0)
    """
    array = np.asarray(moved, dtype=np.float64)
    differs = np.flatnonzero(array > ROUNDING)
    if not len(differs):
        return Onset(None)
    first = int(differs[0])
    before = np.maximum.accumulate(array)[first:-1]
    ratios = array[first + 1 :] / before
    if not len(ratios) or ratios.max() < STEP:
        return Onset(first)
    step = int(np.argmax(ratios))
    return Onset(first, first + 1 + step, round(float(ratios[step]), 12))
