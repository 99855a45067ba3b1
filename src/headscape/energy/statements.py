"""What the energy measures of a model say: sentences with evidence and counter-examples (IS, arXiv 2605.02907)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headscape.energy.outliers import DEFAULT_DISTANCE, standing_out
from headscape.energy.table import EnergyTables
from headscape.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

CONCENTRATED = 0.1
"""A head whose variance sits, in effect, on fewer than this share of its keys is called concentrated."""

_PUBLISHED_INCOHERENCE = (
    "arXiv 2605.02907: medians near 1.5 at L = 256 in 16 models from 124M to 7B parameters"
)
_PUBLISHED_COMPONENTS = "arXiv 2604.04384: 2-11 for the energy field, 38-75 for W_Q^T W_K (d = 64 or 128)"
_PUBLISHED_SPREAD = "arXiv 2605.02907: variance is spread over the keys in every model tested"


@dataclass(frozen=True)
class Statement:
    """One regularity, as found: a sentence, the numbers behind it, and the heads that do not follow it.

    Parameters
    ----------
    name
        A short handle, such as "key incoherence".
    text
        The sentence.
    values
        The numbers in it, by name.
    published
        What the papers report, for comparison; empty if they say nothing.
    exceptions
        The (layer, head) pairs that stand out; for measures of keys the second is the key-value head.
    """

    name: str
    text: str
    values: Mapping[str, float]
    published: str = ""
    exceptions: tuple[tuple[int, int], ...] = field(default=())


def energy_statements(tables: EnergyTables, length: int | None = None) -> tuple[Statement, ...]:
    """Return the model-level regularities of a model's energy fields, each with its counter-examples.

    Parameters
    ----------
    tables
        From :func:`headscape.energy.table.energy_tables`.
    length
        At which length; by default the longest.

    Returns
    -------
    tuple of Statement

    Examples
    --------
    >>> from headscape.energy.table import energy_tables
    >>> from headscape.tensor.capture import Capture
    >>> rng = np.random.default_rng(0)
    >>> capture = Capture.from_arrays(rng.normal(size=(3, 4, 100, 16)), rng.normal(size=(3, 2, 100, 16)))
    >>> print(energy_statements(energy_tables(capture, [100]))[1].text)
    delocalized: at L = 100 the variance of the median head is spread over 0.87 of the keys (participation \
ratio; interquartile 0.86-0.88); 0 of 12 heads are concentrated (below 0.1).
    """
    n = tables.lengths[-1] if length is None else length
    if n not in tables.lengths:
        raise InputError(f"length must be one of {list(tables.lengths)}, but is {length}.")
    heads = tables.heads[tables.heads["length"] == n]
    keys = tables.kv_heads[tables.kv_heads["length"] == n]
    found = [
        _incoherence(keys, n),
        _spread(heads, n),
        _components(heads, n),
        _counter_examples(heads),
        _rank(heads),
    ]
    if len(tables.lengths) > 1:
        found.append(_over_lengths(tables))
    return tuple(found)


def _incoherence(keys: "pd.DataFrame", n: int) -> Statement:
    mu = keys["mu_K"].to_numpy(dtype=float)
    out = standing_out(mu)
    low, q25, median, q75, high = np.nanquantile(mu, [0.025, 0.25, 0.5, 0.75, 0.975])
    named = _pairs(keys.loc[out, ["layer", "kv_head"]].to_numpy())
    return Statement(
        "key incoherence",
        f"key incoherence mu_K at L = {n} lies between {low:.2f} and {high:.2f} for 95 % of {len(mu)} "
        f"key-value heads, median {median:.2f} (interquartile {q25:.2f}-{q75:.2f}); "
        + (
            f"beyond {DEFAULT_DISTANCE:g} interquartile ranges: {name_heads(named, values=mu[out])}."
            if named
            else f"no head lies beyond {DEFAULT_DISTANCE:g} interquartile ranges."
        ),
        {"low": low, "q25": q25, "median": median, "q75": q75, "high": high, "n": float(len(mu))},
        _PUBLISHED_INCOHERENCE,
        named,
    )


def _spread(heads: "pd.DataFrame", n: int) -> Statement:
    share = heads["participation"].to_numpy(dtype=float)
    few = share < CONCENTRATED
    q25, median, q75 = np.nanquantile(share, [0.25, 0.5, 0.75])
    verdict = "delocalized" if few.mean() <= 0.05 else "concentrated" if few.mean() > 0.5 else "mixed"
    return Statement(
        "delocalization",
        f"{verdict}: at L = {n} the variance of the median head is spread over {median:.2f} of the keys "
        f"(participation ratio; interquartile {q25:.2f}-{q75:.2f}); {int(few.sum())} of {len(share)} heads "
        f"are concentrated (below {CONCENTRATED:g}).",
        {
            "q25": q25,
            "median": median,
            "q75": q75,
            "peak": float(np.nanmedian(heads["peak"])),
            "concentrated": float(few.mean()),
        },
        _PUBLISHED_SPREAD,
        _pairs(heads.loc[few, ["layer", "head"]].to_numpy()),
    )


def _components(heads: "pd.DataFrame", n: int) -> Statement:
    k90 = heads["k90"].to_numpy(dtype=float)
    q25, median, q75 = np.nanquantile(k90, [0.25, 0.5, 0.75])
    values = {"q25": q25, "median": median, "q75": q75, "min": np.nanmin(k90), "max": np.nanmax(k90)}
    text = (
        f"90 % of the variance of the energy field (full centering, L = {n}) lies in {median:.0f} components "
        f"in the median head (interquartile {q25:.0f}-{q75:.0f}, "
        f"from {values['min']:.0f} to {values['max']:.0f})"
    )
    if "interaction_k90" in heads:
        learned = heads["interaction_k90"].to_numpy(dtype=float)
        values["interaction"] = float(np.nanmedian(learned))
        text += f"; the learned interaction W_Q^T W_K needs {values['interaction']:.0f}"
        lower = heads["k90"].to_numpy(dtype=float) >= learned
        named = _pairs(heads.loc[lower, ["layer", "head"]].to_numpy())
        text += f" (no more than the field in {name_heads(named)})" if named else " (more in every head)"
        return Statement("components", text + ".", values, _PUBLISHED_COMPONENTS, named)
    return Statement("components", text + ".", values, _PUBLISHED_COMPONENTS)


def _counter_examples(heads: "pd.DataFrame") -> Statement:
    ordinary = ~standing_out(heads["mu_K"].to_numpy(dtype=float))
    few = heads["participation"].to_numpy(dtype=float) < CONCENTRATED
    named = _pairs(heads.loc[ordinary & few, ["layer", "head"]].to_numpy())
    text = (
        f"{len(named)} of {len(heads)} heads have an ordinary mu_K and still a concentrated variance, "
        f"against the claim that key incoherence spreads it: {name_heads(named)}."
        if named
        else f"no counter-example: none of {len(heads)} heads has an ordinary mu_K and a concentrated variance."
    )
    return Statement("counter-examples", text, {"count": float(len(named))}, "", named)


def _rank(heads: "pd.DataFrame") -> Statement:
    over = (heads["rank"] > heads["rank_bound"]).to_numpy()
    beyond = sorted(set(heads["beyond_products"]) - {""})
    text = f"the rank of s q.k, fully centered, is within min(d, L - 1) in {int((~over).sum())} of {len(over)} heads"
    if beyond:
        count = int((heads["beyond_products"] != "").sum())
        text += (
            f"; in {count} heads the attention also holds {' / '.join(beyond)}, which is left out here and "
            "for which no rank bound holds"
        )
    named = _pairs(heads.loc[over, ["layer", "head"]].to_numpy())
    return Statement("rank bound", text + ".", {"largest": float(heads["rank"].max())}, "", named)


def _over_lengths(tables: EnergyTables) -> Statement:
    medians = tables.kv_heads.groupby("length")["mu_K"].median()
    listed = ", ".join(f"{value:.2f} at {length}" for length, value in medians.items())
    values = {f"L={length}": float(value) for length, value in medians.items()}
    return Statement("lengths", f"median mu_K over context lengths: {listed}.", values)


def _pairs(rows: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(layer), int(head)) for layer, head in rows)


def name_heads(
    pairs: Iterable[tuple[int, int]], most: int = 12, values: Iterable[float] | None = None
) -> str:
    """Return heads as text, "3.1, 4.0, ...", cut after ``most``; with their values in parentheses if given.

    Examples
    --------
    >>> name_heads([(3, 1), (4, 0)]), name_heads([(3, 1)], values=[2.671])
    ('3.1, 4.0', '3.1 (2.67)')
    """
    names = [f"{layer}.{head}" for layer, head in pairs]
    if values is not None:
        names = [f"{name} ({value:.3g})" for name, value in zip(names, values, strict=True)]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
