"""The stage "interaction": components of the learned interaction W_Q^T W_K of every head, from the weights."""

from collections.abc import Sequence

import numpy as np

from headscape.errors import ModelError
from headscape.study.stage import Material, Result, Stage, Summary

MEASURES = ("k90", "effective_rank")


def measure_interaction(material: Material, window: int) -> Result:
    """Return the components of W_Q^T W_K of every head, or why they cannot be had."""
    from headscape.recorder.interaction import interaction_spectra

    if material.loaded is None:
        return Result({}, {"missing": "the model was not at hand, only a capture of it"})
    try:
        spectra = interaction_spectra(material.loaded.model, material.capture.records(window))
    except ModelError as error:
        return Result({}, {"missing": str(error)})
    rows = [[getattr(spectra[pair], name) for name in MEASURES] for pair in material.heads]
    return Result({"interaction": np.asarray(rows, dtype=np.float64)})


def summarize_interaction(material: Material, results: Sequence[Result]) -> Summary:
    """Return the components of the learned interaction as columns."""
    if "interaction" not in results[0].arrays:
        missing = str(results[0].attributes["missing"]).rstrip(".")
        return Summary(
            material.frame({}), (f"The learned interaction W_Q^T W_K is left out: {missing}.",), headlines=0
        )
    k90, rank = results[0].arrays["interaction"].T
    q25, median, q75 = np.nanquantile(k90, [0.25, 0.5, 0.75])
    sentence = (
        f"The learned interaction W_Q^T W_K needs {median:.0f} components for 90 % of its variance in the median "
        f"head (interquartile {q25:.0f}-{q75:.0f})."
    )
    columns = {"interaction_k90": k90, "interaction_rank": rank}
    return Summary(material.frame(columns), (sentence,), headlines=0)


INTERACTION = Stage(
    "interaction",
    "reading the weights",
    measure_interaction,
    summarize_interaction,
    cost=4.0,
    per_window=False,
)
