"""Two networks of a comparison as display data: partners of heads, changes beside the noise, effects."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headscape.output import json_ready
from headscape.report.comparison_page import PairView
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.measure_words import MOST_TIMES, noise_words, words_of

MOST_PARTNERS, LEAST_SHARE = 12, 0.01

Place = tuple[int | None, int | None]
"""A row of the table of changes: the head of the first and of the second network, None where it has none."""


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
        columns=_columns(pair, first, second, places),
        groups=[group for level in ("layer", "folder") if (group := _group(pair, first, level))],
        matrices=_matrices(pair, first, second),
        effects=_effects(pair, first),
        patterns=_patterns(first, second),
        networks=_networks(pair, first),
        not_compared=list(pair.not_compared),
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


def _columns(
    pair: ComparedPair, first: ComparedSource, second: ComparedSource, places: Sequence[Place]
) -> list[dict[str, Any]]:
    """Return the columns of the table of changes that have something to show."""
    emd, cka = (_between(matrix, places) for matrix in (pair.emd, pair.cka_heads))
    share = pair.plan / np.maximum(pair.plan.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    soft = not pair.matched
    columns = [
        _column("layer", "layer", "Layer of the head, from 0.", [_head(first, second, p)[0] for p in places]),
        _column(
            "partner",
            "partner",
            f"The head of {second.name} that it corresponds to.",
            [None if j is None else _name(second, j) for _, j in places],
        ),
        *_tested(pair, first, second, places),
        _column("pattern", "what it does", "Its pattern.", _patterns_of(first, [i for i, _ in places])),
        _column(
            "partner_pattern",
            "what the partner does",
            "The partner's pattern.",
            _patterns_of(second, [j for _, j in places]),
        ),
        _column("share", "share", "Share of the transport that goes to the partner.", _between(share, places))
        if soft
        else {},
        _column("emd", "tree EMD", "Distance from the partner on the same windows; 0 is equal.", emd),
        _column("cka", "CKA", "Debiased linear CKA of the outputs of both heads; 1 is equal.", cka),
    ]
    return [column for column in columns if column and any(v is not None for v in column["values"])]


def _tested(
    pair: ComparedPair, first: ComparedSource, second: ComparedSource, places: Sequence[Place]
) -> list[dict[str, Any]]:
    """Return how much every head changed, in units of the noise: at most, and by every measure."""
    rows = pair.at("head")
    if rows.empty:
        return []
    times = rows.pivot_table(index=["layer", "head"], columns="measure", values="times_noise", sort=False)
    found = [None if None in place else times.loc[_head(first, second, place)] for place in places]
    changed = _changed(rows, ["layer", "head"])
    verdicts = [
        _verdict(changed, _head(first, second, place)) if row is not None else _lacking(first, second, place)
        for place, row in zip(places, found, strict=True)
    ]
    largest = [None if row is None else words_of(str(row.idxmax())).title for row in found]
    return [
        _column(
            "times",
            "times the noise",
            "The largest difference from the partner over all measures, in units of the noise: above 1 it is more "
            "than windows of one network differ by.",
            [None if row is None else _finite(row.max()) for row in found],
            panel=True,
        ),
        _column(
            "verdict", "verdict", "Whether the head differs by more than the noise.", verdicts, panel=True
        ),
        _column("largest", "mostly in", "The measure with the largest difference.", largest, panel=True),
        *(
            _column(
                f"times_{name}",
                words_of(str(name)).title,
                f"{words_of(str(name)).title}: difference from the partner in units of the noise.",
                [None if row is None else _finite(row[name]) for row in found],
            )
            for name in times
        ),
    ]


def _changed(rows: pd.DataFrame, by: list[str]) -> dict[Any, set[str]]:
    """Return the verdicts of all measures by unit."""
    return {unit: set(group["verdict"]) for unit, group in rows.groupby(by, sort=False)}


def _verdict(verdicts: dict[Any, set[str]], unit: Any) -> str:
    """Return one verdict for all measures: changed if any of them did."""
    order = ("changed", "unknown", "inside the noise", "identical")
    return next(word for word in order if word in verdicts[unit])


def _lacking(first: ComparedSource, second: ComparedSource, place: Place) -> str:
    return f"only in {second.name if place[0] is None else first.name}"


def _head(first: ComparedSource, second: ComparedSource, place: Place) -> tuple[int, int]:
    i, j = place
    return second.heads[j] if i is None and j is not None else first.heads[i or 0]


def _name(source: ComparedSource, place: int) -> str:
    layer, head = source.heads[place]
    return f"{layer}.{head}"


def _patterns_of(source: ComparedSource, places: Sequence[int | None]) -> list[str | None]:
    if "pattern" not in source.table:
        return [None] * len(places)
    found = source.table["pattern"].tolist()
    return [None if place is None else str(found[place]) for place in places]


def _between(matrix: NDArray[np.float64], places: Sequence[Place]) -> list[float | None]:
    """Return the entries of a (head, head) matrix for every row of the table; None where there is none."""
    if not matrix.size:
        return [None] * len(places)
    return [None if i is None or j is None else json_ready(float(matrix[i, j])) for i, j in places]


def _column(key: str, title: str, meaning: str, values: list[Any], *, panel: bool = False) -> dict[str, Any]:
    numeric = not any(isinstance(value, str) for value in values)
    return {
        "key": key,
        "title": title,
        "meaning": meaning,
        "numeric": numeric,
        "panel": panel,
        "values": values,
    }


def _finite(times: float) -> float | None:
    return None if np.isnan(times) else float(min(times, MOST_TIMES))


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
    return {
        "kind": level,
        "labels": [label(int(unit)) for unit in times.index],
        "heads": heads,
        "series": [
            {
                "key": key,
                "title": title,
                "times": [_finite(value) for value in values],
                "changed": [bool(value) for value in changed],
            }
            for key, title, values, changed in (whole, *each)
        ],
    }


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
            "times": _finite(row["times_noise"]),
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
            "times": _finite(row["times_noise"]),
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
