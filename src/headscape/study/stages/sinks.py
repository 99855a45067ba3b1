"""The stage "sinks": which keys are attention sinks, and what the map of the heads shows without them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headscape.analysis.head_folders import chance_correlation
from headscape.analysis.stability import rank_correlations
from headscape.errors import InputError
from headscape.geometry.organization import Organization, organize
from headscape.report.section import Section
from headscape.study.stages.context import Context
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.geometry import organization_of
from headscape.study.stages.result import Result
from headscape.study.stages.stage import NotApplicableError, Outcome, Stage
from headscape.tensor.network_tensor import WITHOUT_SINKS, NetworkTensor
from headscape.tensor.sinks import FEWEST_QUERIES, SINK_SCORE, sink_keys, sink_scores, without_sinks

if TYPE_CHECKING:
    from headscape.study.study import Study

FEWEST_HEADS, FEWEST_KEYS, MOST_NAMED = 4, 4, 5
FOLLOWS, MUCH = 0.3, 0.7
"""Rank correlations from which on a coordinate follows a score, and from which on much of the geometry is the sink."""


@dataclass(frozen=True, eq=False)
class SinkEffect:
    """The sinks of the first window, and the heads with and without them: ``study["sinks"]``.

    Parameters
    ----------
    keys, labels
        The sink keys, and their names with place and token.
    scores : (sink, head) array
        Mean attention to each sink from the queries that see it.
    share : (head,) array
        Share of all attention that goes to the sinks.
    measures
        What coordinates are compared with, by name: layer, attention to the sinks, patterns.
    with_sinks, without
        The organizations of the first window; the second is None if nothing was organized without sinks.
    """

    keys: tuple[int, ...]
    labels: tuple[str, ...]
    scores: NDArray[np.float64]
    share: NDArray[np.float64]
    measures: Mapping[str, NDArray[np.float64]]
    with_sinks: Organization
    without: Organization | None

    @property
    def n_heads(self) -> NDArray[np.int64]:
        """In how many heads each sink is one."""
        return np.asarray((self.scores > SINK_SCORE).sum(axis=1))

    @cached_property
    def emd_correlation(self) -> float:
        """Rank correlation of the head EMDs with and without sinks."""
        assert self.without is not None  # asked for only if there is one
        pairs = np.triu_indices(len(self.share), 1)
        return _correlation(self.with_sinks.emd["head"][pairs], self.without.emd["head"][pairs])

    @cached_property
    def coordinates(self) -> dict[tuple[str, int], dict[str, float]]:
        """Rank correlations of the diffusion coordinates 1 and 2, "with" and "without" sinks, with every measure."""
        found: dict[tuple[str, int], dict[str, float]] = {}
        for name, organization in (("with", self.with_sinks), ("without", self.without)):
            if organization is not None:
                places = organization.diffusion_map("head", n_components=2).T
                for number, place in enumerate(places, start=1):
                    found[name, number] = {word: _correlation(place, v) for word, v in self.measures.items()}
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return one row per sink: key, name, number of heads, mean score."""
        columns = {"key": self.keys, "label": self.labels, "heads": self.n_heads}
        return pd.DataFrame({**columns, "mean_score": self.scores.mean(axis=1)})


class Sinks(Stage):
    """Organizes the first window once more without its sinks."""

    name, title, doing = "sinks", "The map without attention sinks", "organizing without sinks"
    unit, cost, needs, optional, concurrent = "model", 2.2, ("geometry",), True, True

    def measure(self, context: Context, piece: int) -> Result:
        """Return the sinks of the first window, and its organization without them."""
        field = context.parameters["field"]
        if field not in ("probs", WITHOUT_SINKS):
            raise NotApplicableError(
                f"sinks are found in probabilities, but the organized field is {field!r}"
            )
        try:
            x = context.tensor(0, "probs")
            keys = np.asarray(sink_keys(x), dtype=np.int64)
        except InputError as error:
            raise NotApplicableError(str(error)) from error
        arrays: dict[str, NDArray[Any]] = {
            "sink_keys": keys,
            "sink_scores": sink_scores(x)[keys],
            "sink_share": _share(x, keys),
            **{f"score_{name}": values for name, values in _diagonals(x).items()},
        }
        attributes: dict[str, Any] = {"labels": [_label(x, key) for key in keys], "queries": x.shape[0]}
        if field == "probs" and 0 < len(keys) <= x.shape[1] - FEWEST_KEYS:
            options = context.options["geometry"]
            kept = without_sinks(x, keys)
            found = organize(kept, **options, engine=context.engine, progress=context.progress)
            arrays |= found.arrays()
            attributes["organization"] = found.attributes()
        return Result(arrays, attributes)

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Say which keys are sinks, how much of the geometry they are, and what is there without them."""
        result = results[0]
        effect = _effect(context, result)
        if not effect.keys:
            few = result.attributes["queries"] < FEWEST_QUERIES
            why = f": a window needs at least {FEWEST_QUERIES} queries" if few else ""
            sentence = f"No key is an attention sink in the first window{why}; there is no second map."
            return Outcome(context.frame({}), (sentence,), detail=effect)
        left_out = context.parameters["field"] == WITHOUT_SINKS
        return Outcome(
            context.frame({}),
            (
                Finding(_sinks_in_words(effect, left_out), Question.unusual),
                *(Finding(sentence, Question.alike) for sentence in _geometry_in_words(effect, left_out)),
            ),
            remarks=() if effect.without is None else effect.without.warnings,
            detail=effect,
            tables={"sinks": effect.to_frame()},
        )

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return the coordinates of the second map, and what there is to say about it."""
        effect: SinkEffect = study[self.name]
        if effect.without is None:
            return ()
        data = {
            "coordinates": effect.without.diffusion_map("head", n_components=3).round(7).tolist(),
            "keys": list(effect.labels),
            "sentence": " ".join(study.outcomes[self.name].findings),
            "remarks": [str(notice) for notice in study.outcomes[self.name].remarks],
        }
        return (Section(self.name, data=data),)


def _effect(context: Context, result: Result) -> SinkEffect:
    arrays, share = result.arrays, result.arrays["sink_share"]
    measures = {"layer": np.asarray([layer for layer, _ in context.heads], dtype=np.float64)}
    if len(arrays["sink_keys"]):
        measures["attention to sinks"] = share
    patterns = context.earlier["patterns"].detail if "patterns" in context.earlier else None
    if patterns is None:
        scores = {
            name: arrays[f"score_{name}"] for name in ("self", "previous_token") if f"score_{name}" in arrays
        }
    else:
        scores = {name: patterns.table[name].to_numpy(dtype=np.float64) for name in patterns.scores}
    measures |= {name.replace("_", " "): v for name, v in scores.items() if np.isfinite(v).all()}
    return SinkEffect(
        keys=tuple(int(key) for key in arrays["sink_keys"]),
        labels=tuple(result.attributes["labels"]),
        scores=arrays["sink_scores"],
        share=share,
        measures=measures,
        with_sinks=context.organizations[0],
        without=organization_of(result) if "organization" in result.attributes else None,
    )


def _share(x: NetworkTensor, keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of every head's attention that goes to some keys."""
    total = x.data.sum(axis=(0, 1), dtype=np.float64)
    to_keys = x.data[:, keys].sum(axis=(0, 1), dtype=np.float64)
    return np.asarray(np.divide(to_keys, total, out=np.zeros_like(total), where=total > 0))


def _diagonals(x: NetworkTensor) -> dict[str, NDArray[np.float64]]:
    """Return the share of attention to the own and to the previous token, where queries and keys are the same."""
    if x.shape[0] != x.shape[1]:
        return {}
    total = np.maximum(x.data.sum(axis=(0, 1), dtype=np.float64), np.finfo(float).tiny)
    offsets = {"self": 0, "previous_token": -1}
    return {name: x.data.trace(offset, dtype=np.float64) / total for name, offset in offsets.items()}


def _label(x: NetworkTensor, key: int) -> str:
    token = "" if x.key_tokens is None else f" {json.dumps(x.key_tokens[key], ensure_ascii=False)}"
    return f"key {key}{token}"


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(rank_correlations(np.asarray(stats.rankdata([a, b], axis=1)))[0, 1])


def _sinks_in_words(effect: SinkEffect, left_out: bool) -> str:
    order = np.argsort(-effect.n_heads, kind="stable")
    named = [f"{effect.labels[i]} in {effect.n_heads[i]}" for i in order[:MOST_NAMED]]
    more = f" and {len(order) - MOST_NAMED} more" if len(order) > MOST_NAMED else ""
    one = len(order) == 1
    ending = "; the organized field leaves them out" if left_out else ""
    subject = "1 key is an attention sink" if one else f"{len(order)} keys are attention sinks"
    return (
        f"{subject} (in the first window, {'it' if one else 'each'} receives more than {SINK_SCORE:g} of the attention "
        "of the queries that see it): "
        f"{', '.join(named)}{more} of {len(effect.share)} heads. {'It takes' if one else 'Together they take'} "
        f"{100 * effect.share.mean():.0f} % of all attention{ending}."
    )


def _geometry_in_words(effect: SinkEffect, left_out: bool) -> tuple[str, ...]:
    if left_out or len(effect.share) < FEWEST_HEADS:
        return ()
    if effect.without is None:
        return ("Too few other keys are left for a second map without sinks.",)
    follows, n = effect.coordinates, len(effect.share)
    sink = follows["with", 1]["attention to sinks"]
    much = "Much" if abs(sink) >= MUCH else "Part" if abs(sink) >= FOLLOWS else "Little"
    gone = {(w.name, w.axis) for w in effect.with_sinks.warnings}
    gone -= {(w.name, w.axis) for w in effect.without.warnings}
    listed = ", ".join(f"{name} ({axis})" for name, axis in sorted(gone))
    return (
        f"{much} of the geometry of the heads is attention to sinks: the share of attention to sinks has a rank "
        f"correlation of {sink:.2f} with the first coordinate of the map; the distances between heads with and without "
        f"sinks have one of {effect.emd_correlation:.2f}.",
        f"Without sinks, the first coordinate of the map follows {_followed(follows['without', 1], n)}, the "
        f"second {_followed(follows['without', 2], n)} (rank correlations)."
        + (f" Warnings that no longer apply: {listed}." if gone else ""),
    )


def _followed(correlations: Mapping[str, float], n_heads: int) -> str:
    """Name what a coordinate follows, unless unrelated scores would be followed as well."""
    least = max(FOLLOWS, chance_correlation(n_heads, 2 * len(correlations)))
    best = max(correlations, key=lambda name: abs(correlations[name]))
    value = correlations[best]
    return f"{best} ({value:.2f})" if abs(value) >= least else "none of the scores"
