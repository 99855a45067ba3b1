"""Two networks of a comparison as display data: partners of heads, changes beside the noise, effects."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.analysis.comparison.shifts import ROUNDING
from headscape.output import json_ready
from headscape.report.comparison_page import PairView
from headscape.study.changes_display import Place, change_columns, finite_times
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.measure_words import noise_words, words_of

MOST_PARTNERS, LEAST_SHARE = 12, 0.01


def pair_view(pair: ComparedPair, first: ComparedSource, second: ComparedSource, sentence: str) -> PairView:
    """Return what the page shows of two networks."""
    matches = _matches(pair, first, second)
    places = _places(pair, matches, first, second)
    times = pair.times_noise
    return PairView(
        first=pair.a,
        second=pair.b,
        sentence=sentence,
        verdict=noise_words(times),
        distance=json_ready(pair.distance),
        noise=json_ready(pair.noise),
        inside=bool(times <= 1),
        partners=_partners(pair, matches),
        exact=bool(matches),
        rows={"first": [i for i, _ in places], "second": [j for _, j in places]},
        columns=change_columns(pair, first, second, places),
        groups=[group for level in ("layer", "folder") if (group := _group(pair, first, level))],
        matrices=_matrices(pair, first, second),
        effects=_effects(pair, first),
        patterns=_patterns(first, second),
        networks=_networks(pair, first),
        not_compared=[(words_of(what).title, why) for what, why in pair.not_compared],
    )


def _matches(pair: ComparedPair, first: ComparedSource, second: ComparedSource) -> dict[int, int]:
    """Return the partner of every head that has exactly one, as places in the two networks."""
    if pair.matched == "number":
        return {i: i for i in range(len(first.heads))}
    if pair.matched == "original number":
        where = {head: j for j, head in enumerate(second.originals)}
        return {i: where[head] for i, head in enumerate(first.originals) if head in where}
    return _corresponding(pair, first, second) if pair.matched == "assignment" else {}


def _corresponding(pair: ComparedPair, first: ComparedSource, second: ComparedSource) -> dict[int, int]:
    """Return the pairs of the correspondence as places in the two networks."""
    here, there = ({head: i for i, head in enumerate(source.heads)} for source in (first, second))
    columns = ["layer_a", "head_a", "layer_b", "head_b"]
    rows = pair.correspondence[columns].itertuples(index=False, name=None)
    return {here[int(la), int(ha)]: there[int(lb), int(hb)] for la, ha, lb, hb in rows}


def _partners(pair: ComparedPair, matches: dict[int, int]) -> list[list[list[list[float]]]]:
    """Return the partners of all heads on both sides: the one, or the largest shares of the transport plan."""
    if not matches:
        return [_shares(pair.plan), _shares(pair.plan.T)]
    back = {j: i for i, j in matches.items()}
    return [
        [[[found[i], 1.0]] if i in found else [] for i in range(count)]
        for found, count in zip((matches, back), pair.plan.shape, strict=True)
    ]


def _shares(plan: NDArray[np.float64]) -> list[list[list[float]]]:
    shares = plan / np.maximum(plan.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :MOST_PARTNERS]
    return [
        [[int(j), round(float(row[j]), 4)] for j in best if row[j] >= LEAST_SHARE]
        for row, best in zip(shares, order, strict=True)
    ]


def _places(
    pair: ComparedPair, matches: dict[int, int], first: ComparedSource, second: ComparedSource
) -> list[Place]:
    """Return the rows of the table: matched heads and those that only one side has, or every head's best partner."""
    if not matches:
        best = _corresponding(pair, first, second)
        return [(i, best.get(i)) for i in range(len(first.heads))]
    found: list[Place] = [(i, matches.get(i)) for i in range(len(first.heads))]
    taken = set(matches.values())
    return found + [(None, j) for j in range(len(second.heads)) if j not in taken]


def _group(pair: ComparedPair, first: ComparedSource, level: str) -> dict[str, Any] | None:
    """Return what changed by layer or by folder: every measure, and the largest of them."""
    rows = pair.at(level)
    if rows.empty:
        return None
    times = rows.pivot_table(index=level, columns="measure", values="times_noise", sort=False, dropna=False)
    words = rows.pivot_table(index=level, columns="measure", values="verdict", aggfunc="first", sort=False)
    of_head = _folders(first) if level == "folder" else np.array([layer for layer, _ in first.heads])
    heads = [int((of_head == unit).sum()) for unit in times.index]
    label: Callable[[int], str] = str if level == "layer" else lambda folder: str(folder + 1)
    whole = ("any", "any measure", times.max(axis=1), (words == "changed").any(axis=1))
    each = [(name, words_of(str(name)).title, times[name], words[name] == "changed") for name in times]
    series: list[dict[str, Any]] = [
        {
            "key": key,
            "title": title,
            "times": [finite_times(value) for value in values],
            "changed": [bool(value) for value in changed],
        }
        for key, title, values, changed in (whole, *each)
    ]
    moved = _moved(pair, level, list(times.index))
    # What the report shows first: what exceeds the noise, or if nothing does, what moved at all.
    series = [*series, *moved] if any(series[0]["changed"]) else [*moved, *series]
    labels = [label(int(unit)) for unit in times.index]
    return {"kind": level, "labels": labels, "heads": heads, "series": series}


def _moved(pair: ComparedPair, level: str, units: list[int]) -> list[dict[str, Any]]:
    """Return how far the groups moved on the same windows, as a series with a unit of its own."""
    rows = pair.shifts[pair.shifts["level"] == level].set_index(level)["moved"]
    if rows.empty:
        return []
    values = [json_ready(float(rows[unit])) for unit in units]
    return [
        {
            "key": "moved",
            "title": "attention on the same windows",
            "unit": "median distances between heads",
            "times": values,
            "changed": [value > ROUNDING for value in values],
        }
    ]


def _folders(source: ComparedSource) -> NDArray[np.int64]:
    labels = source.geometry.tree.labels
    return np.asarray(labels[min(1, len(labels) - 1)])


def _matrices(pair: ComparedPair, first: ComparedSource, second: ComparedSource) -> list[dict[str, Any]]:
    """Return layers against layers: shares of the transport, and CKA where head outputs were compared."""
    of_first, of_second = (
        np.array([[layer == own for layer, _ in s.heads] for own in s.layers], dtype=float)
        for s in (first, second)
    )
    mass = of_first @ pair.plan @ of_second.T
    share = mass / np.maximum(mass.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    found = [
        {
            "key": "share",
            "title": "transport",
            "meaning": f"Each row splits the heads of a layer of {first.name} over the layers of {second.name}, by the "
            "transport between their geometries.",
            "values": np.round(share, 4).tolist(),
        }
    ]
    if pair.cka_layers.size:
        found.append(
            {
                "key": "cka",
                "title": "CKA",
                "meaning": "How alike the outputs of two layers are: debiased linear CKA, 1 is equal.",
                "values": json_ready(np.round(pair.cka_layers, 4).tolist()),
            }
        )
    return found


def _effects(pair: ComparedPair, first: ComparedSource) -> list[dict[str, Any]]:
    rows = pair.effects[pair.effects["measure"].isin(list(first.measures))]
    names = {"key": "measure", "first": "median_a", "second": "median_b", "effect": "delta"}
    return [
        {
            **{key: json_ready(row[column]) for key, column in names.items()},
            **{key: json_ready(row[key]) for key in ("low", "high", "verdict")},
            "times": finite_times(row["times_noise"]),
        }
        for row in rows.to_dict("records")
    ]


def _networks(pair: ComparedPair, first: ComparedSource) -> list[dict[str, Any]]:
    rows = pair.effects[pair.effects["measure"].isin(list(first.networks))]
    return [
        {
            "title": words_of(row["measure"]).title,
            "meaning": words_of(row["measure"]).meaning,
            "first": json_ready(row["median_a"]),
            "second": json_ready(row["median_b"]),
            "times": finite_times(row["times_noise"]),
            "verdict": row["verdict"],
        }
        for row in rows.to_dict("records")
    ]


def _patterns(first: ComparedSource, second: ComparedSource) -> list[dict[str, Any]]:
    """Return the numbers of heads by pattern, the most frequent first and those without a name last."""
    here, there = first.pattern_counts, second.pattern_counts
    if not here or not there:
        return []
    share = {
        name: here.get(name, 0) / len(first.heads) + there.get(name, 0) / len(second.heads)
        for name in here | there
    }
    order = sorted(share, key=lambda name: (name == "mixed", -share[name]))
    return [{"pattern": name, "first": here.get(name, 0), "second": there.get(name, 0)} for name in order]
