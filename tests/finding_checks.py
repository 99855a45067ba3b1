"""What every sentence of the findings must say: a template for each, and how its numbers are computed once more.

The numbers come from raw results (captures, organizations, EMDs, tables of the stages) by code written from their
definition, not from the functions that made the sentence. ``check`` raises for a sentence without a template, so that
a new finding needs one.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?: ?%)?"
Values = dict[str, Any]
Recompute = Callable[[Any, dict[str, str]], Values]
CHECKS: list[tuple[str, "re.Pattern[str]", Recompute]] = []


def says(stage: str, *templates: str) -> Callable[[Recompute], Recompute]:
    """Register what a sentence of a stage says: {name} is a number, {name~} are words."""

    def register(recompute: Recompute) -> Recompute:
        CHECKS.extend((stage, _pattern(template), recompute) for template in templates)
        return recompute

    return register


def _pattern(template: str) -> "re.Pattern[str]":
    parts = re.split(r"\{(\w+~?)\}", template)
    made = [re.escape(parts[0])]
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        words = name.endswith("~")
        made.append(f"(?P<{name.rstrip('~')}>{'.+?' if words else NUMBER})" + re.escape(literal))
    return re.compile("".join(made), re.DOTALL)


def check(study: Any, stage: str, sentence: str) -> int:
    """Compare every number and name of a sentence with what is recomputed; return which template it followed."""
    fitting = [
        (place, found, recompute)
        for place, (of, pattern, recompute) in enumerate(CHECKS)
        if of in (stage, "any") and (found := pattern.fullmatch(sentence))
    ]
    assert fitting, f"no check is registered for what the stage {stage!r} says: {sentence!r}"
    place, found, recompute = fitting[0]
    said = found.groupdict()
    values = recompute(study, said)
    assert set(values) == set(said), f"{sentence!r}: {sorted(set(said) ^ set(values))} are not checked"
    for name, value in values.items():
        assert same(said[name], value), f"{sentence!r} says {name} = {said[name]}, recomputed {value}"
    return place


def same(text: str, value: Any) -> bool:
    """Tell whether a text is a value, as precisely as it is written."""
    if isinstance(value, str | bool):
        return value if isinstance(value, bool) else text == value
    return abs(number(text) - value) <= 0.5 * _last_digit(text) * 1.02 + 1e-12


def number(text: str) -> float:
    """Return a number as it is written; a percentage as a share."""
    return float(text.removesuffix("%").rstrip()) / (100 if text.endswith("%") else 1)


def _last_digit(text: str) -> float:
    """Return what one more in the last digit is worth."""
    digits, _, power = text.removesuffix("%").rstrip().partition("e")
    size = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return size / 100 if text.endswith("%") else size


def quartiles(values: Any) -> Values:
    low, middle, high = np.nanquantile(np.asarray(values, dtype=float), [0.25, 0.5, 0.75])
    return {"q25": low, "median": middle, "q75": high}


def rank_correlation(a: Any, b: Any) -> float:
    return float(stats.spearmanr(a, b).statistic)


def upper(matrix: Any) -> Any:
    return matrix[np.triu_indices(len(matrix), 1)]


def label(pair: tuple[int, int]) -> str:
    return f"{pair[0]}.{pair[1]}"


def pair_of(text: str) -> tuple[int, int]:
    layer, head = text.split(".")
    return int(layer), int(head)


def adjusted_information(a: Any, b: Any, draws: int = 400) -> float:
    """Return the adjusted mutual information, its expectation by permutations of the points."""
    first, second = (np.unique(x, return_inverse=True)[1] for x in (a, b))
    rng = np.random.default_rng(0)

    def information(x: Any, y: Any) -> float:
        joint = np.zeros((x.max() + 1, y.max() + 1))
        np.add.at(joint, (x, y), 1 / len(x))
        outer = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
        some = joint > 0
        return float((joint[some] * np.log(joint[some] / outer[some])).sum())

    def entropy(x: Any) -> float:
        return float(stats.entropy(np.bincount(x)))

    expected = np.mean([information(first, rng.permutation(second)) for _ in range(draws)])
    most = (entropy(first) + entropy(second)) / 2
    if most - expected < 1e-12:
        return 1.0 if entropy(first) > 0 else 0.0
    return float((information(first, second) - expected) / (most - expected))


def near(text: str, value: float, tolerance: float) -> bool:
    """Tell whether a number is one that chance enters into: by permutations of its own here."""
    return abs(number(text) - value) <= tolerance


def interval(text: str) -> tuple[float, float, float]:
    """Return estimate and bounds as they are written: "0.81 [0.64, 0.88]"."""
    found = re.fullmatch(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]", text)
    assert found, text
    estimate, low, high = map(float, found.groups())
    assert low - 1e-9 <= estimate <= high + 1e-9, text
    return estimate, low, high
