"""The stage "first_test": do the heads of lowest Haar entropy really do little? Switched off, on two windows.

The lowest tenth of the heads is switched off, and as many at random. That takes seconds and says whether the
hypothesis of the organization paper (arXiv 2506.15541) deserves a closer look on this model; ``headscape ablate``
is that closer look.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.analysis.intervals import FEWEST_UNITS
from headscape.errors import HeadscapeError
from headscape.output import counted
from headscape.recorder.inputs import InputReader
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result
from headscape.study.stages.stage import NotApplicableError, Outcome, Stage

WINDOWS, SHARE, DRAWS = 2, 0.1, 3
NEXT = Finding(
    "To find heads that can be removed, test rankings of the heads on held-out text with headscape ablate (about 20 "
    "minutes for the default model on 2 cores); headscape prune removes heads, repairs the remaining weights and "
    "measures the cost.",
    Question.after,
)


class FirstTest(Stage):
    """Compares the loss increase of the lowest tenth of the heads with that of heads drawn at random."""

    name, title, doing = (
        "first_test",
        "First test of the heads with low Haar entropy",
        "testing the lowest heads",
    )
    unit, cost, needs, optional, question = "model", 0.0, ("entropy",), True, Question.little

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds: forward passes."""
        return (2 + DRAWS) * WINDOWS * size.forward

    def measure(self, context: Context, piece: int) -> Result:
        """Return the losses (choice, window): intact, lowest tenth off, then as many heads at random off."""
        if context.model is None:
            raise NotApplicableError("the model is not at hand, only what was captured from it")
        seed = int(context.parameters["seed"])
        try:
            evaluator = HeadEvaluator(context.model, _windows(context), stack=context.data.stack, seed=seed)
            if not evaluator.objective.relative:
                raise NotApplicableError("the model has no loss: it predicts neither tokens nor labels")
            stability = context.earlier["entropy"].detail.stability
            lowest = np.argsort(stability.mean_ranks, kind="stable")[
                : max(1, round(SHARE * len(context.heads)))
            ]
            rng = np.random.default_rng(seed)
            choices = [lowest, *(rng.permutation(len(context.heads))[: len(lowest)] for _ in range(DRAWS))]
            losses = [evaluator.losses()]
            for done, choice in enumerate(choices):
                context.progress("switching heads off", done, len(choices))
                losses.append(evaluator.losses([context.heads[i] for i in choice]))
        except HeadscapeError as error:
            raise NotApplicableError(str(error)) from error
        about: dict[str, Any] = {"heads": len(lowest), "loss": evaluator.objective.name}
        if stability.n_windows >= FEWEST_UNITS:  # fewer say nothing about all windows
            about["always_low"] = int((stability.bottom_counts[lowest] == stability.n_windows).sum())
        return Result({"losses": np.stack(losses)}, about)

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Say whether the lowest heads cost less than random ones."""
        losses, about = results[0].arrays["losses"].mean(axis=1), results[0].attributes
        intact, lowest, random = losses[0], losses[1] - losses[0], losses[2:] - losses[0]
        detail = {"intact": float(intact), "lowest": float(lowest), "random": random.tolist()}
        verdict = _verdict(detail, about, len(results[0].arrays["losses"][0]))
        return Outcome(context.frame({}), (verdict, NEXT), detail=detail)


def _windows(context: Context) -> Any:
    """Return two windows of what the model was shown, chosen by the same rule as the captured ones."""
    assert context.model is not None  # checked by the caller
    names = ("length", "sample", "seed")
    reader = InputReader(
        context.model.model,
        context.model.tokenizer,
        windows=WINDOWS,
        **{name: context.parameters[name] for name in names},
    )
    return reader.read(context.inputs)[:WINDOWS]


def _verdict(detail: Mapping[str, Any], about: Mapping[str, Any], windows: int) -> Finding:
    """Say what was found; the random draws are the yardstick, since the loss depends on how many heads are off."""
    count, intact, lowest, random = (
        about["heads"],
        detail["intact"],
        detail["lowest"],
        np.asarray(detail["random"]),
    )
    opening = "No head has been shown to do little"
    if lowest < random.min():
        opening = "The heads with the lowest Haar entropy do less than random heads"
        so_what = "this agrees with the hypothesis that such heads do little"
    elif lowest > random.max():
        so_what = "so they do more than random heads: do not remove heads by this measure"
    else:
        so_what = "so they do neither clearly less nor clearly more than random heads"
    low = f"; {about['always_low']} of them low in every window" if "always_low" in about else ""
    return Finding(
        f"{opening}. Switching off the {counted(count, 'head')} with the least coarse structure (lowest Haar "
        f"entropy{low}) changes the loss from {intact:.2f} to {intact + lowest:.2f} {about['loss']}, {count} random "
        f"{'head' if count == 1 else 'heads'} to {intact + np.mean(random):.2f} (a first test: "
        f"{counted(windows, 'window')}, mean of {len(random)} random draws); {so_what}.",
        Question.little,
        f"Changes by the {len(random)} random draws, over {counted(windows, 'window')}: "
        f"{', '.join(f'{value:+.3f}' for value in random)}. headscape ablate tests more rankings on more windows, with "
        "intervals.",
    )
