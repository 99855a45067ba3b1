"""Softmax of one head against its paraproduct: OA (arXiv 2506.15541) figures 1 and 2, for any size."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.haar import Trees, require_trees
from headscape.analysis.log_softmax import as_visibility, filled_logits, log_softmax
from headscape.analysis.paraproduct import INVARIANT, Paraproduct, paraproduct
from headscape.analysis.regularity import holder_exponent
from headscape.errors import InputError
from headscape.geometry.organization import Organization, organize
from headscape.geometry.partition_tree import PartitionTree
from headscape.tensor.attention_record import BoolArray
from headscape.tensor.checks import MAX_DRAWS, require_integer

FloatArray64 = NDArray[np.float64]
Masked = Literal["fill", "block"]

ORGANIZE_OPTIONS: dict[str, Any] = {"n_iter": 10, "alpha": 1.0, "beta": 0.0}
"""The intrinsic organization of one head: the 2-way questionnaire of OA figure 1."""

# The constants of the Hoelder conditions are not reported here, so few quadruples are drawn for them.
_QUADRUPLES = 1000


@dataclass(frozen=True, eq=False)
class SoftmaxExperiment:
    """One head: its logits, its organization, its softmax and the paraproduct.

    Attributes
    ----------
    logits : (query, key) array
        As they came, masked entries filled.
    trees
        The trees of the queries and the keys.
    complete
        The paraproduct of A = exp on log-softmax, all terms.
    invariant
        The sum of OA corollary 1 (A' = A'' = 1) on the logits, before any scaling.
    residual_shuffled
        ``complete.relative_residual`` with the points of the trees in random places, mean over draws.
    residual_exp
        Norm of (A~(f) divided by the row sums of exp(f)) - softmax, A = exp on the logits, the paper's form,
        relative as ``complete.relative_residual``.
    mean
        Mean of the visible logits.
    mixed_size
        Root of the sum over pairs of levels of the mean square of the mixed differences D_j D'_j' f.
    holder_mixed, holder_query, holder_key
        Hoelder exponents of the logits on the trees.
    """

    logits: FloatArray64
    trees: Trees
    complete: Paraproduct
    invariant: FloatArray64
    residual_shuffled: float
    residual_exp: float
    mean: float
    mixed_size: float
    holder_mixed: float
    holder_query: float
    holder_key: float

    @property
    def softmax(self) -> FloatArray64:
        """The probabilities; 0 where masked."""
        return self.complete.target

    @property
    def share_explained(self) -> float:
        """The share of softmax - coarse part that the invariant form explains after its best scaling.

        1 - min over c of |T - c I|^2 / |T|^2 = <T, I>^2 / (|T|^2 |I|^2),   T = softmax - A(P^0 P'^0 g)
        """
        return _share(
            np.where(self.complete.scored, self.softmax - self.complete.constant, 0.0), self.invariant
        )

    @property
    def share_of_mixed(self) -> float:
        """The same share of the mixed part of softmax, which is all that OA (12) speaks of."""
        return _share(self.softmax - self.complete.one_axis, self.invariant)

    def measures(self) -> dict[str, float]:
        """Return all numbers of the head by name."""
        return {
            "residual": self.complete.relative_residual,
            "residual_shuffled": self.residual_shuffled,
            "residual_mixed": self.complete.mixed_residual,
            "residual_exp": self.residual_exp,
            "share_explained": self.share_explained,
            "share_of_mixed": self.share_of_mixed,
            "mean": self.mean,
            "mixed_size": self.mixed_size,
            "holder_mixed": self.holder_mixed,
            "holder_query": self.holder_query,
            "holder_key": self.holder_key,
        }

    def organized(self, x: FloatArray64) -> FloatArray64:
        """Return a (query, key) matrix in the order of the trees."""
        return x[np.ix_(self.trees["query"].order, self.trees["key"].order)]


def softmax_experiment(
    logits: Any,
    trees: Trees | Organization | None = None,
    *,
    visible: BoolArray | str | None = None,
    masked: Masked = "fill",
    sink: float | None = None,
    draws: int = 3,
    seed: int = 0,
    **organize_options: Any,
) -> SoftmaxExperiment:
    """Organize one head and compare its softmax with the paraproduct and with the invariant form.

    Parameters
    ----------
    logits : (query, key) array
        Before the mask; masked entries may be anything.
    trees
        Trees of the queries and keys; by default the intrinsic organization of the logits (2-way
        questionnaire, alpha 1, beta 0, 10 iterations).
    visible : (query, key) bool, or "causal"
        Which keys each query sees; all by default.
    masked
        What is done about masked entries. "fill": they get the mean of the visible ones of their row, and only
        visible entries are scored. "block": only the second half of the queries is taken, with the keys that all
        of them see.
    sink
        One more logit that takes probability but belongs to no key.
    draws, seed
        How many shuffles of the points are averaged, and their seed.
    **organize_options
        Those of :func:`headscape.organize`.

    Returns
    -------
    SoftmaxExperiment

    Notes
    -----
    Softmax is not pointwise, but exp of log-softmax is, so A = exp acts on g = log-softmax. No size is cropped
    to a power of two. The organization takes nearly all of the time.

    References
    ----------
    OA (arXiv 2506.15541), theorems 1 and 2, corollary 1, figures 1 and 2.

    Examples
    --------
    >>> x = np.linspace(0, 1, 12)
    >>> found = softmax_experiment(np.outer(x, x), n_iter=2)
    >>> found.complete.relative_residual < 0.2, found.share_explained < 0.5
    (True, True)
    """
    if masked not in ("fill", "block"):
        raise InputError(f"masked must be 'fill' or 'block', but is {masked!r}.")
    require_integer(draws, "draws", 1, MAX_DRAWS)
    if np.ndim(logits) != 2:
        raise InputError(
            f"logits must be one head, a (query, key) matrix, but their shape is {np.shape(logits)}."
        )
    seen = as_visibility(visible, (np.shape(logits)[0], np.shape(logits)[1]))
    f, g = filled_logits(logits, seen), log_softmax(logits, seen, sink)
    if masked == "block" and seen is not None:
        rows, keys = _visible_block(seen)
        f, g, seen = f[rows][:, keys], g[rows][:, keys], None
    if trees is None:
        trees = organize(f, **(ORGANIZE_OPTIONS | organize_options)).trees
    trees = require_trees(f, trees, ("query", "key"))
    complete = paraproduct(g, trees, "exp", visible=seen)
    invariant = paraproduct(f, trees, INVARIANT, "paper", visible=seen)
    exponents = holder_exponent(f, trees, n_samples=_QUADRUPLES)
    return SoftmaxExperiment(
        logits=f,
        trees=trees,
        complete=complete,
        invariant=invariant.approximation,
        residual_shuffled=_shuffled_residual(g, trees, seen, draws, seed),
        residual_exp=_exp_residual(f, g, trees, seen, complete),
        mean=float(f[complete.scored].mean()),
        mixed_size=float(np.sqrt((invariant.first_order**2).sum())),
        holder_mixed=float(exponents.mixed[0, 0]),
        holder_query=float(exponents.query[0, 0]),
        holder_key=float(exponents.key[0, 0]),
    )


def _visible_block(visible: BoolArray) -> tuple[slice, NDArray[np.int64]]:
    """Return the second half of the queries and the keys that all of them, and the one before, see."""
    half = len(visible) // 2
    keys = np.flatnonzero(visible[max(0, half - 1) :].all(axis=0))
    if len(keys) == 0:
        raise InputError(
            "masked='block' needs keys that the whole second half of the queries sees, but there is none (a "
            "sliding window, perhaps). Use masked='fill'."
        )
    return slice(half, None), keys


def _shuffled_residual(g: FloatArray64, trees: Trees, seen: BoolArray | None, draws: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        shuffled = {
            axis: PartitionTree(trees[axis].labels[:, rng.permutation(trees[axis].n_points)])
            for axis in ("query", "key")
        }
        found.append(paraproduct(g, shuffled, "exp", visible=seen).relative_residual)
    return float(np.mean(found))


def _exp_residual(
    f: FloatArray64, g: FloatArray64, trees: Trees, seen: BoolArray | None, complete: Paraproduct
) -> float:
    """Return the relative residual of A = exp on the logits after the rows are divided by their sums."""
    # A constant shift changes A~ by a factor that the normalization takes out again, and avoids overflow.
    shift = float(f.max())
    found = paraproduct(f - shift, trees, "exp", visible=seen)
    with np.errstate(over="ignore", invalid="ignore"):
        error = found.residual * np.exp(g - f + shift)
    whole = np.where(complete.scored, complete.target - complete.constant, 0.0)
    size = float(np.linalg.norm(whole))
    return float(np.linalg.norm(error)) / size if size > 0 else float("nan")


def _share(whole: FloatArray64, part: FloatArray64) -> float:
    squares = float((whole**2).sum() * (part**2).sum())
    return float((whole * part).sum()) ** 2 / squares if squares > 0 else float("nan")
