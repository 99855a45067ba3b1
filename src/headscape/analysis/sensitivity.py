"""How sensitive results are to their parameters: re-runs with neighbors of the chosen values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.entropy import head_entropy
from headscape.analysis.stability import rank_agreement, rank_correlations
from headscape.analysis.supports import neighboring_k
from headscape.analysis.windows import staged
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import Organization, organize
from headscape.geometry.questionnaire import folder_jaccard
from headscape.notices import PARAMETER_SENSITIVE, Notice

# Below these, a reader who had chosen the neighboring value would tell another story.
ROBUST_CORRELATION = 0.8
ROBUST_JACCARD = 0.5


@dataclass(frozen=True)
class Rerun:
    """One re-run with one parameter changed, compared with the chosen values.

    ``emd_correlation`` is the rank correlation of the EMDs between heads, ``tree_jaccard`` the share of common
    folders of the head trees, ``rank_correlation`` and ``jaccard_bottom`` compare the entropies.
    """

    parameter: str
    value: str
    emd_correlation: float
    tree_jaccard: float
    rank_correlation: float
    jaccard_bottom: float

    @property
    def warning(self) -> Notice | None:
        """The named state in which a result is sensitive to this parameter, or None."""
        moved = [
            f"{what} {value:.2f}"
            for what, value, limit in (
                ("rank correlation of the head EMDs", self.emd_correlation, ROBUST_CORRELATION),
                ("rank correlation of the entropies", self.rank_correlation, ROBUST_CORRELATION),
                ("Jaccard of the lowest 10 %", self.jaccard_bottom, ROBUST_JACCARD),
            )
            if value < limit
        ]
        if not moved:
            return None
        message = (
            f"with {self.parameter} = {self.value} instead: {', '.join(moved)}; what is said about the heads depends "
            "on this choice, so state it"
        )
        return Notice(PARAMETER_SENSITIVE, message, "head")


@dataclass(frozen=True)
class Sensitivity:
    """All re-runs of a sensitivity study."""

    reruns: tuple[Rerun, ...]

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """The parameters that a result is sensitive to."""
        return tuple(rerun.warning for rerun in self.reruns if rerun.warning is not None)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per re-run; ``robust`` is False where a warning is due."""
        rows = [vars(rerun) | {"robust": rerun.warning is None} for rerun in self.reruns]
        return pd.DataFrame(rows)


def sensitivity(
    x: Any,
    *,
    k: float = 400,
    grid: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
    **chosen: Any,
) -> Sensitivity:
    """Re-run the organization and the entropies with one parameter changed at a time.

    Parameters
    ----------
    x : NetworkTensor or (query, key, head) array
    k
        The chosen k of the entropies.
    grid
        The values to try, by parameter: those of :func:`headscape.organize`, "alpha, beta" (pairs), and "k".
        By default neighbors of the chosen values: half and twice ``eps_scale`` and ``k``, a step of 1/2 in
        ``alpha`` and in ``beta``, the other initial affinity, the other kind of tree.
    fields
        Other fields of the same window and heads, by name, each an array of the shape of x.
    progress
        Told during every re-run, and after it.
    **chosen
        The chosen values of the parameters of :func:`headscape.organize`.

    Returns
    -------
    Sensitivity

    Notes
    -----
    One organization per value other than those of k: seven with the default grid, the chosen one included.
    Folders of trees move long before the EMDs do, so ``tree_jaccard`` is told but never a warning.

    Examples
    --------
    >>> from headscape.tensor.synthetic import planted_tensor
    >>> x = planted_tensor(16, 16, 2, 4)
    >>> sensitivity(x, k=50, n_iter=1, grid={"k": [25, 100]}).to_frame()["value"].tolist()
    ['25', '100']
    """
    array = np.asarray(x)
    if array.ndim != 3:
        raise InputError(f"x must have the axes query, key, head, but its shape is {array.shape}.")
    base = organize(x, **chosen, progress=staged(progress, "chosen values"))
    tries = dict(_neighbors(base.parameters, k) if grid is None else grid)
    known = {*base.parameters, "k"}
    for parameter in tries:
        if not set(parameter.split(", ")) <= known:
            raise InputError(
                f"grid may have the parameters {', '.join(sorted(known))}, but has {parameter!r}."
            )
    runs = [(parameter, value) for parameter, values in tries.items() for value in values]
    runs += [("field", name) for name in fields or {}]
    scores = head_entropy(array, base.trees, k)
    reruns = []
    for done, (parameter, value) in enumerate(runs):
        options = chosen | {"progress": staged(progress, f"{parameter} = {value}")}
        if parameter == "k":
            other, entropies = base, head_entropy(array, base.trees, value)
        elif parameter == "field":
            other_field = (fields or {})[value]
            other = organize(other_field, **options)
            entropies = head_entropy(other_field, other.trees, k)
        else:
            changed = dict(zip(parameter.split(", "), value if "," in parameter else [value], strict=True))
            other = organize(x, **(options | changed))
            entropies = head_entropy(array, other.trees, k)
        reruns.append(_compare(parameter, value, base, other, scores, entropies))
        progress("re-runs", done + 1, len(runs))
    return Sensitivity(tuple(reruns))


def _neighbors(chosen: Mapping[str, Any], k: float) -> Iterator[tuple[str, list[Any]]]:
    """Yield for every parameter the neighbors of its chosen value."""
    eps, alpha, beta = chosen["eps_scale"], chosen["alpha"], chosen["beta"]
    yield "eps_scale", [eps / 2, eps * 2]
    yield "alpha, beta", [(_step(alpha), beta), (alpha, _step(beta))]
    yield "init", ["gaussian" if chosen["init"] == "cosine" else "cosine"]
    yield "tree", ["binary" if chosen["tree"] == "flexible" else "flexible"]
    yield "k", neighboring_k(k)


def _step(value: float) -> float:
    """Return a neighbor at distance 1/2, towards the middle of [0, 1]."""
    return value + 0.5 if value < 0.5 else value - 0.5


def _compare(
    parameter: str,
    value: Any,
    base: Organization,
    other: Organization,
    scores: NDArray[np.float64],
    entropies: NDArray[np.float64],
) -> Rerun:
    agreement = rank_agreement(scores[None], entropies[None])
    above = np.triu_indices(len(scores), k=1)
    ranks = [stats.rankdata(organization.emd["head"][above]) for organization in (base, other)]
    return Rerun(
        parameter=parameter,
        value=str(value),
        emd_correlation=float(rank_correlations(np.stack(ranks))[0, 1]),
        tree_jaccard=folder_jaccard(base.trees["head"], other.trees["head"]),
        rank_correlation=agreement.rank_correlation,
        jaccard_bottom=agreement.jaccard_bottom,
    )
