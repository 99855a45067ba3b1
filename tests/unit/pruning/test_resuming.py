"""A trial that is stopped resumes after its last finished part, recovery included, and gives the same result."""

import dataclasses

import numpy as np
import pytest
import torch

import headscape as hs
from evaluator_cases import evidence_of, state_of, unchanged
from headscape.engine import no_progress
from headscape.errors import InputError, StorageError
from headscape.pruning import recovery
from headscape.pruning.trial_parts import TrialParts
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


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
def test_a_trial_stopped_after_any_part_gives_the_same_result(tmp_path, monkeypatch, family, checkpoints):
    model = tiny_causal_model(family)
    before = state_of(model)
    whole = trial_of(model)
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
            resumed = trial_of(model, out=out)
            break
        except Stopped:
            stops += 1
            assert stops < 60
            assert unchanged(model, before)
    assert stops > 10
    same(resumed, whole)
    assert unchanged(model, before)


def test_finished_parts_are_not_computed_again(tmp_path, monkeypatch, checkpoints):
    model = tiny_causal_model("Llama")
    first = trial_of(model, out=tmp_path / "work")
    for name in ("trial_run.fitted", "trial_run.prices_of", "trial_run._losses", "recovery._Training._step"):
        monkeypatch.setattr(f"headscape.pruning.{name}", None)
    same(trial_of(model, out=tmp_path / "work"), first)


def test_other_windows_are_refused_and_a_failed_run_leaves_nothing(tmp_path):
    model = tiny_causal_model("GPT2")
    trial_of(model, sizes=0, recover=0, out=tmp_path / "work")
    with pytest.raises(StorageError, match="was started with"):
        hs.pruning_trial(model, EVALUATION[:4], calibration=CALIBRATION, fraction=0.25, out=tmp_path / "work")
    with pytest.raises(InputError, match="smallest fraction"):
        trial_of(model, fraction=0.001, out=tmp_path / "deep" / "other")
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


def test_recovery_is_in_the_table_and_is_left_out_if_it_harms():
    model = tiny_causal_model("Llama")
    trial = trial_of(model, sizes=0)
    assert list(trial.increases)[:3] == ["without repair", "with repair", "with recovery"]
    helped = dataclasses.replace(trial, recovered=trial.repaired - 1.0)
    assert helped.used == "with recovery"
    pruned = helped.prune(timing=False)
    assert pruned.manifest.repaired == (0, 1)
    assert "with recovery" in pruned.card
    harmed = dataclasses.replace(trial, recovered=trial.repaired + 1.0)
    assert harmed.used != "with recovery"
    assert "Recovery (6 steps of training on the calibration text) makes it worse" in " ".join(
        harmed.findings
    )
    plain = trial_of(model, sizes=0, recover=0)
    assert plain.recovered is None
    assert "with recovery" not in plain.increases


def test_a_recovered_model_costs_what_the_trial_says():
    model = tiny_causal_model("GPT2")
    trial = trial_of(model, sizes=0)
    trial = dataclasses.replace(trial, gated=trial.recovered + 2.0, repaired=trial.recovered + 1.0)
    smaller = trial.prune(timing=False).model
    np.testing.assert_allclose(evidence_of(smaller, EVALUATION).losses(), trial.recovered, atol=1e-5)
