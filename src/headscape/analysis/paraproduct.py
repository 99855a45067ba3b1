"""Paraproducts on trees: a nonlinearity of a matrix, approximated scale by scale (OA theorem 1, arXiv 2506.15541)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.haar import Trees, require_trees
from headscape.analysis.log_softmax import as_visibility, filled_logits, log_softmax
from headscape.analysis.paraproduct_pass import Derivatives, level_pass, pair_term
from headscape.analysis.tree_levels import TreeLevels
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.tensor.attention_record import BoolArray

FloatArray64 = NDArray[np.float64]
Function = Callable[[FloatArray64], Any]
Nonlinearity = Literal["log-softmax", "exp"] | tuple[Function, Function, Function]
Terms = Literal["complete", "paper"]

INVARIANT: tuple[Function, Function, Function] = (np.positive, np.ones_like, np.ones_like)
"""A' = A'' = 1: with ``terms="paper"`` the approximation is the invariant form of OA corollary 1."""

# What is below this share of A(f) is rounding, and ratios to it mean nothing.
_NOTHING = 1e-12


@dataclass(frozen=True, eq=False)
class Paraproduct:
    """The paraproduct of a matrix on its trees, what it leaves over, and what every pair of levels gives.

    J and K are the numbers of steps between levels of the query and the key tree. Sizes are root mean squares
    over the (visible) entries.

    Attributes
    ----------
    approximation : (query, key) array
        A~(f); 0 where masked.
    residual : (query, key) array
        A(f) - A~(f); 0 where masked.
    constant : float
        A(P^0 P'^0 f), the coarse part.
    one_axis : (query, key) array
        What OA (12) leaves out: the constant and the two one-axis sums. Part of ``approximation`` if ``terms`` is
        "complete"; 0 where masked.
    first_order, second_order : (J, K) arrays
        Size of the term with A' and of the term with A'' at every pair of levels.
    contributions : (J, K) array
        Size of their sum at every pair of levels.
    local_residuals : (J, K) array
        Size of what the two terms miss of the double difference of A at every pair of levels.
    query_contributions, key_contributions : (J,) and (K,) arrays
        Size of the one-axis terms at every level.
    terms
        "complete" or "paper".
    visible : (query, key) bool or None
        Which entries are scored; None for all.
    """

    approximation: FloatArray64
    residual: FloatArray64
    constant: float
    one_axis: FloatArray64
    first_order: FloatArray64
    second_order: FloatArray64
    contributions: FloatArray64
    local_residuals: FloatArray64
    query_contributions: FloatArray64
    key_contributions: FloatArray64
    terms: Terms
    visible: BoolArray | None
    _levels: tuple[TreeLevels, TreeLevels]
    _field: FloatArray64
    _derivatives: Derivatives

    @property
    def target(self) -> FloatArray64:
        """A(f), the matrix that is approximated; 0 where masked."""
        return self.approximation + self.residual

    @property
    def scored(self) -> BoolArray:
        """Which entries count: the visible ones."""
        return np.ones(self.residual.shape, dtype=bool) if self.visible is None else self.visible

    @property
    def relative_residual(self) -> float:
        """Norm of the residual over the norm of A(f) - coarse part; NaN if A(f) is constant."""
        return self._relative(np.where(self.scored, self.target - self.constant, 0.0))

    @property
    def mixed_residual(self) -> float:
        """Norm of the residual over the norm of what the double sum is to give, A(f) - ``one_axis``.

        1 if the sum over pairs of levels is as good as nothing; NaN if A(f) has no mixed part.
        """
        return self._relative(self.target - self.one_axis)

    @property
    def normalized(self) -> FloatArray64:
        """The approximation with every row divided by the sum of A(f) over it.

        With "exp" it approximates the softmax of f, as the paper reads; with "log-softmax" nothing changes.
        """
        total = self.target.sum(axis=1, keepdims=True)
        return np.asarray(self.approximation / np.where(total == 0, 1.0, total))

    def _relative(self, whole: FloatArray64) -> float:
        size = float(np.linalg.norm(whole))
        if size <= _NOTHING * float(np.linalg.norm(self.target)):
            return float("nan")
        return float(np.linalg.norm(self.residual)) / size

    def term(self, query_level: int, key_level: int) -> FloatArray64:
        """Return the whole (query, key) term of one pair of levels; their sum is the paper's A~.

        Examples
        --------
        >>> from headscape.analysis.dyadic_trees import dyadic_trees
        >>> f = np.outer([1.0, -1.0], [1.0, -1.0])
        >>> paraproduct(f, dyadic_trees(f.shape), "exp").term(0, 0).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
        """
        steps = self.contributions.shape
        for axis, level, count in zip(("query", "key"), (query_level, key_level), steps, strict=True):
            if not 0 <= level < count:
                raise InputError(
                    f"the {axis} level must be from 0 to {count - 1}, but is {level}: the last level has no "
                    "step to a finer one."
                )
        value = pair_term(self._field, *self._levels, query_level, key_level, self._derivatives)
        return _masked(value, self.visible)


def paraproduct(
    f: Any,
    trees: Trees | Organization,
    nonlinearity: Nonlinearity = "log-softmax",
    terms: Terms = "complete",
    levels: int | Mapping[str, int] | None = None,
    *,
    visible: BoolArray | str | None = None,
) -> Paraproduct:
    """Approximate a nonlinearity of a matrix by its paraproduct on the trees of its axes.

        A~(f) = sum over j, j' of A'(P^j P'^j' f) D_j D'_j' f + A''(P^j P'^j' f) (D_j P'^j' f) (P^j D'_j' f)
                                                                                                    (OA 12)
              + A(P^0 P'^0 f) + sum over j of [A(P^{j+1} P'^0 f) - A(P^j P'^0 f)] + the same along the keys

    where P^j averages over the folders of level j of the query tree, P'^j' over those of the key tree, and
    D_j = P^{j+1} - P^j. The second line is left out for ``terms="paper"``.

    Parameters
    ----------
    f : (query, key) array
        A head. With "log-softmax" its logits.
    trees
        Trees by axis name; "query" and "key" are used. :func:`headscape.dyadic_trees` gives the paper's grid.
    nonlinearity
        "log-softmax": A = exp on g = log-softmax of f, so that A(g) is the softmax of f. "exp": A = exp on f
        itself, as in the paper, before the normalization of the rows. Or the functions (A, A', A'').
    terms
        "complete", or "paper" for OA (12) to the letter.
    levels
        How many steps down from the root are taken, one number for both axes or a dict by axis; all by
        default. Steps below the points of a tree add nothing.
    visible : (query, key) bool, or "causal"
        Which keys each query sees; all by default. Masked entries of f are filled with the mean of the visible
        ones of their row, and only visible entries are scored.

    Returns
    -------
    Paraproduct

    Notes
    -----
    One pass over the pairs of levels with cached averages. Everything at a pair is as large as the number of
    its folders, so the cost is O(sum over levels of folders, query times key), about 4 n_q n_k on binary trees,
    instead of O(J K n_q n_k).

    The complete form is exact for A linear. For A(x) = x^2 the residual is the sum of w^2 + 2 w (u + v), with u
    and v the one-axis and w the mixed difference. OA (14), a residual in Lambda^{2 alpha}, does not hold in
    general: see the theory pages.

    References
    ----------
    OA (arXiv 2506.15541), (11) to (13), theorem 1.

    Examples
    --------
    >>> from headscape.analysis.dyadic_trees import dyadic_trees
    >>> f = np.add.outer([0.0, 1.0], [0.0, 2.0, 4.0])
    >>> linear = (lambda x: 3 * x, lambda x: np.full_like(x, 3), np.zeros_like)
    >>> float(np.abs(paraproduct(f, dyadic_trees(f.shape), linear).residual).max())
    0.0
    >>> found = paraproduct(np.outer([0.0, 0.2], [0.1, 0.3, 0.0]), dyadic_trees((2, 3)))
    >>> found.contributions.shape, round(found.relative_residual, 3)
    ((1, 2), 0.01)
    """
    if terms not in ("complete", "paper"):
        raise InputError(f"terms must be 'complete' or 'paper', but is {terms!r}.")
    if np.ndim(f) != 2:
        raise InputError(
            f"f must be one head, a (query, key) matrix, but its shape is {np.shape(f)}. Take one head of a tensor "
            "with tensor.head(layer, head)."
        )
    seen = as_visibility(visible, (np.shape(f)[0], np.shape(f)[1]))
    derivatives = _derivatives(nonlinearity)
    field = log_softmax(f, seen) if nonlinearity == "log-softmax" else filled_logits(f, seen)
    trees = require_trees(field, trees, ("query", "key"))
    steps = _steps(levels)
    query, key = (TreeLevels.of(trees[axis], steps[axis]) for axis in ("query", "key"))
    target = _checked(derivatives(field)[0], "A(f)")
    with np.errstate(over="ignore", invalid="ignore"):
        done = level_pass(field, query, key, derivatives, seen)
    approximation = _checked(done.mixed + done.one_axis if terms == "complete" else done.mixed, "A~(f)")
    return Paraproduct(
        approximation=_masked(approximation, seen),
        residual=_masked(target - approximation, seen),
        constant=done.constant,
        one_axis=_masked(done.one_axis, seen),
        first_order=done.first_order,
        second_order=done.second_order,
        contributions=done.contributions,
        local_residuals=done.local_residuals,
        query_contributions=done.query_contributions,
        key_contributions=done.key_contributions,
        terms=terms,
        visible=seen,
        _levels=(query, key),
        _field=field,
        _derivatives=derivatives,
    )


def _derivatives(nonlinearity: Nonlinearity) -> Derivatives:
    """Return a function that gives A, A' and A'' of an array."""
    if nonlinearity in ("log-softmax", "exp"):
        return _exponentials
    if isinstance(nonlinearity, str) or len(nonlinearity) != 3 or not all(map(callable, nonlinearity)):
        raise InputError(
            "nonlinearity must be 'log-softmax', 'exp' or three functions (A, A', A''), but is "
            f"{nonlinearity!r}."
        )
    functions = nonlinearity

    def evaluate(x: FloatArray64) -> tuple[FloatArray64, FloatArray64, FloatArray64]:
        value, first, second = (np.asarray(function(x), dtype=np.float64) for function in functions)
        for name, result in (("A", value), ("A'", first), ("A''", second)):
            if result.shape != x.shape:
                raise InputError(
                    f"{name} must act entry by entry, but made an array of shape {result.shape} out of {x.shape}. "
                    "For a constant use np.full_like."
                )
        return value, first, second

    return evaluate


def _exponentials(x: FloatArray64) -> tuple[FloatArray64, FloatArray64, FloatArray64]:
    with np.errstate(over="ignore"):
        value = np.exp(x)
    return value, value, value


def _steps(levels: int | Mapping[str, int] | None) -> dict[str, int | None]:
    wanted = dict(levels) if isinstance(levels, Mapping) else {"query": levels, "key": levels}
    for axis, count in wanted.items():
        if axis not in ("query", "key") or (count is not None and count < 1):
            raise InputError(
                f"levels must be a number from 1 up, or a dict of them by axis (query, key), but is {levels!r}."
            )
    return {axis: wanted.get(axis) for axis in ("query", "key")}


def _checked(x: FloatArray64, name: str) -> FloatArray64:
    if not (np.isfinite(x.min()) and np.isfinite(x.max())):
        raise InputError(
            f"{name} must be finite, but overflows or is not defined on f (its largest entry may be too large for "
            "exp). Subtract a constant from f first, or use nonlinearity='log-softmax'."
        )
    return x


def _masked(x: FloatArray64, visible: BoolArray | None) -> FloatArray64:
    return x if visible is None else np.where(visible, x, 0.0)
