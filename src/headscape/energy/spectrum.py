"""Singular values of the energy field and of the learned interaction, from small factors only (IS)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headscape.energy.query_key import (
    DoubleArray,
    as_double,
    centered_keys,
    require_query_key,
    triangular_factor,
)
from headscape.errors import InputError

FIELD_SUBJECT = "energy field, full centering"


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of a matrix, largest first, and what is read off them.

    Parameters
    ----------
    singular_values : (n,) array
        Those that can differ from zero; all others of the matrix are zero.
    rank_bound
        The rank that the matrix cannot exceed.
    subject
        Which matrix, in words: every number that is passed on should name its centering.
    eps
        Rounding unit of the data that the values come from.

    Examples
    --------
    >>> s = Spectrum(np.array([3.0, 1.0, 0.0]), rank_bound=3, subject="an example")
    >>> s.rank, s.components(0.9), s.components(0.95), round(s.stable_rank, 3)
    (2, 1, 2, 1.111)
    """

    singular_values: DoubleArray
    rank_bound: int
    subject: str
    eps: float = float(np.finfo(np.float64).eps)

    @cached_property
    def variance_shares(self) -> DoubleArray:
        """The squared singular values as shares of their sum; NaN for a zero matrix."""
        squares = self.singular_values**2
        total = squares.sum()
        return squares / total if total > 0 else np.full_like(squares, np.nan)

    @property
    def rank(self) -> int:
        """The numerical rank: singular values above rounding level of the largest, within the bound."""
        values = self.singular_values[: self.rank_bound]  # beyond it they are zero, whatever rounding says
        return int((values > len(values) * self.eps * values.max(initial=0.0)).sum())

    @property
    def stable_rank(self) -> float:
        """The sum of squares over the largest square: at most the rank, and insensitive to small values."""
        shares = self.variance_shares
        return float(1 / shares[0]) if shares.size else float("nan")

    @property
    def effective_rank(self) -> float:
        """exp(entropy) of the singular values as shares of their sum (Roy and Vetterli 2007)."""
        total = self.singular_values.sum()
        if total == 0:
            return float("nan")
        p = self.singular_values[self.singular_values > 0] / total
        return float(np.exp(-(p * np.log(p)).sum()))

    def components(self, share: float) -> int:
        """Return how many of the largest components carry at least ``share`` of the variance."""
        if not 0 < share <= 1:
            raise InputError(f"share must lie in (0, 1], but is {share}.")
        shares = self.variance_shares
        if not shares.size or np.isnan(shares[0]):
            return 0
        # The last sum may be 1 - 1e-16: never ask for more components than there are.
        return min(int(np.searchsorted(self._cumulative, share - 1e-12)) + 1, len(shares))

    @cached_property
    def _cumulative(self) -> DoubleArray:
        """The shares of the first 1, 2, ... components together."""
        return np.cumsum(self.variance_shares)

    @property
    def k50(self) -> int:
        """Components for 50 % of the variance."""
        return self.components(0.5)

    @property
    def k90(self) -> int:
        """Components for 90 % of the variance."""
        return self.components(0.9)

    @property
    def k95(self) -> int:
        """Components for 95 % of the variance."""
        return self.components(0.95)

    @property
    def k99(self) -> int:
        """Components for 99 % of the variance."""
        return self.components(0.99)


def energy_spectrum(queries: object, keys: object, scale: float) -> Spectrum:
    """Return the singular values of the fully centered energy field without forming it.

        Q = U_Q R_Q,  K - mean K = U_K R_K   (thin QR)   =>   E = U_Q (s R_Q R_K^T) U_K^T

    so that the singular values of E are those of the small matrix s R_Q R_K^T.

    Parameters
    ----------
    queries : (query, d) array
    keys : (key, d) array
        After position encoding.
    scale
        The factor of the dot product, as the model uses it.

    Returns
    -------
    Spectrum
        At most d singular values in float64; ``rank_bound`` is min(d, queries, keys - 1).

    Notes
    -----
    O(L d^2) time and O(L d) memory, against O(L^3) and O(L^2) for the dense field. A soft-cap, a position
    bias or a sink is not part of s q.k, and the rank bound does not hold for logits that contain one.

    References
    ----------
    IS, rank bound; its companion arXiv 2604.04384 for the number of components.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.normal(size=(2, 100, 4))
    >>> spectrum = energy_spectrum(q, k, scale=0.5)
    >>> spectrum.singular_values.round(1), spectrum.rank
    (array([54.9, 53.5, 45.5, 43.8]), 4)
    """
    query, key = require_query_key(queries, keys)
    key_factor = triangular_factor(centered_keys(as_double(key)))
    bound = min(key.shape[1], query.shape[0], key.shape[0] - 1)
    return spectrum_of(triangular_factor(query), key_factor, scale, bound, float(np.finfo(key.dtype).eps))


def spectrum_of(
    query_factor: DoubleArray, key_factor: DoubleArray, scale: float, rank_bound: int, eps: float
) -> Spectrum:
    """Return the spectrum of the energy field from R_Q and R_K."""
    values = _singular_values(scale * query_factor @ key_factor.T)
    return Spectrum(values, rank_bound, FIELD_SUBJECT, eps)


def interaction_spectrum(query_weight: object, key_weight: object) -> Spectrum:
    """Return the singular values of the learned interaction W_Q^T W_K of one head.

        x_i^T (W_Q^T W_K) x_j = (W_Q x_i) . (W_K x_j)

    where W_Q and W_K (d, model) map the hidden state to queries and keys, before any position encoding,
    normalization of queries and keys, or bias.

    Parameters
    ----------
    query_weight, key_weight : (d, model) arrays
        The two rows of blocks of one head, as ``torch.nn.Linear`` stores them.

    Returns
    -------
    Spectrum
        At most d singular values; ``rank_bound`` is min(d, model).

    Notes
    -----
    O(model d^2). For rotary models the interaction of two tokens also holds the rotation by their distance,
    W_Q^T R(i - j) W_K, which this leaves out: it is the learned part only.

    References
    ----------
    arXiv 2604.04384: the interaction needs 38-75 components for 90 % where the energy field needs 2-11.

    Examples
    --------
    >>> interaction_spectrum(np.eye(2, 5), 3 * np.eye(2, 5)).singular_values
    array([3., 3.])
    """
    w_q, w_k = np.asarray(query_weight), np.asarray(key_weight)
    if w_q.ndim != 2 or w_k.ndim != 2 or w_q.shape[0] != w_k.shape[0] or 0 in w_q.shape:
        raise InputError(
            f"the weights must be two matrices (d, model) of one head, but their shapes are {w_q.shape} and "
            f"{w_k.shape}. For shared keys give the key-value head that the query head reads."
        )
    if not (np.isfinite(w_q).all() and np.isfinite(w_k).all()):
        raise InputError(
            "the weights must be finite, but some are NaN or infinite. Is the model file damaged?"
        )
    small = triangular_factor(w_q.T) @ triangular_factor(w_k.T).T
    return Spectrum(
        _singular_values(small),
        rank_bound=min(w_q.shape[0], w_q.shape[1], w_k.shape[1]),
        subject="learned interaction W_Q^T W_K",
        eps=float(np.finfo(np.result_type(w_q, np.float32)).eps),
    )


def _singular_values(matrix: DoubleArray) -> DoubleArray:
    return np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)
