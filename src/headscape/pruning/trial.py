"""A trial of pruning: which heads a method would take, and what that costs on windows held out, before anything is cut.

Heads are chosen so that they can be cut out: where query heads share keys, whole groups, or one head of each group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.calibration_split import split_windows
from headscape.ablation.greedy import Prices, ScorePrices, greedy_removal, removable_units
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Loss
from headscape.ablation.rankings import Method, check_method, method_name, ranking_of
from headscape.ablation.repair import Repair
from headscape.ablation.repair import repair as fitted
from headscape.ablation.scores.reconstruction import reconstruction_prices
from headscape.analysis.intervals import Interval, bootstrap
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.models.loading import Model, as_model
from headscape.notices import Notice
from headscape.output import counted, json_ready
from headscape.pruning.model_card import model_card
from headscape.pruning.plan import listed
from headscape.pruning.pruned import Pruned
from headscape.pruning.removal import prune, require_removable
from headscape.pruning.speed import measured_speed

FloatArray64 = NDArray[np.float64]
RANDOM_DRAWS = 5


@dataclass(frozen=True, eq=False)
class PruningTrial:
    """What :func:`headscape.pruning_trial` found.

    Parameters
    ----------
    model
        The intact model, with its tokenizer.
    heads
        The (layer, head) pairs that would go, the first choice first.
    method
        How they were chosen.
    n_heads
        Of the model's stack.
    intact, gated, repaired : (window,) arrays
        Losses of the intact model, with the heads off, and with the output projections re-fitted too (None without
        repair).
    random : (draw, window) array
        Losses with as many heads off that were drawn at random, without repair.
    loss
        What the loss is, with its unit.
    repair
        The re-fitted projections.
    windows
        Numbers of windows that calibrated and evaluated.
    warnings
        What to know before relying on the numbers.
    kept_back
        Heads that were asked for but stay, because they share keys with heads that stay.
    """

    model: Model
    heads: tuple[tuple[int, int], ...]
    method: str
    n_heads: int
    intact: FloatArray64
    gated: FloatArray64
    repaired: FloatArray64 | None
    random: FloatArray64
    loss: str
    repair: Repair | None
    windows: tuple[int, int]
    warnings: tuple[Notice, ...] = ()
    kept_back: tuple[tuple[int, int], ...] = ()

    @property
    def increases(self) -> dict[str, Interval]:
        """By how much the loss increases, with intervals paired over windows: as chosen, repaired, and at random."""
        found = {"without repair": bootstrap(self.gated - self.intact)}
        if self.repaired is not None:
            found["with repair"] = bootstrap(self.repaired - self.intact)
        if len(self.random):
            means = (self.random - self.intact).mean(axis=1)
            found["random heads, without repair"] = Interval(
                float(means.mean()), float(means.min()), float(means.max()), 1.0
            )
        return found

    @property
    def repair_helps(self) -> bool:
        """Whether there is a repair that does not reliably make it worse; one that does is not used."""
        if self.repaired is None:
            return False
        harm = bootstrap(self.repaired - self.gated)
        return not (harm.low > 0 if harm.has_bounds else harm.estimate > 0)

    @property
    def findings(self) -> tuple[str, ...]:
        """What the trial says, in sentences."""
        name = "with repair" if self.repair_helps else "without repair"
        cost = self.increases[name]
        base, n = float(self.intact.mean()), len(self.heads)
        sentences = [
            f"Without {n} of {counted(self.n_heads, 'head')} ({n / self.n_heads:.0%}, chosen by {self.method}) the "
            f"loss of {base:.3g} ({self.loss}) increases by {cost} {name}, on "
            f"{counted(self.windows[1], 'held-out window')}."
        ]
        if self.repaired is not None:
            saved = bootstrap(self.gated - self.repaired)
            words = "lowers" if saved.low > 0 else "does not reliably lower"
            sentence = f"Repair {words} the loss increase, by {saved}."
            if not self.repair_helps:
                harm = bootstrap(self.repaired - self.gated)
                sentence = f"Repair makes it worse, by {harm}, and is left out: calibrate on more windows."
            sentences.append(sentence)
        if len(self.random):
            random = self.increases["random heads, without repair"]
            better = "more" if cost.estimate > random.high else "not clearly less"
            better = "less" if cost.estimate < random.low else better
            sentences.append(
                f"As many heads drawn at random cost {random.estimate:.3g} ({random.low:.3g} to {random.high:.3g} in "
                f"{len(self.random)} draws): the choice costs {better}."
            )
        return tuple(sentences)

    def prune(self, timing: bool = True, progress: Progress = no_progress) -> Pruned:
        """Cut the heads out of a copy of the model, with the re-fitted projections if they help.

        Parameters
        ----------
        timing
            Time both models in turns (``.speed``).
        progress
            Progress callback.

        Returns
        -------
        Pruned
            With a model card (``.card``) that :func:`headscape.save_pruned` writes.
        """
        progress("cutting heads out", 0, 1)
        repair = self.repair if self.repair_helps else None
        costs = "; ".join(f"{name}: {interval}" for name, interval in self.increases.items())
        pruned = prune(self.model, (*self.heads, *self.kept_back), repair=repair).described(
            method=self.method,
            calibration=counted(self.windows[0], "window"),
            evaluation=f"{counted(self.windows[1], 'held-out window')}; loss {self.intact.mean():.4g} ({self.loss}), "
            f"loss increase {costs}",
        )
        speed = measured_speed(self.model.model, pruned.model, progress=progress) if timing else None
        timed = replace(pruned, speed=speed, tokenizer=self.model.tokenizer)
        return replace(timed, card=model_card(timed, self))

    def __repr__(self) -> str:
        return f"PruningTrial({' '.join(self.findings)})"

    def summary(self) -> dict[str, Any]:
        """Return the numbers as one dict that JSON can hold."""
        return {
            "format": "headscape/pruning-trial/1",
            "method": self.method,
            "heads": [list(pair) for pair in self.heads],
            "of": self.n_heads,
            "loss": self.loss,
            "intact_loss": float(self.intact.mean()),
            "increase": {name: json_ready([i.estimate, i.low, i.high]) for name, i in self.increases.items()},
            "windows": {"calibration": self.windows[0], "evaluation": self.windows[1]},
            "findings": list(self.findings),
            "warnings": [notice.message for notice in self.warnings],
        }


def pruning_trial(
    model: Any,
    inputs: Any,
    *,
    method: Method = "reconstruction",
    fraction: float | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
    repair: bool = True,
    calibration: Any = None,
    windows: int | None = None,
    calibration_windows: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    tokenizer: Any = None,
    loss: Loss | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> PruningTrial:
    """Choose heads that can be cut out, and measure what that costs, without cutting anything yet.

    Parameters
    ----------
    model, inputs, calibration, windows, calibration_windows, length, sample, tokenizer, loss, seed, progress
        As for :func:`headscape.ablation_study`.
    method
        As for :func:`headscape.rank_heads`. Its scores add up over the heads that have to go together;
        "reconstruction" prices them together.
    fraction
        Which share of the heads may go, more than 0 and less than 1; rounded down to what can be cut out.
    heads
        These heads, in place of ``fraction`` and ``method``.
    repair
        Re-fit the output projections on the calibration windows.

    Returns
    -------
    PruningTrial
        ``.prune()`` makes the smaller model.
    """
    check_method(method)
    if (fraction is None) == (heads is None):
        raise InputError("give either fraction=..., the share of the heads that may go, or heads=[...].")
    if fraction is not None and not 0 < fraction < 1:
        raise InputError(f"fraction must be more than 0 and less than 1, but is {fraction}.")
    loaded = as_model(model, tokenizer)
    reading: Any = {"length": length, "sample": sample, "seed": seed}
    split = split_windows(
        loaded, inputs, calibration, windows=windows, calibration_count=calibration_windows, **reading
    )
    calibrated = HeadEvaluator(loaded, split.calibration, loss=loss, seed=seed, progress=progress)
    judge = HeadEvaluator(loaded, split.evaluation, loss=loss, seed=seed)
    held = require_removable(judge.modules, heads)
    # What stays in the smaller model must not be switched off in the trial of it.
    given = tuple((int(layer), int(head)) for layer, head in heads or ())
    wanted = tuple(pair for pair in given if pair not in held) or _chosen(
        calibrated, method, float(fraction or 0)
    )
    warnings = [Notice("calibration-split", text) for text in split.warnings]
    if held:
        message = (
            f"{len(held)} of the heads asked for stay ({listed(held)}): they share keys with heads that stay."
        )
        warnings.append(Notice("heads-kept-back", message))
    progress("evaluating", 0, 1)
    intact, gated = judge.losses(), judge.losses(wanted)
    found = fitted(calibrated, wanted) if repair else None
    repaired = None
    if found is not None:
        with found.applied(judge.projections):
            repaired = judge.losses(wanted)
    return PruningTrial(
        model=loaded,
        heads=wanted,
        method="given heads" if heads is not None else method_name(method),
        n_heads=len(judge.heads),
        intact=intact,
        gated=gated,
        repaired=repaired,
        random=_random_losses(judge, len(wanted), seed, progress),
        loss=judge.objective.name,
        repair=found,
        windows=(len(split.calibration), len(split.evaluation)),
        warnings=tuple(warnings),
        kept_back=held,
    )


def _chosen(evaluator: HeadEvaluator, method: Method, fraction: float) -> tuple[tuple[int, int], ...]:
    n_heads = len(evaluator.heads)
    count = int(fraction * n_heads + 1e-9)
    # Where keys are shared, a layer loses a whole group, or one head of each.
    units = [min(m.n_kv_heads, m.n_heads // m.n_kv_heads) for m in evaluator.modules if m.n_heads > 1]
    if not units:
        raise InputError("no head can be removed: every layer has a single head.")
    if count < (least := min(units)):
        raise InputError(
            f"{fraction:g} of {counted(n_heads, 'head')} is {count}, but a layer loses at least {least} at once: the "
            f"smallest fraction (--fraction) that removes something is {np.ceil(1e4 * least / n_heads) / 1e4:g}."
        )
    prices: dict[int, Prices]
    if isinstance(method, str) and method == "reconstruction":
        prices = dict(reconstruction_prices(evaluator))
    else:
        frame = ranking_of(evaluator, method).to_frame()["score"]
        prices = {m.layer: ScorePrices(frame.loc[m.layer].to_numpy()) for m in evaluator.modules}
    steps = greedy_removal(evaluator.modules, prices, removable_units, count, evaluator.progress)
    return tuple((step.layer, head) for step in steps for head in step.heads)


def _random_losses(judge: HeadEvaluator, count: int, seed: int, progress: Progress) -> FloatArray64:
    rng = np.random.default_rng(seed)
    rows = []
    for draw in range(RANDOM_DRAWS):
        progress("as many heads at random", draw, RANDOM_DRAWS)
        chosen = rng.permutation(len(judge.heads))[:count]
        rows.append(judge.losses([judge.heads[i] for i in chosen]))
    return np.stack(rows)
