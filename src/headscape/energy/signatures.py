"""Spectral signatures of the flattened energy field (IS figure 3)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscape.energy.query_key import DoubleArray
from headscape.errors import InputError
from headscape.tensor.checks import as_float_array, require_finite


@dataclass(frozen=True, eq=False)
class SpectralSignatures:
    """The power spectrum of a field read row after row, and its two signatures with their controls.

    Parameters
    ----------
    frequencies, power : (n,) arrays
        Frequencies in cycles per entry (0 left out) and the power there, scaled so that white noise has 1.
    row_length
        L, the number of keys: the comb lies at multiples of 1/L.
    low_band
        Mean power in 0 < f < 1/(8 L): zero-sum rows leave little there. White noise has 1.
    low_band_shuffled
        Control: the same after a shuffle of all entries, 1 up to chance.
    low_band_logits
        Control: the same of the uncentered logits minus their global mean; NaN if they were not given.
    low_band_ratio
        Power of the field in the band over that of the uncentered logits, both unscaled; NaN without logits.
    comb_share
        Share of the power on the multiples of 1/L, exactly the share of the column means.
    comb_share_shuffled
        Control: the same after an independent shuffle within each row, 1/L up to chance.
    """

    frequencies: DoubleArray
    power: DoubleArray
    row_length: int
    low_band: float
    low_band_shuffled: float
    low_band_logits: float
    low_band_ratio: float
    comb_share: float
    comb_share_shuffled: float


def spectral_signatures(field: object, logits: object = None, *, seed: int = 0) -> SpectralSignatures:
    """Return the spectral signatures of an energy field flattened row by row.

    Zero-sum rows suppress the power in 0 < f < 1/(8 L). The share of power on the comb f = 1/L, 2/L, ... is

        sum_j (sum_i E_ij)^2 / (n_queries |E|^2),

    the share of the column means; that one does *not* follow from zero-sum. Permuting rows does not change it
    (so it is no control), while shuffling each row by itself brings it to 1/n_queries.

    Parameters
    ----------
    field : (query, key) array
        An energy field, fully centered or centered over the visible keys.
    logits : (query, key) array, optional
        The uncentered logits of the same head, for comparison (0 where masked).
    seed
        Of the shuffles.

    Returns
    -------
    SpectralSignatures

    Notes
    -----
    O(L^2 log L). The whole band below 1/L is not suppressed: slow changes from row to row live there.

    References
    ----------
    IS, spectral signatures, figure 3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(64, 64))
    >>> result = spectral_signatures(noise - noise.mean(axis=1, keepdims=True))
    >>> result.low_band < 0.1, 0.5 < result.low_band_shuffled < 2
    (True, True)
    """
    e = _require_field(field, "the field")
    n_queries, length = e.shape
    total = float((e**2).sum())
    if total == 0:
        raise InputError("the field must not be zero everywhere: it has no spectrum. Are all keys equal?")
    rng = np.random.default_rng(seed)
    frequencies = np.asarray(np.fft.rfftfreq(e.size)[1:], dtype=np.float64)
    power = _power(e)
    low = frequencies < 1 / (8 * length)
    if not low.any():
        raise InputError(
            f"the band below 1/(8 L) is empty: it needs more than 8 queries, but the field has {n_queries}."
        )
    shuffled = rng.permutation(e.ravel()).reshape(e.shape)
    low_logits = ratio = float("nan")
    if logits is not None:
        s = _require_field(logits, "logits")
        if s.shape != e.shape:
            raise InputError(f"logits must have the shape of the field {e.shape}, but have {s.shape}.")
        s_power = _power(s - s.mean())
        low_logits = float(s_power[low].mean() / s_power.mean())
        ratio = float(power[low].sum() / s_power[low].sum())
    return SpectralSignatures(
        frequencies=frequencies,
        power=power / power.mean(),
        row_length=length,
        low_band=float(power[low].mean() / power.mean()),
        low_band_shuffled=_low_band(shuffled, low),
        low_band_logits=low_logits,
        low_band_ratio=ratio,
        comb_share=_comb_share(e),
        comb_share_shuffled=_comb_share(rng.permuted(e, axis=1)),
    )


def _require_field(field: object, name: str) -> DoubleArray:
    array = as_float_array(field, name)
    if array.ndim != 2 or min(array.shape) < 2:
        raise InputError(
            f"{name} must be a matrix (query, key) from 2 x 2 up, but its shape is {array.shape}."
        )
    require_finite(array, name)
    return array.astype(np.float64, copy=False)


def _power(field: DoubleArray) -> DoubleArray:
    """Return the power of the flattened field at its positive frequencies."""
    return np.asarray(np.abs(np.fft.rfft(field.ravel())[1:]) ** 2, dtype=np.float64)


def _low_band(field: DoubleArray, low: NDArray[np.bool_]) -> float:
    power = _power(field)
    return float(power[low].mean() / power.mean())


def _comb_share(field: DoubleArray) -> float:
    return float((field.sum(axis=0) ** 2).sum() / (len(field) * (field**2).sum()))
