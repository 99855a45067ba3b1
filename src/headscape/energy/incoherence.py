"""Key incoherence: how evenly the keys of a head share their squared norm (IS)."""

import warnings
from dataclasses import dataclass, field

import numpy as np

from headscape.energy.query_key import DoubleArray, as_double, centered_keys, leverage_scores, require_keys


@dataclass(frozen=True)
class KeyIncoherence:
    """The key incoherence of one head and its variants, each under its own name; 1 is perfectly even.

    Parameters
    ----------
    raw
        mu_K = L max_j |k_j|^2 / sum_j |k_j|^2 of the keys as they enter the dot product.
    centered
        The same of the keys minus their mean.
    without_first
        The same as ``raw`` without the first key, which is the attention sink of many models.
    norm
        With the norm in place of its square: L max_j |k_j| / sum_j |k_j|.
    norm_centered
        The same of the keys minus their mean.
    leverage
        Coherence of the key matrix by leverage scores, (L / r) max_j |U_j|^2, with U an orthonormal basis of
        the column space and r its dimension (r = d unless keys are fewer or dependent).
    undefined
        Why a variant is NaN, by its name; empty for ordinary keys.
    """

    raw: float
    centered: float
    without_first: float
    norm: float
    norm_centered: float
    leverage: float
    undefined: dict[str, str] = field(default_factory=dict)


def key_incoherence(keys: object) -> KeyIncoherence:
    """Return the key incoherence of one head with its variants.

        mu_K = L max_j |k_j|^2 / sum_j |k_j|^2,        1 <= mu_K <= L

    where k_j (d,) is key j as it enters the dot product, and L the number of keys.

    Parameters
    ----------
    keys : (key, d) array
        At least two keys of one key-value head, after position encoding.

    Returns
    -------
    KeyIncoherence
        ``.raw`` is mu_K. A variant that has no meaning (all keys equal: nothing is left after centering) is
        NaN, named in ``.undefined``, and a warning says so.

    Notes
    -----
    O(L d) for the norms and O(L d^2) for the leverage scores. The published formula is not known to us to the
    letter; ``raw`` on SmolLM2-135M lies where the paper reports its 16 models (medians near 1.5 at L = 256).

    References
    ----------
    IS, key incoherence; Candes and Recht (2009) for the leverage-score coherence.

    Examples
    --------
    >>> key_incoherence([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]).raw
    2.0
    """
    result = incoherence_of(as_double(require_keys(keys)))
    for reason in sorted(set(result.undefined.values())):
        names = ", ".join(name for name, why in result.undefined.items() if why == reason)
        warnings.warn(f"key incoherence: {names} undefined (NaN): {reason}.", UserWarning, stacklevel=2)
    return result


def incoherence_of(key: DoubleArray) -> KeyIncoherence:
    """Return the key incoherence of checked keys; what is undefined is noted in the result only."""
    norms = np.linalg.norm(key, axis=1)
    centered = np.linalg.norm(centered_keys(key), axis=1)
    leverage, _ = leverage_scores(key)
    undefined: dict[str, str] = {}
    if norms.max() == 0:
        for name in ("raw", "norm", "leverage"):
            undefined[name] = "all keys are zero"
    if norms[1:].max() == 0:
        undefined["without_first"] = "all keys but the first are zero"
    if centered.max() == 0:
        for name in ("centered", "norm_centered"):
            undefined[name] = "all keys are equal, so nothing is left after centering"
    return KeyIncoherence(
        raw=_unevenness(norms**2),
        centered=_unevenness(centered**2),
        without_first=_unevenness(norms[1:] ** 2),
        norm=_unevenness(norms),
        norm_centered=_unevenness(centered),
        leverage=_unevenness(leverage),
        undefined=undefined,
    )


def _unevenness(weights: DoubleArray) -> float:
    """Return the largest weight over the mean weight: 1 if all are equal, n if one holds everything."""
    total = float(weights.sum())
    return len(weights) * float(weights.max()) / total if total > 0 else float("nan")
