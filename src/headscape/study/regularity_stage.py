"""The stage "regularity": Hoelder exponents of the logits of every head on its trees (OA definitions 1, 2)."""

from collections.abc import Sequence

import numpy as np

from headscape.analysis.regularity import fitted_exponents
from headscape.study.stage import Material, Result, Stage, Summary

EXPONENTS = ("mixed", "query", "key")


def measure_exponents(material: Material, window: int) -> Result:
    """Return the exponents of all heads in one window, on the trees of its organization."""
    return Result(fitted_exponents(material.tensor(window, "logits"), material.organizations[window].trees))


def summarize_exponents(material: Material, results: Sequence[Result]) -> Summary:
    """Return the median exponents over windows, and whether the theorem's range is met."""
    columns = {}
    for name in EXPONENTS:
        stacked = np.stack([result.arrays[name] for result in results])
        for place, ending in enumerate(("", "_low", "_high")):
            columns[f"holder_{name}{ending}"] = np.median(stacked[:, :, place], axis=0)
    # All three conditions of the theorem hold for some alpha if the smallest of the exponents is positive.
    smallest = [np.min([result.arrays[name][:, 0] for name in EXPONENTS], axis=0) for result in results]
    inside = np.stack(smallest) > 0
    columns["theorem_windows"] = inside.sum(axis=0)
    mixed = columns["holder_mixed"]
    q25, median, q75 = np.nanquantile(mixed, [0.25, 0.5, 0.75])
    count = int((columns["theorem_windows"] * 2 > len(results)).sum())
    verdict = "no head is" if count == 0 else f"{count} of {len(mixed)} heads are"
    sentence = (
        f"The mixed Hoelder exponent of the logits has median {median:.2f} (interquartile {q25:.2f} to "
        f"{q75:.2f}); {verdict} in the range 0 < alpha < 1/2 that the softmax theorem assumes."
    )
    return Summary(material.frame(columns), (sentence,))


REGULARITY = Stage("regularity", "fitting exponents", measure_exponents, summarize_exponents, cost=3.0)
