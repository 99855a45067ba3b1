"""The ablation study: switch heads off in the order of several rankings, and measure what each costs."""

import logging
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscape.ablation.ablation_files import AblationParts, ablation_parts, part_name
from headscape.ablation.ablation_result import AblationStudy
from headscape.ablation.calibration_split import split_windows
from headscape.ablation.choices import CHOICES, choice_of
from headscape.ablation.curves import RANDOM, REPAIRED, Curve, is_random
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Loss
from headscape.ablation.rankings import METHODS, REVERSED, Method, check_method, method_name, ranking_of
from headscape.ablation.repair import Repair
from headscape.ablation.repair import repair as fitted
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.geometry.organization import Organization
from headscape.models.loading import as_model
from headscape.notices import Notice
from headscape.output import counted
from headscape.recorder.capturing import how_read, input_hash
from headscape.tensor.capture import Capture
from headscape.tensor.checks import MAX_DRAWS, require_integer
from headscape.tensor.store import content_hash

logger = logging.getLogger(__name__)

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of the heads that are switched off if no counts are given."""
DEFAULT_METHODS = ("haar", "gradient", "reconstruction+repair", "random")
DRAWS = 10
MIN_DRAWS = 2


def ablation_study(
    model: Any,
    inputs: Any,
    methods: Sequence[str] | Mapping[str, Method] = DEFAULT_METHODS,
    counts: Iterable[int | str] | None = None,
    repair: bool = False,
    *,
    calibration: Any = None,
    windows: int | None = None,
    calibration_windows: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    draws: int = DRAWS,
    capture: Capture | None = None,
    organizations: Sequence[Organization] | None = None,
    tokenizer: Any = None,
    stack: str | None = None,
    loss: Loss | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> AblationStudy:
    """Test rankings of heads: switch heads off in their order and measure the loss on windows held out.

    Parameters
    ----------
    model
        As for :func:`headscape.capture`.
    inputs
        To evaluate on, as for :func:`headscape.capture`. Without ``calibration``, their first half calibrates the
        rankings and the second evaluates them. ``labels`` among them are what the model is judged by.
    methods
        Names as in :func:`headscape.rank_heads`, or a dict from names to scores of your own. "+repair" behind a
        name measures it with output projections that are re-fitted on the calibration windows; without it,
        "validated" and the published "flap", "slimgpt" and "osscar" are measured with their own compensation.
    counts
        How many heads to switch off, as numbers or shares ("10%"); by default 1, 2, 5, 10, 20, 30 and 50 %.
    repair
        Put "+repair" behind every method.
    calibration
        What the rankings and the repair are made from.
    windows, calibration_windows, length
        How many windows evaluate and calibrate at most (by default 16 of one text, and all of a list or batch), and
        how many tokens each has.
    draws
        Number of random orders.
    capture, organizations
        Of the calibration windows, if they are there already.
    sample, tokenizer
        As for :func:`headscape.capture`.
    stack, loss, seed
        As for :func:`headscape.rank_heads`.
    out
        Folder to write to; resumes if interrupted after the last finished (method, count), and methods and counts
        can be added later.
    progress
        Progress callback.

    Returns
    -------
    AblationStudy

    Notes
    -----
    One evaluation of all windows per method and count, and per random draw and count. Layers before the first
    that loses a head are not computed again, if the model allows it.
    """
    labels = curve_labels(methods, repair)
    if any(is_random(label) for label in labels):
        require_integer(draws, "draws", MIN_DRAWS, MAX_DRAWS)
    loaded = as_model(model, tokenizer)
    reading: Any = {"length": length, "sample": sample, "seed": seed}
    split = split_windows(
        loaded, inputs, calibration, windows=windows, calibration_count=calibration_windows, **reading
    )
    common: dict[str, Any] = {"stack": stack, "loss": loss, "seed": seed}
    judge = HeadEvaluator(loaded, split.evaluation, **common)
    numbers = _counts(counts, len(judge.heads))
    calibrated = HeadEvaluator(
        loaded,
        split.calibration,
        capture=capture,
        organizations=organizations,
        count=max(numbers),
        progress=progress,
        **common,
    )
    parameters = {
        "model": loaded.provenance(),
        "windows": len(split.evaluation),
        "calibration_windows": len(split.calibration),
        **reading,
        **how_read((*split.calibration, *split.evaluation)),
        "stack": stack,
        "loss": "model" if loss is None else f"own: {getattr(loss, '__qualname__', type(loss).__name__)}",
    }
    for warning in split.warnings:
        logger.warning("%s", warning)
    hashed = input_hash((*split.calibration, *split.evaluation))
    with ablation_parts(out, parameters, hashed, seed) as parts:
        intact, curves = _Run(judge, calibrated, parts, numbers, progress).all(labels, draws)
    study = AblationStudy(
        curves=curves,
        counts=numbers,
        intact=intact["losses"],
        n_heads=len(judge.heads),
        loss=judge.objective.name,
        perplexity=judge.objective.perplexity,
        relative=judge.objective.relative,
        intact_accuracy=intact.get("accuracy"),
        warnings=tuple(Notice("calibration-split", text) for text in split.warnings),
        parameters=parameters,
        input_hash=hashed,
    )
    if out is not None:
        study.save(out)
    return study


@dataclass(frozen=True, eq=False)
class _Run:
    """Measures curves one after another, leaving out what is finished."""

    judge: HeadEvaluator
    calibrated: HeadEvaluator
    parts: AblationParts
    counts: tuple[int, ...]
    progress: Progress

    def all(self, labels: Mapping[str, Method], draws: int) -> tuple[dict[str, Any], dict[str, Curve]]:
        """Measure the intact model and all curves."""
        if not self.parts.has("intact"):
            self.parts.write("intact", self._evaluation(()))
        curves = {}
        for number, (label, method) in enumerate(labels.items()):
            told = _share(self.progress, label, number, len(labels))
            curves[label] = self._curve(label, method, draws, told)
        return self.parts.read("intact"), curves

    def _curve(self, label: str, method: Method, draws: int, progress: Progress) -> Curve:
        base = label.removesuffix(REPAIRED)
        repaired, several = base != label, base == RANDOM
        self.calibrated.progress = lambda what, done, total: progress(what, 0.3 * done / max(1, total), 1)
        orders = [
            self._order(base, method, draw if several else None) for draw in range(draws if several else 1)
        ]
        rows = []
        steps = len(orders) * len(self.counts)
        for draw, order in enumerate(orders):
            # A name of the user's own may stand for something else next time; the method or the order does not.
            name = part_name(method if isinstance(method, str) else f"{base}-{content_hash(order)[:8]}")
            for place, count in enumerate(self.counts):
                here = _held(progress, 0.3 + 0.7 * (draw * len(self.counts) + place) / steps)
                here(f"{counted(count, 'head')} off", 0, 1)
                self.calibrated.progress = here
                part = f"loss-{name}{REPAIRED if repaired else ''}-{draw}-{count}"
                if not self.parts.has(part):
                    self.parts.write(part, self._evaluated(method, order, count, repaired))
                rows.append(self.parts.read(part))
        shape = (len(orders), len(self.counts), -1)
        measured = {name: np.stack([row[name] for row in rows]).reshape(shape) for name in rows[0]}
        return Curve(orders=np.stack([order[: max(self.counts)] for order in orders]), **measured)

    def _order(self, base: str, method: Method, draw: int | None) -> Any:
        """Return the (head, 2) order of a ranking, from disk if it is there."""
        if draw is not None:
            rng = np.random.default_rng([self.calibrated.seed, draw])
            return np.asarray(self.judge.heads)[rng.permutation(len(self.judge.heads))]
        # A score of the user's own may be another one next time: it is not kept.
        part = f"ranking-{part_name(method)}-{max(self.counts)}" if isinstance(method, str) else None
        if part is not None and self.parts.has(part):
            return self.parts.read(part)["order"]
        ranking = ranking_of(self.calibrated, method, base)
        found = {"order": np.asarray(ranking.order, dtype=np.int64), "scores": ranking.scores}
        if part is not None:
            self.parts.write(part, found)
        return found["order"]

    def _evaluated(self, method: Method, order: Any, count: int, repaired: bool) -> dict[str, Any]:
        """Measure a method at one count: repaired by us, or as the method itself makes up for what it removes."""
        off = [(int(layer), int(head)) for layer, head in order[:count]]
        own = None
        if isinstance(method, str) and method in CHOICES:
            # How many heads go decides which: those of the largest count are not a prefix of theirs.
            chosen = choice_of(self.calibrated, method, count)
            off, own = list(chosen.heads), chosen.repair
        return self._evaluation(off, fitted(self.calibrated, off) if repaired else own)

    def _evaluation(self, off: Sequence[tuple[int, int]], repair: Repair | None = None) -> dict[str, Any]:
        intact = self.judge.intact  # first: what is compared with must not be the repaired model
        with nullcontext() if repair is None else repair.applied(self.judge.projections):
            found = self.judge.evaluate(off) if off else intact
        return {"losses": found.losses} | ({} if found.accuracy is None else {"accuracy": found.accuracy})


def curve_labels(methods: Sequence[str] | Mapping[str, Method], repair: bool) -> dict[str, Method]:
    """Return the curves to measure by name, with a check of every method before anything is computed."""
    if isinstance(methods, str):
        raise InputError(f"methods must be a list of names or a dict, but is the text {methods!r}.")
    given: Iterable[tuple[str, Method]] = (
        [(str(name), method) for name, method in methods.items()]
        if isinstance(methods, Mapping)
        else [(method_name(method), method) for method in methods]
    )
    if not given:
        raise InputError(f"expected at least one method of {', '.join(METHODS)}.")
    labels: dict[str, Method] = {}
    for name, method in given:
        plain = method.removesuffix(REPAIRED) if isinstance(method, str) else method
        check_method(plain)
        if isinstance(plain, str) and plain == RANDOM + REVERSED:
            raise InputError("random:reversed is random: leave one of them out.")
        base = name.removesuffix(REPAIRED)
        if base == RANDOM and not (isinstance(plain, str) and plain == RANDOM):
            raise InputError("'random' names random orders: give a score of your own another name.")
        fixed = repair or name != base or plain is not method
        label = base + (REPAIRED if fixed else "")
        same = isinstance(plain, str) and labels.get(label) == plain
        if label in labels and not same:
            raise InputError(
                f"two methods are called {label!r}: give a dict with a name for each (repair=True puts {REPAIRED} "
                "behind every name)."
            )
        labels[label] = plain
    return labels


def _counts(counts: Iterable[int | str] | None, n_heads: int) -> tuple[int, ...]:
    if counts is None:
        return tuple(sorted({max(1, round(share * n_heads)) for share in SHARES}))
    if isinstance(counts, str):
        raise InputError(f"counts must be a list of numbers or shares, but is the text {counts!r}.")
    found = sorted({_number(count, n_heads) for count in counts})
    wrong = [count for count in found if not 1 <= count <= n_heads]
    if wrong or not found:
        came = ", ".join(map(str, wrong)) or "none"
        raise InputError(
            f"counts must be from 1 to the {n_heads} heads of the model, but {came} was asked for."
        )
    return tuple(found)


def _number(count: int | str, n_heads: int) -> int:
    try:
        if isinstance(count, str) and count.endswith("%"):
            return round(float(count[:-1]) / 100 * n_heads)
        return int(count) if isinstance(count, str) else operator.index(count)
    except (ValueError, OverflowError, TypeError):
        raise InputError(f"counts must be numbers or shares such as '10%', but one is {count!r}.") from None


def _held(progress: Progress, share: float) -> Progress:
    """Return a progress that stays where a curve is, whatever is told of a step inside."""
    return lambda what, done, total: progress(what, share, 1)


def _share(progress: Progress, label: str, number: int, total: int) -> Progress:
    """Return a progress over one of several curves, told as the progress of all."""
    return lambda what, done, whole: progress(f"{label}: {what}", number + done / max(whole, 1e-9), total)
