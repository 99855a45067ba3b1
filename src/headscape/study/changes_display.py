"""The table of changes of two networks as display data: one row per head and its partner."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.output import json_ready
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.measure_words import MOST_TIMES, words_of

Place = tuple[int | None, int | None]
"""A row of the table: the head of the first and of the second network, None where it has none."""


def change_columns(
    pair: ComparedPair, first: ComparedSource, second: ComparedSource, places: Sequence[Place]
) -> list[dict[str, Any]]:
    """Return the columns of the table of changes that have something to show."""
    emd, cka = (_between(matrix, places) for matrix in (pair.emd, pair.cka_heads))
    moved = _moved(pair, first, places)
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
        _column(
            "moved",
            "moved",
            "How far its attention is from the partner's on the same windows, in median distances between heads; 0 is "
            "equal.",
            moved,
            panel=True,
        ),
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
        _column("emd", "tree EMD", "Distance from the partner on the same windows; 0 is equal.", emd)
        if pair.shifts.empty
        else {},
        _column("cka", "CKA", "Debiased linear CKA of the outputs of both heads; 1 is equal.", cka),
    ]
    return [column for column in columns if column and any(v is not None for v in column["values"])]


def finite_times(times: float) -> float | None:
    """Return a difference in units of the noise as JSON can hold it."""
    return None if np.isnan(times) else float(min(times, MOST_TIMES))


def _tested(
    pair: ComparedPair, first: ComparedSource, second: ComparedSource, places: Sequence[Place]
) -> list[dict[str, Any]]:
    """Return how much every head changed, in units of the noise: at most, and by every measure."""
    rows = pair.at("head")
    if rows.empty:
        return []
    times: dict[tuple[int, int], dict[str, float]] = {}
    verdicts: dict[tuple[int, int], set[str]] = {}
    for row in rows.to_dict("records"):
        head = (int(row["layer"]), int(row["head"]))
        times.setdefault(head, {})[str(row["measure"])] = float(row["times_noise"])
        verdicts.setdefault(head, set()).add(str(row["verdict"]))
    found = [None if None in place else times[_head(first, second, place)] for place in places]
    judged = [
        _lacking(first, second, place) if None in place else _verdict(verdicts[_head(first, second, place)])
        for place in places
    ]
    largest = [None if of is None else words_of(max(of, key=_comparable(of))).title for of in found]
    measures = list(dict.fromkeys(rows["measure"].astype(str)))
    return [
        _column(
            "times",
            "times the noise",
            "The largest difference from the partner over all measures, in units of the noise: above 1 it is more "
            "than windows of one network differ by.",
            [None if of is None else finite_times(np.nanmax([0.0, *of.values()])) for of in found],
            panel=True,
        ),
        _column("verdict", "verdict", "Whether the head differs by more than the noise.", judged, panel=True),
        _column("largest", "mostly in", "The measure with the largest difference.", largest, panel=True),
        *(
            _column(
                f"times_{name}",
                words_of(name).title,
                f"{words_of(name).title}: difference from the partner in units of the noise.",
                [None if of is None else finite_times(of[name]) for of in found],
            )
            for name in measures
        ),
    ]


def _moved(pair: ComparedPair, first: ComparedSource, places: Sequence[Place]) -> list[float | None]:
    """Return how far every head moved on the same windows; None where that is unknown."""
    rows = pair.shifts[pair.shifts["level"] == "head"]
    columns = (rows[name] for name in ("layer", "head", "moved"))
    found = {(int(layer), int(head)): float(moved) for layer, head, moved in zip(*columns, strict=True)}
    return [None if i is None else found.get(first.heads[i]) for i, _ in places]


def _comparable(times: dict[str, float]) -> Callable[[str], float]:
    """Return a key by which measures are ordered; what is unknown comes last."""
    return lambda name: -1.0 if np.isnan(times[name]) else times[name]


def _verdict(verdicts: set[str]) -> str:
    """Return one verdict for all measures: changed if any of them did."""
    order = ("changed", "unknown", "inside the noise", "identical")
    return next(word for word in order if word in verdicts)


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
