"""Debiased linear CKA: how alike two sets of activations of the same tokens are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.errors import InputError

FEWEST_TOKENS = 4


def centered_gram(x: Any) -> NDArray[np.float64]:
    """Return the Gram matrix of activations, centered so that inner products are unbiased (U-centered).

        K~_ij = K_ij - sum_l K_il / (n - 2) - sum_k K_kj / (n - 2) + sum_kl K_kl / ((n - 1)(n - 2)),  i != j

    with the diagonal of K and of K~ set to 0, so that <K~, L~> / (n (n - 3)) is the unbiased estimate of HSIC.

    Parameters
    ----------
    x : (token, feature) array

    References
    ----------
    Song et al., Feature selection via dependence maximization, JMLR 13 (2012); Székely, Rizzo, Partial distance
    correlation with methods for dissimilarities, Ann. Statist. 42 (2014).

    Examples
    --------
    >>> bool(np.allclose(centered_gram(np.arange(4.0)[:, None]).sum(axis=0), 0))
    True
    """
    array = np.asarray(x, dtype=np.float64)
    n = len(array)
    if n < FEWEST_TOKENS:
        raise InputError(f"CKA needs at least {FEWEST_TOKENS} tokens, but got {n}.")
    gram = array @ array.T
    np.fill_diagonal(gram, 0.0)
    sums = gram.sum(axis=1) / (n - 2)
    gram += sums.sum() / (n - 1) - sums[:, None] - sums[None, :]
    np.fill_diagonal(gram, 0.0)
    return gram


def linear_cka(a: Any, b: Any) -> float:
    """Return the debiased linear CKA of activations.

        CKA = HSIC(a, b) / sqrt(HSIC(a, a) HSIC(b, b))

    with unbiased estimates of HSIC: 1 for activations that are equal up to rotation and scale, 0 on average for
    unrelated ones whatever their number of features.

    Parameters
    ----------
    a : (token, feature) array
    b : (token, other feature) array

    References
    ----------
    Kornblith et al., Similarity of neural network representations revisited, ICML 2019; the debiased estimate as in
    Nguyen, Raghu, Kornblith, Do wide and deep networks learn the same things?, ICLR 2021.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(64, 8))
    >>> round(linear_cka(x, 3 * x[:, ::-1]), 6)
    1.0
    """
    return float(cka_matrix([centered_gram(a)], [centered_gram(b)])[0, 0])


def cka_matrix(a: Any, b: Any) -> NDArray[np.float64]:
    """Return the CKA between all pairs of centered Gram matrices.

    Parameters
    ----------
    a : (n, token, token) array
    b : (m, token, token) array
        As :func:`centered_gram` returns them, of the same tokens.

    Returns
    -------
    (n, m) array
        NaN where activations are constant.
    """
    first, second = (np.asarray([np.ravel(gram) for gram in grams], dtype=np.float64) for grams in (a, b))
    if first.shape[1] != second.shape[1]:
        raise InputError("CKA compares activations of the same tokens, but their numbers differ.")
    sizes = [np.einsum("if,if->i", x, x) for x in (first, second)]
    scale = np.sqrt(np.multiply.outer(*sizes))
    nothing = np.full(scale.shape, np.nan)
    return np.asarray(np.divide(first @ second.T, scale, out=nothing, where=scale > 0))
