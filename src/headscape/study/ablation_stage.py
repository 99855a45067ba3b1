"""The stage "ablation": what rankings of the heads are worth on this model, tested by switching heads off.

It evaluates the model dozens of times, so it runs only when asked for. The rankings are calibrated on the first half
of the text (the Haar ones on the windows of the analysis) and judged on the second.
"""

from collections.abc import Sequence

import numpy as np

from headscape.ablation.ablation_result import AblationStudy, is_random
from headscape.notices import Notice
from headscape.study.stage import Material, Result, Stage, Summary

METHODS = ("haar", "gradient", "reconstruction", "reconstruction+repair", "random")


def measure_ablation(material: Material, window: int) -> Result:
    """Return the curves of the ablation study, or why there are none."""
    from headscape.ablation.ablation_study import ablation_study
    from headscape.ablation.calibration_split import split_windows
    from headscape.errors import InputError

    if material.loaded is None:
        return Result({}, {"missing": "the model was not at hand, only a capture of it"})
    length = material.parameters["length"]
    try:
        split = split_windows(material.loaded, material.inputs, length=length)
        # The windows of the analysis are the first ones: more than calibrate would reach into those that judge.
        fitting = (
            material.parameters["field"] == "probs" and len(split.calibration) >= material.capture.n_windows
        )
        study = ablation_study(
            material.loaded,
            material.inputs,
            METHODS,
            capture=material.capture if fitting else None,
            organizations=material.organizations if fitting else None,
            length=length,
            stack=material.parameters["stack"],
            seed=int(material.parameters["seed"]),
            out=None if material.folder is None else material.folder / "ablation",
            progress=material.progress,
        )
    except InputError as error:
        return Result({}, {"missing": str(error)})
    return Result(study.arrays(), {"study": study.attributes()})


def summarize_ablation(material: Material, results: Sequence[Result]) -> Summary:
    """Return the places of the heads in each ranking, and the verdicts."""
    study = ablation_of(results)
    if study is None:
        missing = str(results[0].attributes["missing"]).rstrip(".")
        sentence = f"What rankings of the heads are worth was not tested: {missing}."
        return Summary(material.frame({}), (sentence,), headlines=0)
    columns = {}
    for method, curve in study.curves.items():
        if not is_random(method) and not method.endswith("+repair"):
            places = {(int(layer), int(head)): i for i, (layer, head) in enumerate(curve.orders[0])}
            columns[f"place_{method}"] = [places.get(pair, np.nan) for pair in material.heads]
    warnings = tuple(Notice("ablation", text, "") for text in study.warnings)
    return Summary(material.frame(columns), study.findings, warnings, study, headlines=2)


def ablation_of(results: Sequence[Result]) -> AblationStudy | None:
    """Return the ablation study of the stage, or None if there is none."""
    if "intact" not in results[0].arrays:
        return None
    return AblationStudy.from_arrays(results[0].arrays, results[0].attributes["study"])


ABLATION = Stage(
    "ablation",
    "switching heads off",
    measure_ablation,
    summarize_ablation,
    cost=600.0,
    per_window=False,
    by_default=False,
)
