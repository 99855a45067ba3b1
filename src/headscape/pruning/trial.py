"""A trial of pruning: which heads a method would take, and what that costs on windows held out, before anything is cut.

Heads are chosen so that they can be cut out: where query heads share keys, whole groups, or one head of each group.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.choices import VALIDATED
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.objective import Loss
from headscape.ablation.rankings import Method, check_method, method_name
from headscape.ablation.ridge_fit import NO_REPAIR, Strength
from headscape.engine import Progress, no_progress
from headscape.errors import InputError
from headscape.models.loading import Model, as_model
from headscape.notices import Notice
from headscape.output import counted
from headscape.pruning.goal import Goal, require_steps
from headscape.pruning.manifest import Pairs
from headscape.pruning.plan import listed
from headscape.pruning.recovery import WINDOWS_A_STEP, recovered
from headscape.pruning.removal import require_removable
from headscape.pruning.removal_order import GROUPS, UNIFORM, UNIFORM_GROUPS, UNITS, require_priced
from headscape.pruning.savings import Savings
from headscape.pruning.size_search import chosen_heads, trade_off
from headscape.pruning.trial_parts import trial_parts
from headscape.pruning.trial_result import PruningTrial as PruningTrial
from headscape.pruning.trial_run import TrialRun
from headscape.pruning.trial_windows import TrialWindows, training_windows, trial_windows
from headscape.recorder.capturing import how_read, input_hash
from headscape.tensor.checks import require_integer

RANDOM_DRAWS = 5
MAX_SIZES = 50


def pruning_trial(
    model: Any,
    inputs: Any,
    *,
    method: Method = VALIDATED,
    fraction: float | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
    target_kv: float | None = None,
    target_params: float | None = None,
    max_loss: float | None = None,
    groups: bool = False,
    uniform: bool = False,
    repair: bool = True,
    recover: int = 0,
    sizes: int = 0,
    calibration: Any = None,
    windows: int | None = None,
    calibration_windows: int | None = None,
    length: int | None = 256,
    sample: str = "spread",
    tokenizer: Any = None,
    loss: Loss | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> PruningTrial:
    """Choose heads that can be cut out, and measure what that costs, without cutting anything yet.

    Parameters
    ----------
    model, inputs, calibration, windows, calibration_windows, length, sample, tokenizer, loss, seed, progress
        As for :func:`headscape.ablation_study`.
    method
        As for :func:`headscape.rank_heads`, except methods with a compensation of their own: scores add up over the
        heads that have to go together; "reconstruction" prices them together. "validated" chooses heads and repair
        together, for the number of heads that go, by the loss of calibration windows left out
        (:mod:`headscape.ablation.validated_choice`).
    fraction
        Which share of the heads may go, more than 0 and less than 1; rounded down to what can be cut out.
    heads
        These heads, in place of ``fraction`` and ``method``.
    target_kv, target_params
        Remove as few heads as bring the key-value cache, or the parameters, down to this share of what they were.
        For the cache only whole groups go; for parameters what costs less.
    max_loss
        Remove as many heads as possible for at most this loss increase: the upper end of its interval, on
        calibration windows that are set aside for that, stays below it.
    groups
        Remove whole key-value groups only, so that the cache shrinks with every step.
    uniform
        Remove the same number of heads from every layer, so that plain ``from_pretrained`` loads the result where the
        family's config allows it.
    repair
        Re-fit the output projections on the calibration windows.
    recover
        Train the output projections for so many steps on the calibration inputs afterwards.
    sizes
        How many sizes of the trade-off (``.curve``) to measure, of each kind of removal; 0 measures none.
    out
        Folder for finished parts: an interrupted trial resumes there.

    Returns
    -------
    PruningTrial
        ``.prune()`` makes the smaller model.

    Notes
    -----
    Heads are chosen and projections fitted on calibration windows. Where sizes are compared (``max_loss``, ``sizes``,
    two kinds for ``target_params``), and where it is decided whether a recovery is used, that happens on as many other
    windows of the calibration inputs. What is reported is measured on the evaluation windows, which take part in no
    choice.
    """
    check_method(method)
    require_priced(method)
    goal = Goal(fraction, heads, target_kv, target_params, max_loss, groups, uniform)
    require_steps(recover)
    require_integer(sizes, "sizes", 0, MAX_SIZES)
    loaded = as_model(model, tokenizer)
    reading: dict[str, Any] = {"length": length, "sample": sample, "seed": seed}
    counts: Any = {"windows": windows, "calibration_count": calibration_windows}
    comparing = goal.searches or sizes > 0 or recover > 0
    seen = trial_windows(loaded, inputs, calibration, comparing=comparing, **counts, **reading)
    if goal.searches and not seen.compare:
        raise InputError(
            "comparing sizes needs at least 2 calibration windows, one to calibrate on and one to compare on, but "
            f"there {'is' if len(seen.calibrate) == 1 else 'are'} {len(seen.calibrate)}: pass more inputs."
        )
    common: dict[str, Any] = {"loss": loss, "seed": seed}
    calibrated = HeadEvaluator(loaded, seen.calibrate, progress=progress, **common)
    judge = HeadEvaluator(loaded, seen.evaluate, **common)
    compared = HeadEvaluator(loaded, seen.compare, **common) if seen.compare else None
    held = require_removable(judge.modules, heads)
    training = None
    if recover:
        wanted = recover * WINDOWS_A_STEP
        found = training_windows(loaded, inputs, calibration, seen, wanted, **reading)
        training = HeadEvaluator(loaded, found, **common)
    hashed = input_hash((*seen.calibrate, *seen.compare, *seen.evaluate))
    wish = goal.asked() | {"method": method_name(method), "recover": recover}
    with trial_parts(out, wish | _parameters(loaded, seen, loss, **reading), hashed, seed) as parts:
        run = TrialRun(calibrated, compared, judge, method, repair, parts, progress)
        # What stays in the smaller model must not be switched off in the trial of it.
        given = tuple((int(layer), int(head)) for layer, head in heads or () if (layer, head) not in held)
        try:
            kind, chosen = ("given", given) if heads is not None else chosen_heads(run, goal)
        except InputError:
            parts.clear()  # a goal that cannot be reached has nothing to resume
            raise
        trial = _measured(run, loaded, chosen, seen, training, recover)
        if sizes and compared is not None:
            strength = None if trial.repair is None else trial.repair.strength
            trial = replace(trial, curve=trade_off(run, kind, chosen, sizes, strength))
        savings = run.savings(chosen)
    notices = _notices(seen, held)
    reached = _reached(goal, kind, savings, trial)
    if max_loss is not None and trial.increases[trial.used].estimate > max_loss:
        message = (
            f"on the held-out windows the loss increases by {trial.increases[trial.used]}, more than the {max_loss:g} "
            "asked for, although it stayed below on the windows that compared sizes. Evaluate and calibrate on more."
        )
        notices.append(Notice("over-max-loss", message))
    return replace(
        trial,
        method="given heads" if heads is not None else method_name(method),
        warnings=tuple(notices),
        kept_back=held,
        goal=reached,
        savings=savings,
    )


def _parameters(loaded: Model, seen: TrialWindows, loss: Loss | None, **reading: Any) -> dict[str, Any]:
    """Return what must be the same for a trial to resume."""
    return {
        "model": loaded.provenance(),
        "windows": len(seen.evaluate),
        "calibration_windows": len(seen.calibrate),
        "comparing_windows": len(seen.compare),
        **reading,
        **how_read((*seen.calibrate, *seen.evaluate)),
        "loss": "model" if loss is None else f"own: {getattr(loss, '__qualname__', type(loss).__name__)}",
    }


def _measured(
    run: TrialRun,
    loaded: Model,
    heads: Pairs,
    seen: TrialWindows,
    training: HeadEvaluator | None,
    steps: int,
) -> PruningTrial:
    """Evaluate what was chosen on the windows held out: intact, gated, repaired, recovered, and at random."""
    run.progress("evaluating", 0, 1)
    intact, gated = run.evaluated("intact", ()), run.evaluated("gated", heads)
    fitted, found = run.repair(heads), run.found(heads)
    repaired = None if fitted is None else run.evaluated("repaired", heads, lambda: fitted)
    # Random heads are repaired in the same way, unless nothing is.
    strength = None if fitted is None or fitted.strength == NO_REPAIR else fitted.strength
    trained, after, gain = None, None, None
    if training is not None:
        trained = recovered(training, heads, fitted, steps, run.parts, run.progress)
        name = f"recovered-{steps}{'' if run.repairs else '-unrepaired'}"
        after = run.evaluated(name, heads, lambda: trained)
        gain = run.recovery_gain(name, heads, trained)
    return PruningTrial(
        model=loaded,
        heads=heads,
        method="",
        n_heads=len(run.judge.heads),
        intact=intact,
        gated=gated,
        repaired=repaired,
        random=_random_losses(run, len(heads), strength),
        random_repaired=strength is not None,
        loss=run.judge.objective.name,
        repair=fitted,
        windows=(len(seen.calibrate), len(seen.evaluate)),
        recovered=after,
        recovery=trained,
        recovery_steps=steps,
        recovery_gain=gain,
        plan="" if found is None else found.plan,
    )


def _random_losses(run: TrialRun, count: int, strength: Strength | None) -> NDArray[np.float64]:
    """Return the losses with as many heads off that were drawn at random, repaired if there is a strength."""
    rng = np.random.default_rng(run.judge.seed)
    rows = []
    for draw in range(RANDOM_DRAWS):
        run.progress("as many heads at random", draw, RANDOM_DRAWS)
        drawn = rng.permutation(len(run.judge.heads))[:count]
        heads = tuple(run.judge.heads[i] for i in drawn)
        if strength is None:
            rows.append(run.evaluated("random", heads))
        else:
            rows.append(run.evaluated("random-repaired", heads, partial(run.refit, heads, strength)))
    return np.stack(rows)


def _notices(seen: TrialWindows, held: Pairs) -> list[Notice]:
    notices = [Notice("calibration-split", text) for text in seen.warnings]
    if held:
        message = (
            f"{len(held)} of the heads asked for stay ({listed(held)}): they share keys with heads that stay."
        )
        notices.append(Notice("heads-kept-back", message))
    return notices


KINDS = {
    UNITS: "",
    GROUPS: "Whole key-value groups go.",
    UNIFORM: "Every layer keeps the same number of heads.",
    UNIFORM_GROUPS: "Every layer loses the same number of whole key-value groups.",
}


def _reached(goal: Goal, kind: str, savings: Savings, trial: PruningTrial) -> str:
    """Return what was asked for and how it was reached, in sentences; nothing for a plain share of the heads."""
    sentences = [KINDS.get(kind, "")]
    for target, what, change in (
        (goal.target_kv, "The key-value cache is {:.3g} of what it was", savings.cache_bytes_per_token),
        (goal.target_params, "The parameters are {:.3g} of what they were", savings.parameters),
    ):
        if target is not None:
            n = counted(len(trial.heads), "head")
            sentences.append(f"{what.format(1 - change.share)} (target {target:g}), without {n}.")
    if goal.max_loss is not None:
        sentences.append(
            f"It is the largest size whose loss increase stayed below {goal.max_loss:g}, with its interval, on "
            "calibration windows that were set aside."
        )
    return " ".join(sentence for sentence in sentences if sentence)
