"""How widely a head spreads its attention: entropy and confidence of its rows."""

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError
from headscape.tensor.network_tensor import NetworkTensor


def attention_entropy(x: NetworkTensor) -> NDArray[np.float64]:
    """Return the mean entropy of the rows of every head, in nats.

        H_h = mean over queries i of - sum_j p_ij log p_ij,   0 log 0 = 0

    Parameters
    ----------
    x
        Probabilities, query x key x head.

    Returns
    -------
    (head,) array
        0 for a head that always looks at one key; log of the number of visible keys for uniform rows.

    Examples
    --------
    >>> p = np.zeros((2, 2, 2))
    >>> p[:, 0, 0], p[:, :, 1] = 1.0, 0.5
    >>> attention_entropy(NetworkTensor(p, field="probs")).round(3).tolist()
    [0.0, 0.693]
    """
    p = _probs(x)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.asarray(np.abs(np.einsum("qkh,qkh->h", p, logs, dtype=np.float64)) / len(p))


def attention_confidence(x: NetworkTensor) -> NDArray[np.float64]:
    """Return the mean over queries of the largest probability of every head (Voita et al. 2019, section 4).

    Parameters
    ----------
    x
        Probabilities, query x key x head.

    Returns
    -------
    (head,) array
        Between 1 / keys and 1.

    Examples
    --------
    >>> p = np.zeros((2, 2, 2))
    >>> p[:, 0, 0], p[:, :, 1] = 1.0, 0.5
    >>> attention_confidence(NetworkTensor(p, field="probs")).tolist()
    [1.0, 0.5]
    """
    return np.asarray(_probs(x).max(axis=1).mean(axis=0, dtype=np.float64))


def _probs(x: NetworkTensor) -> NDArray[np.floating]:
    if x.field not in ("probs", "unknown") or x.data.ndim != 3:
        raise InputError(
            f"x must hold probabilities, query x key x head, but holds {x.field} of shape {x.shape}."
        )
    return np.asarray(x.data)
