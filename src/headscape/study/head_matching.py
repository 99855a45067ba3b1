"""Which windows two studies share, and which of their heads belong together."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.comparison.assignment import assigned_heads, cross_emd
from headscape.analysis.detections import patch_places
from headscape.engine import Engine, Progress
from headscape.study.compared_source import ComparedSource
from headscape.study.study import Study

FloatArray64 = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Heads in another order: assigned, they are this much nearer than by their numbers. Unrelated networks of the same
# shape gain about half.
RENUMBERED = 0.1


@dataclass(frozen=True, eq=False)
class Matching:
    """Heads of two networks that belong together.

    ``how`` is "number", "original number", "assignment", or "" if none do; ``rows`` and ``columns`` are the places of
    the heads in the first and the second network.
    """

    how: str
    rows: IntArray
    columns: IntArray


def common_windows(a: Study, b: Study, *, demanded: bool = False) -> list[tuple[int, int]]:
    """Return the pairs of windows with the same tokens.

    Windows without tokens (tensors, and images, whose patches are called the same in all of them) are the same, one by
    one, if the inputs are, or if that is ``demanded``.
    """
    named = [_has_text(study) for study in (a, b)]
    if not all(named):
        first, second = (study.about.get("input_hash") for study in (a, b))
        same = (bool(first) and first == second) or (demanded and not any(named))
        return [(window, window) for window in range(a.windows)] if same and a.windows == b.windows else []
    places: dict[Any, list[int]] = defaultdict(list)
    for window in range(b.windows):
        places[_tokens(b, window)].append(window)
    pairs = []
    for window in range(a.windows):
        same_tokens = places[_tokens(a, window)]
        if same_tokens:
            pairs.append((window, same_tokens.pop(0)))
    return pairs


def _has_text(study: Study) -> bool:
    """Tell whether the windows have tokens that say what was read."""
    tokens = study.data.tokens(0)
    return bool(tokens) and patch_places(tokens) is None


def _tokens(study: Study, window: int) -> tuple[tuple[str, ...], ...]:
    return tuple(study.data.tokens(window)), tuple(study.data.key_tokens(window))


def emds_between(
    a: Study, b: Study, pairs: list[tuple[int, int]], engine: Engine, progress: Progress
) -> FloatArray64:
    """Return the (window, head, head) tree EMDs between the heads of two studies on the windows that they share.

    Every window is measured with the trees of both studies, so that neither of them decides. Windows whose queries or
    keys differ in number are left out.
    """
    found = []
    weights = {name: float(a.options["geometry"][name]) for name in ("alpha", "beta")}
    for number, (of_a, of_b) in enumerate(pairs):
        progress("comparing heads", number, len(pairs))
        x, y = (s.data.tensor(w, s.parameters["field"]).data for s, w in ((a, of_a), (b, of_b)))
        if x.ndim != 3 or y.ndim != 3 or x.shape[:2] != y.shape[:2]:
            continue
        trees = [a.organizations[of_a].trees]
        if not _same_trees(trees[0], b.organizations[of_b].trees):
            trees.append(b.organizations[of_b].trees)
        found += [np.mean([cross_emd(x, y, dict(one), **weights, engine=engine) for one in trees], axis=0)]
    return np.array(found) if found else np.empty((0, 0, 0))


def _same_trees(a: Any, b: Any) -> bool:
    return all(np.array_equal(a[axis].labels, b[axis].labels) for axis in ("query", "key"))


def matched_heads(a: ComparedSource, b: ComparedSource, emd: FloatArray64) -> Matching:
    """Say which heads belong together: by number, by the numbers before pruning, or by assignment if they moved."""
    kinds = {source.about.get("type") for source in (a, b)} - {None}
    related = len(kinds) < 2
    if related and a.heads == b.heads and not a.removed and not b.removed:
        places = np.arange(len(a.heads))
        if emd.size:
            found = assigned_heads(emd)
            renumbered = found.cost.sum() < RENUMBERED * np.trace(emd)
            if renumbered and (found.columns != places).any():
                return Matching("assignment", found.rows, found.columns)
        return Matching("number", places, places)
    if related and (a.removed or b.removed):
        where = {pair: place for place, pair in enumerate(b.originals)}
        common = [(i, where[pair]) for i, pair in enumerate(a.originals) if pair in where]
        whole = set(a.originals) | set(a.removed) == set(b.originals) | set(b.removed)
        if common and whole:
            rows, columns = np.array(common).T
            return Matching("original number", rows, columns)
    return Matching("", np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
