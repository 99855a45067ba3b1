"""Rankings of heads: which would go first, by one of the methods or by a score of the user's own."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.ablation.calibration_split import calibration_windows
from headscape.ablation.choices import CHOICES, places_of
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Loss
from headscape.ablation.scores.attention import attention_entropy, confidence
from headscape.ablation.scores.gradient import gradient
from headscape.ablation.scores.haar import haar, haar_within_layer
from headscape.ablation.scores.leave_one_out import leave_one_out
from headscape.ablation.scores.output_norm import output_norm
from headscape.ablation.scores.reconstruction import reconstruction
from headscape.ablation.scores.tree_redundancy import tree_redundancy
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.models.loading import as_model
from headscape.tensor.capture import Capture


def _random(evaluator: HeadEvaluator) -> NDArray[np.float64]:
    return np.random.default_rng(evaluator.seed).permutation(len(evaluator.heads)).astype(np.float64)


METHODS: Mapping[str, Callable[[HeadEvaluator], NDArray[np.float64]]] = {
    "haar": haar,
    "haar-within-layer": haar_within_layer,
    "gradient": gradient,
    "attention-entropy": attention_entropy,
    "confidence": confidence,
    "output-norm": output_norm,
    "tree-redundancy": tree_redundancy,
    "reconstruction": reconstruction,
    "leave-one-out": leave_one_out,
    **{name: partial(places_of, method=name) for name in CHOICES},
    "random": _random,
}
"""The score behind every method; heads with low scores go first. "haar" ranks by ``haar_entropy``."""
REVERSED = ":reversed"

Method = str | Mapping[tuple[int, int], float] | Sequence[float] | Callable[[HeadEvaluator], Any]


@dataclass(frozen=True, eq=False)
class HeadRanking:
    """All heads of a model with a score each; those with low scores go first.

    Parameters
    ----------
    method
        Its name.
    heads
        All (layer, head) pairs, layer-major.
    scores : (head,) array
        Low goes first; what they are depends on the method.

    Examples
    --------
    >>> ranking = HeadRanking("mine", ((0, 0), (0, 1), (1, 0)), np.array([2.0, 0.5, 1.0]))
    >>> ranking.order
    ((0, 1), (1, 0), (0, 0))
    >>> ranking.first(2)
    ((0, 1), (1, 0))
    """

    method: str
    heads: tuple[tuple[int, int], ...]
    scores: NDArray[np.float64]

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """The heads, the one to go first in front; equal scores keep the order of the layers."""
        return tuple(self.heads[i] for i in np.argsort(self.scores, kind="stable"))

    def first(self, count: int) -> tuple[tuple[int, int], ...]:
        """Return the heads that go first."""
        if not 0 <= count <= len(self.heads):
            raise InputError(f"count must be from 0 to {len(self.heads)} heads, but is {count}.")
        return self.order[:count]

    def to_frame(self) -> "pd.DataFrame":
        """Return layer, head, score and place (0 goes first), indexed by (layer, head)."""
        index = pd.MultiIndex.from_tuples(list(self.heads), names=["layer", "head"])
        places = np.argsort(np.argsort(self.scores, kind="stable"))
        return pd.DataFrame({"score": self.scores, "place": places}, index=index)


def rank_heads(
    model: Any,
    inputs: Any,
    method: Method = "reconstruction",
    *,
    capture: Capture | None = None,
    organizations: Sequence[Organization] | None = None,
    windows: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    tokenizer: Any = None,
    stack: str | None = None,
    loss: Loss | None = None,
    count: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> HeadRanking:
    """Rank the heads of a model: which would go first.

    A ranking is a hypothesis. :func:`headscape.ablation_study` tests it.

    Parameters
    ----------
    model, inputs
        As for :func:`headscape.capture`. Where the inputs hold ``labels``, they are what the model is judged by.
    method
        A name: "haar", "haar-within-layer", "gradient", "attention-entropy", "confidence", "output-norm",
        "tree-redundancy", "reconstruction", "leave-one-out", "validated" (:mod:`headscape.ablation.validated_choice`),
        the published "flap", "wanda-sp", "slimgpt" and "osscar" (:mod:`headscape.ablation.rivals`), or "random"; with
        ":reversed" behind it, the other way round. Or a score of your own, low goes first: a column of a head table
        (indexed by layer and head), a dict by (layer, head), one number per head, or a function of the
        :class:`HeadEvaluator`.
    capture, organizations
        Of the same model, one organization per window, if they are there; what is missing is computed.
    windows, length
        How many windows at most (by default 16 of one text, and all of a list or batch), and how many tokens each.
    sample, tokenizer
        As for :func:`headscape.capture`.
    stack
        Which stack of a model with several; by default the first.
    loss
        In place of the model's own: called with the output of a forward pass and its arguments, it gives one
        number per row, differentiable for "gradient" and "reconstruction".
    count
        How many heads will be taken at most: "reconstruction", "validated" and the published methods stop there;
        remaining heads are unranked. What "validated" and the published methods choose depends on it, because a layer
        is judged on what those before it have lost.
    seed
        Of everything random.
    progress
        Progress callback.

    Returns
    -------
    HeadRanking

    Notes
    -----
    "haar", "haar-within-layer" and "tree-redundancy" organize every window (seconds each), "gradient" takes a
    backward pass, "reconstruction" that and a greedy search, "leave-one-out" an evaluation per head.
    """
    check_method(method)
    loaded = as_model(model, tokenizer)
    evaluator = HeadEvaluator(
        loaded,
        calibration_windows(loaded, inputs, windows, length, sample=sample, seed=seed),
        stack=stack,
        loss=loss,
        capture=capture,
        organizations=organizations,
        count=count,
        seed=seed,
        progress=progress,
    )
    return ranking_of(evaluator, method)


def ranking_of(evaluator: HeadEvaluator, method: Method, name: str | None = None) -> HeadRanking:
    """Rank the heads by a method, with an evaluator that is there already."""
    check_method(method)
    if isinstance(method, str):
        base = method.removesuffix(REVERSED)
        scores = np.asarray(METHODS[base](evaluator), dtype=np.float64)
        return HeadRanking(name or method, evaluator.heads, -scores if base != method else scores)
    own = method(evaluator) if callable(method) else method
    return HeadRanking(name or method_name(method), evaluator.heads, _own_scores(own, evaluator.heads))


def check_method(method: Any) -> None:
    """Raise unless a method is a known name or a score of the user's own."""
    if isinstance(method, str) and method.removesuffix(REVERSED) not in METHODS:
        raise InputError(
            f"a method is one of {', '.join(METHODS)} (with {REVERSED} behind it, the other way round), but "
            f"{method!r} was asked for. A score of your own is a column of a head table, or a function."
        )
    if not isinstance(method, str) and not callable(method) and not isinstance(method, Iterable):
        raise InputError(
            f"a method is a name, a column, a dict or a function, but {type(method).__name__} was given."
        )


def method_name(method: Any) -> str:
    """Return what a method is called: its own name, or that of the function or column."""
    if isinstance(method, str):
        return method
    name = getattr(method, "name", None) or getattr(method, "__name__", None)
    return str(name) if name else "own score"


def _own_scores(own: Any, heads: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    if hasattr(own, "to_dict") and hasattr(own, "index"):  # a column of a head table
        own = own.to_dict()
    if isinstance(own, Mapping):
        missing = [head for head in heads if head not in own]
        if missing:
            raise InputError(
                f"a score must be given for every head, but {len(missing)} of {len(heads)} are missing, "
                f"{missing[0]} for one. Index the column by (layer, head)."
            )
        own = [own[head] for head in heads]
    scores = np.asarray(own, dtype=np.float64)
    if scores.shape != (len(heads),):
        raise InputError(
            f"a score must be one number per head, {len(heads)} of them, but its shape is {scores.shape}."
        )
    if np.isnan(scores).any():
        raise InputError(
            f"a score must be a number for every head, but {int(np.isnan(scores).sum())} are NaN."
        )
    return scores


def read_scores(path: str | os.PathLike[str], column: str) -> "pd.Series":
    """Return a column of a head table (heads.csv) as a score, indexed by (layer, head)."""
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"the table {path} cannot be read ({error}). Expected a heads.csv.") from error
    if not {"layer", "head", column} <= set(table):
        raise InputError(
            f"the table {path} must have the columns layer, head and {column}, but has {', '.join(map(str, table))}."
        )
    found: pd.Series = table.set_index(["layer", "head"])[column]
    return found
