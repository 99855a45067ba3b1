"""A trial that is stopped resumes after its last finished part, recovery included, and gives the same result."""

import dataclasses

import numpy as np
import pytest
import torch

import headscape as hs
from evaluator_cases import evidence_of, state_of, unchanged
from headscape.engine import no_progress
from headscape.errors import InputError, StorageError
from headscape.models.loading import as_model
from headscape.pruning import recovery
from headscape.pruning.trial_parts import TrialParts
from headscape.pruning.trial_windows import training_windows, trial_windows
from headscape.recorder.gates import switched_off
from headscape.tensor.store import Store
from tiny_models import tiny_causal_model, token_ids

EVALUATION, CALIBRATION = token_ids(6, seed=1), token_ids(8, seed=2)


class Stopped(Exception):
    """Stands for a killed process."""


def trial_of(model, **options):
    options = {"fraction": 0.25, "sizes": 2, "recover": 6, **options}
    return hs.pruning_trial(model, EVALUATION, calibration=CALIBRATION, **options)


def same(one, other):
    assert one.heads == other.heads
    for name in ("intact", "gated", "repaired", "recovered", "random"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("repair", "recovery"):
        for what in ("matrices", "biases"):
            ours, theirs = (getattr(getattr(trial, name), what) for trial in (one, other))
            assert set(ours) == set(theirs)
            assert all(torch.equal(ours[layer], theirs[layer]) for layer in ours)
    assert one.repair.strength == other.repair.strength
    assert [p.heads for p in one.curve.points] == [p.heads for p in other.curve.points]
    assert [p.increase for p in one.curve.points] == [p.increase for p in other.curve.points]


@pytest.fixture
def checkpoints(monkeypatch):
    monkeypatch.setattr(recovery, "CHECKPOINT", 2)


@pytest.mark.parametrize(("family", "method"), [("Llama", "validated"), ("GPT2", "reconstruction")])
def test_a_trial_stopped_after_any_part_gives_the_same_result(
    tmp_path, monkeypatch, family, method, checkpoints
):
    model = tiny_causal_model(family)
    before = state_of(model)
    whole = trial_of(model, method=method)
    out = tmp_path / "work"
    writing, stops = Store.writing, 0

    def stopping(store, name):
        if name not in seen and seen:
            raise Stopped(name)
        seen.add(name)
        return writing(store, name)

    monkeypatch.setattr(Store, "writing", stopping)
    while True:
        seen = set()  # every attempt finishes one more part
        try:
            resumed = trial_of(model, method=method, out=out)
            break
        except Stopped:
            stops += 1
            assert stops < 60
            assert unchanged(model, before)
    assert stops > 10
    same(resumed, whole)
    assert unchanged(model, before)


@pytest.mark.parametrize("method", ["validated", "reconstruction"])
def test_finished_parts_are_not_computed_again(tmp_path, monkeypatch, method, checkpoints):
    model = tiny_causal_model("Llama")
    first = trial_of(model, method=method, out=tmp_path / "work")
    computing = ("fitted", "prices_of", "intact_prices", "sized_choice", "_losses")
    for name in (*(f"trial_run.{name}" for name in computing), "recovery._Training._step"):
        monkeypatch.setattr(f"headscape.pruning.{name}", None)
    same(trial_of(model, method=method, out=tmp_path / "work"), first)


def test_other_windows_are_refused_and_a_failed_run_leaves_nothing(tmp_path):
    model = tiny_causal_model("GPT2")
    trial_of(model, sizes=0, recover=0, out=tmp_path / "work")
    with pytest.raises(StorageError, match="was started with"):
        hs.pruning_trial(model, EVALUATION[:4], calibration=CALIBRATION, fraction=0.25, out=tmp_path / "work")
    with pytest.raises(StorageError, match="was started with"):
        trial_of(model, sizes=0, recover=0, fraction=0.5, out=tmp_path / "work")
    with pytest.raises(InputError, match="smallest fraction"):
        trial_of(model, fraction=0.001, out=tmp_path / "deep" / "other")
    with pytest.raises(InputError, match="cannot come down to"):
        trial_of(model, fraction=None, target_kv=0.01, out=tmp_path / "unreachable")
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_recovery_trains_the_output_projections_and_nothing_else(monkeypatch):
    monkeypatch.setattr(recovery, "RATE", 3e-3)
    model = tiny_causal_model("Llama")
    before = state_of(model)
    heads = ((0, 0), (0, 1), (1, 2), (1, 3))
    train = evidence_of(model, CALIBRATION)
    trained = recovery.recovered(train, heads, None, 40, TrialParts(), no_progress)
    assert unchanged(model, before)
    assert all(weight.requires_grad for weight in model.parameters())
    start = train.losses(heads).mean()
    with trained.applied(train.projections):
        assert train.losses(heads).mean() < start - 0.01
    # Columns of heads that are gone see no activations, so that they learn nothing.
    for layer, matrix in trained.matrices.items():
        old = train.projections[layer].matrix.detach()
        gone = train.projections[layer].columns([head for at, head in heads if at == layer])
        assert torch.equal(matrix[:, gone], old[:, gone])
        assert not torch.equal(matrix, old)
    again = recovery.recovered(train, heads, None, 40, TrialParts(), no_progress)
    assert all(torch.equal(again.matrices[layer], matrix) for layer, matrix in trained.matrices.items())


def test_windows_it_was_not_trained_on_decide_about_a_recovery():
    model = tiny_causal_model("Llama")
    trial = trial_of(model, sizes=0)
    assert list(trial.increases)[:3] == ["without repair", "with repair", "with recovery"]
    # Of 8 calibration windows 4 calibrate and train; the others decide.
    aside = evidence_of(model, CALIBRATION[1::2])
    aside.losses()
    losses = []
    for weights in (trial.repair, trial.recovery):
        with weights.applied(aside.projections), switched_off(aside.modules, trial.heads):
            losses.append(aside.objective.evaluate(model).losses)
    np.testing.assert_allclose(trial.recovery_gain, losses[0] - losses[1], atol=1e-5)
    gain = np.full(4, 0.5)
    helped = dataclasses.replace(trial, recovery_gain=gain, recovered=trial.repaired + 1.0)
    assert helped.used == "with recovery"
    pruned = helped.prune(timing=False)
    assert pruned.manifest.repaired == (0, 1)
    assert "with recovery" in pruned.card
    assert "On the held-out windows it raises the loss increase, by 1 " in " ".join(helped.findings)
    harmed = dataclasses.replace(trial, recovery_gain=-gain, recovered=trial.repaired - 1.0)
    assert harmed.used != "with recovery"
    assert "makes it worse on 4 calibration windows it was not trained on, by 0.5" in " ".join(
        harmed.findings
    )
    undecided = dataclasses.replace(trial, recovery_gain=None)
    assert undecided.used != "with recovery"
    plain = trial_of(model, sizes=0, recover=0)
    assert plain.recovered is None
    assert "with recovery" not in plain.increases


def test_a_recovered_model_costs_what_the_trial_says():
    model = tiny_causal_model("GPT2")
    trial = dataclasses.replace(trial_of(model, sizes=0), recovery_gain=np.ones(4))
    smaller = trial.prune(timing=False).model
    np.testing.assert_allclose(evidence_of(smaller, EVALUATION).losses(), trial.recovered, atol=1e-5)


def test_training_windows_share_no_passage_with_windows_that_decide():
    loaded = as_model(tiny_causal_model("GPT2"))
    ids = np.random.default_rng(0).integers(0, 48, 4000)
    reading = {"length": 32, "sample": "spread", "seed": 0}
    known = trial_windows(loaded, ids, windows=8, calibration_count=8, comparing=True, **reading)
    found = training_windows(loaded, ids, None, known, 400, **reading)

    def runs(windows):
        rows = [window.arguments["input_ids"].flatten().tolist() for window in windows]
        return {tuple(row[at : at + 20]) for row in rows for at in range(len(row) - 19)}

    assert len(known.compare) == 8
    assert len(found) > 20
    assert not runs(found) & runs((*known.compare, *known.evaluate))
