"""The stage "softmax": how well the paraproduct and its invariant form describe softmax (OA corollary 1).

It organizes every head for itself, more than a second a head, so it runs only when asked for and looks at the
first window only.
"""

from collections.abc import Sequence

from headscape.analysis.softmax_invariance import SoftmaxInvariance, softmax_invariance
from headscape.study.stage import Material, Result, Stage, Summary

COLUMNS = {
    "softmax_residual": "residual",
    "softmax_share_explained": "share_explained",
    "softmax_mixed_size": "mixed_size",
}


def measure_softmax(material: Material, window: int) -> Result:
    """Return the measures of all heads in the first window."""
    seed = int(material.parameters["seed"])
    found = softmax_invariance(material.capture, windows=1, seed=seed, progress=material.progress)
    return Result(found.measures, {"parameters": dict(found.parameters)})


def summarize_softmax(material: Material, results: Sequence[Result]) -> Summary:
    """Return the residuals and shares as columns, and the verdict on the corollary."""
    found = SoftmaxInvariance(material.heads, results[0].arrays, results[0].attributes["parameters"])
    columns = {column: found.of_heads(name) for column, name in COLUMNS.items()}
    return Summary(material.frame(columns), (found.verdict,), found.warnings, detail=found)


SOFTMAX = Stage(
    "softmax",
    "testing softmax invariance",
    measure_softmax,
    summarize_softmax,
    cost=120.0,
    per_window=False,
    by_default=False,
)
