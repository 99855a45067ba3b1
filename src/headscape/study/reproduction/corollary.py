"""The premise of corollary 1 of the organization paper (arXiv 2506.15541), over heads and over training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headscape.ablation.objective import objective_for
from headscape.analysis.head_logits import LogitSource
from headscape.errors import HeadscapeError
from headscape.models.loading import Model
from headscape.recorder.capturing import capture
from headscape.recorder.inputs import InputReader
from headscape.study.reproduction.experiment import (
    ORGANIZED,
    Evidence,
    Experiment,
    Observation,
    Verdict,
    judged,
    judged_sign,
)
from headscape.study.reproduction.head_experiments import head_table, taken_apart
from headscape.study.reproduction.head_losses import head_evaluator, judged_data, loss_inputs
from headscape.study.reproduction.median_interval import median_interval
from headscape.study.reproduction.networks import JUDGED_ROLES, TENSOR_ROLES, TRANSFORMER_XL, Networks
from headscape.study.reproduction.rank_correlation import rank_correlation
from headscape.tensor.capture import Capture

CHECKPOINT_HEADS, CHECKPOINT_WINDOWS = 8, 2
"""Heads of every checkpoint whose mixed differences are measured, and windows of its loss."""


def invariance_premise(networks: Networks) -> Evidence:
    """Follow mixed differences, loss and invariance over heads and checkpoints (corollary 1)."""
    roles = networks.present(TENSOR_ROLES)
    observations = [_invariance(networks, role) for role in roles]
    tables = {role: head_table(networks, role) for role in roles}
    for role in networks.present(JUDGED_ROLES):
        observation, losses = _worth_of_heads(networks, role)
        observations.append(observation)
        if len(losses):
            tables[f"{role}-losses"] = losses
    steps = _over_training(networks)
    if len(steps):
        observations.append(_training_observation(networks, steps))
        tables["checkpoints"] = steps
    return Evidence.of(observations, tables)


def _invariance(networks: Networks, role: str) -> Observation:
    """Say how much of softmax the invariant form explains, and what goes with the mixed differences."""
    table = head_table(networks, role)
    share = median_interval(table["share_explained"])
    with_share = rank_correlation(table["mixed_size"], table["share_explained"])
    with_mean = rank_correlation(table["mixed_size"], table["mean"].abs())
    return networks.observed(
        role,
        1,
        f"The invariant form explains {share:.1%} of softmax in the "
        f"median of {len(table)} heads, at most {table['share_explained'].max():.1%}. The size of a head's mixed "
        f"differences has a rank correlation of {with_share} with that share, and of {with_mean} with the absolute "
        "mean of the head, which should go to zero as they grow.",
        judged(share.estimate > 0.5, share.high < 0.1),
        f"{share.estimate:.1%}",
    )


def _worth_of_heads(networks: Networks, role: str) -> tuple[Observation, pd.DataFrame]:
    """Compare what heads are worth to the loss with the size of their mixed differences."""
    table = head_table(networks, role)[["layer", "head", "mixed_size"]]
    given = loss_inputs(networks, role)
    title = f"{networks.title(role)}, head by head"
    if not given:
        found = "Not tested: the images have no labels."
        return Observation(title, networks.source(role), found, Verdict.untested), table.head(0)
    name, inputs = next(iter(given.items()))
    evaluator = head_evaluator(networks, role, inputs)
    if isinstance(evaluator, HeadscapeError):
        return Observation(title, name, f"Not tested: {evaluator}", Verdict.untested), table.head(0)
    intact = evaluator.losses().mean()
    increases: list[float] = []
    for layer, head in table[["layer", "head"]].astype(int).itertuples(index=False):
        networks.progress(f"{role}: switching heads off", len(increases), len(table))
        increases.append(float(evaluator.losses([(layer, head)]).mean() - intact))
    losses = table.assign(loss_increase=increases)
    r = rank_correlation(losses["mixed_size"], losses["loss_increase"])
    found = (
        f"Switching one head off changes the loss of {intact:.2f} nats by {np.median(increases):+.4f} in the median of "
        f"{len(losses)} heads (at most {max(increases):+.4f}); its rank correlation with the size of the head's mixed "
        f"differences is {r}."
    )
    data = judged_data(evaluator, role, name)
    verdict = judged_sign(r.interval, 1)
    return Observation(title, data, found, verdict, f"{r.interval.estimate:.2f} (rank correlation)"), losses


def _training_observation(networks: Networks, steps: pd.DataFrame) -> Observation:
    r = rank_correlation(steps["mixed_size"], steps["loss"])
    start, end = steps.iloc[0], steps.iloc[-1]
    grows = bool(end["mixed_size"] > start["mixed_size"])
    return Observation(
        f"{networks.title(TRANSFORMER_XL)}, its checkpoints",
        f"{len(steps)} checkpoints, {CHECKPOINT_HEADS} heads; {networks.source(TRANSFORMER_XL)}",
        f"From step {int(start['step'])} to {int(end['step'])} the loss goes from {start['loss']:.2f} to "
        f"{end['loss']:.2f} nats per token and the median size of the mixed differences from "
        f"{start['mixed_size']:.3g} to {end['mixed_size']:.3g} (smallest {steps['mixed_size'].min():.3g}); their rank "
        f"correlation is {r}.",
        judged(grows and r.interval.estimate < 0 and r.p < 0.1, not grows),
        f"{start['mixed_size']:.3g} to {end['mixed_size']:.3g} (size)",
    )


def _over_training(networks: Networks) -> pd.DataFrame:
    """Return loss and median mixed difference at every checkpoint; empty if there are none."""
    if networks.choice.transformer_xl is not None:
        return pd.DataFrame({"step": [], "loss": [], "mixed_size": [], "share_explained": []})
    rows: list[dict[str, float]] = []
    for step in networks.training.checkpoints:
        networks.progress("checkpoints of the Transformer-XL", len(rows), len(networks.training.checkpoints))
        model = networks.training.model(step)
        windows = networks.windows(CHECKPOINT_WINDOWS)
        asked: Any = {"length": networks.sizes.length, "windows": windows, "sample": "random"}
        reader = InputReader(model.model, model.tokenizer, **asked, seed=networks.seed + 1)
        read = reader.read(networks.inputs(TRANSFORMER_XL))
        loss = float(objective_for(model, read, None, networks.seed).evaluate(model.model).losses.mean())
        rows.append({"step": step, "loss": loss, **_mixed(model, networks)})
    return pd.DataFrame(rows)


def _mixed(model: Model, networks: Networks) -> dict[str, float]:
    """Return the median size of the mixed differences of some heads of a model, and the share explained."""
    captured: Capture = capture(
        model,
        networks.inputs(TRANSFORMER_XL),
        windows=networks.windows(1),
        length=networks.sizes.length,
        sample="random",
        seed=networks.seed,
    )
    rng = np.random.default_rng(networks.seed)
    count = min(CHECKPOINT_HEADS, len(captured.heads))
    heads = [captured.heads[i] for i in sorted(rng.choice(len(captured.heads), size=count, replace=False))]
    found = [taken_apart(one, networks.seed) for one in LogitSource(captured, heads).window(0)]
    return {
        "mixed_size": float(np.median([one.mixed_size for one in found])),
        "share_explained": float(np.median([one.share_explained for one in found])),
    }


EXPERIMENTS = (
    Experiment(
        "corollary-1",
        ORGANIZED,
        "corollary 1",
        "Premise of softmax invariance",
        "As training lowers the loss, the mixed differences of heads grow; heads with large ones have mean zero and "
        "are invariant to softmax.",
        TENSOR_ROLES,
        "share of softmax that the invariant form explains",
        9.6,
        invariance_premise,
        "The paper assumes the premise and tests neither part. Its proof sets A' and A'' to 1 because the mean of the "
        "head goes to zero. More than half of softmax explained agrees, less than a tenth disagrees.",
        takes_apart=True,
    ),
)
