"""Made-up display data of comparisons, for tests of their page without a model."""

from itertools import combinations
from typing import Any

import numpy as np

from headscape.report.comparison_page import ComparisonPageData, PairView, SourceView
from headscape.report.html_page import Answer

KINDS = ("first token", "previous token", "mixed", "<b>odd</b> & kind")
MEASURES = [
    {"key": "haar_entropy", "title": "Haar entropy", "meaning": "Sum of the coarse Haar coefficients."},
    {"key": "mu_K", "title": "key incoherence", "meaning": "How evenly the keys spread."},
]
CHANGED_LAYER = 2


def made_up_source(
    name: str, layers: int, heads: int, seed: int, without: tuple[int, ...] = ()
) -> SourceView:
    """Return a network with random places and measures; ``without`` are indices of heads that were removed."""
    rng = np.random.default_rng(seed)
    grid = [(layer, head) for layer in range(layers) for head in range(heads)]
    kept = [pair for i, pair in enumerate(grid) if i not in without]
    return SourceView(
        name=f"{name} (a long name)",
        label=name,
        heads={
            "names": [f"{layer}.{head}" for layer, head in kept],
            "layer": [layer for layer, _ in kept],
            "head": [head for _, head in kept],
        },
        coordinates=rng.normal(size=(len(kept), 2)).tolist(),
        patterns=[KINDS[head % len(KINDS)] for _, head in kept],
        values={measure["key"]: rng.gamma(4, 5, len(kept)).tolist() for measure in MEASURES},
        spectrum=_spectrum(rng),
        entropies=rng.normal(100, 5, 6).tolist(),
        folders=[1, 2, 5, 12, len(kept)],
    )


def _spectrum(rng: np.random.Generator) -> dict[str, dict[str, list[float]]]:
    median = np.sort(rng.gamma(1, 1, 100))[::-1] + 0.01
    sizes = {"median": median, "low": 0.8 * median, "high": 1.3 * median}
    return {order: {name: values.tolist() for name, values in sizes.items()} for order in ("size", "support")}


def made_up_pair(sources: list[SourceView], first: int, second: int, exact: bool = True) -> PairView:
    """Return a pair in which the heads of one layer changed."""
    one, two = sources[first], sources[second]
    there = {name: i for i, name in enumerate(two.heads["names"])}
    if exact:
        partner = [there.get(name) for name in one.heads["names"]]
        forth = [[] if i is None else [[i, 1.0]] for i in partner]
        back = [[[partner.index(i), 1.0]] if i in partner else [] for i in range(len(there))]
    else:
        forth, back = _soft(one, two), _soft(two, one)
        partner = [int(plan[0][0]) for plan in forth]
    changed = [layer == CHANGED_LAYER for layer in one.heads["layer"]]
    times: list[Any] = [
        None if p is None else (3.5 if c else 0.8) for p, c in zip(partner, changed, strict=True)
    ]
    verdicts = ["removed" if t is None else "changed" if t > 2 else "inside the noise" for t in times]
    n_layers = max(one.heads["layer"]) + 1
    return PairView(
        first=first,
        second=second,
        sentence=f"{one.label} and {two.label}: same organization; layer {CHANGED_LAYER} changed.",
        verdict="1.4 times the noise" if second - first > 1 else "inside the noise",
        distance=0.1 * (second - first),
        noise=0.12,
        inside=second - first <= 1,
        partners=[forth, back],
        exact=exact,
        rows={"first": list(range(len(times))), "second": partner},
        columns=[
            _column("layer", one.heads["layer"]),
            _column("partner", [None if p is None else two.heads["names"][p] for p in partner]),
            _column("distance", [None if t is None else 0.01 * t for t in times]),
            _column("times", times, "times the noise", panel=True),
            _column("verdict", verdicts, panel=True),
        ],
        groups=_groups(n_layers, one) if exact else [],
        matrices=[_matrix("share", one, two), *([] if exact else [_matrix("cka", one, two)])],
        effects=[
            {
                "key": measure["key"],
                "first": 20.0,
                "second": 21.0,
                "effect": 0.1,
                "low": -0.05,
                "high": 0.24,
                "times": 0.7,
                "verdict": "inside the noise",
            }
            for measure in MEASURES
        ],
        patterns=[
            *(
                {"pattern": kind, "first": one.patterns.count(kind), "second": two.patterns.count(kind)}
                for kind in KINDS
            ),
            {"pattern": "induction", "first": 3, "second": 0},
        ],
        networks=[
            {
                "title": "depth of the head tree",
                "meaning": "Levels below the root.",
                "first": 5.0,
                "second": 5.5,
                "times": 0.5,
                "verdict": "inside the noise",
            }
        ],
        not_compared=[] if exact else [("Head by head", "the networks have different shapes.")],
    )


def _soft(one: SourceView, two: SourceView) -> list[list[list[float]]]:
    n = len(two.heads["names"])
    return [[[i % n, 0.5], [(i + 1) % n, 0.3], [(i + 3) % n, 0.2]] for i in range(len(one.heads["names"]))]


def _column(key: str, values: list[Any], title: str = "", panel: bool = False) -> dict[str, Any]:
    numeric = not any(isinstance(value, str) for value in values)
    return {
        "key": key,
        "title": title or key,
        "meaning": f"The {key} of the head.",
        "numeric": numeric,
        "panel": panel,
        "values": values,
    }


def _groups(n: int, one: SourceView) -> list[dict[str, Any]]:
    times = [3.5 if layer == CHANGED_LAYER else 0.8 for layer in range(n)]
    series: list[dict[str, Any]] = [
        {"key": key, "title": key, "times": times, "changed": [t > 1 for t in times]}
        for key in ("any", "emd")
    ]
    moved = [0.2 if layer == CHANGED_LAYER else 0.0 for layer in range(n)]
    series.append(
        {
            "key": "moved",
            "title": "moved",
            "unit": "median EMDs moved",
            "times": moved,
            "changed": [m > 0 for m in moved],
        }
    )
    heads = [one.heads["layer"].count(layer) for layer in range(n)]
    return [{"kind": "layer", "labels": [str(layer) for layer in range(n)], "heads": heads, "series": series}]


def _matrix(key: str, one: SourceView, two: SourceView) -> dict[str, Any]:
    shape = (max(one.heads["layer"]) + 1, max(two.heads["layer"]) + 1)
    values = np.random.default_rng(3).dirichlet(np.ones(shape[1]), shape[0]).tolist()
    return {"key": key, "title": key, "meaning": f"The {key} of two layers.", "values": values}


def made_up_comparison(
    names: tuple[str, ...] = ("intact", "pruned"), exact: bool = True, layers: int = 4, heads: int = 6
) -> ComparisonPageData:
    """Return a page of networks; the second of two lacks two heads, or has another shape if not exact."""
    sources = [made_up_source(name, layers, heads, seed) for seed, name in enumerate(names)]
    if len(names) == 2:
        sources[1] = (
            made_up_source(names[1], layers, heads, 7, without=(1, 8))
            if exact
            else made_up_source(names[1], 3, 5, 7)
        )
    pairs = [made_up_pair(sources, a, b, exact) for a, b in combinations(range(len(sources)), 2)]
    more = len(names) > 2
    return ComparisonPageData(
        title=" and ".join(names),
        sources=sources,
        pairs=pairs,
        measures=MEASURES,
        answers=[
            Answer(
                "Are they the same?",
                "Same organization; layer 2 changed, 6 heads; the rest is within the noise.",
            ),
            Answer("Where do they differ?", "Layer 2 is 3.5 times as far as the noise.", "6 of 24 heads."),
            Answer(
                "Is it more than noise?",
                "Yes: the distance is 1.4 times the noise.",
                "permutation test, p = 0.01.",
            ),
            Answer("What next?", "Look at head 2.0 first."),
        ],
        facts=[("heads", "24 and 22"), ("windows", "6")],
        about=[("Sources", ", ".join(names), False), ("Command", "headscape compare a b", True)],
        places=[[float(i), float(i % 2)] for i in range(len(names))] if more else [],
        path=list(range(len(names))) if more else [],
    )
