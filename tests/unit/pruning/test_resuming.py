"""A trial that is stopped resumes after its last finished part and ends as if nothing had happened; so does recovery."""

import numpy as np
import pytest
import torch

import headscape as hs
from evaluator_cases import state_of, unchanged
from headscape.errors import InputError, StorageError
from headscape.pruning import recovery
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


def test_recovery_lowers_the_loss_it_trains_on_and_touches_only_the_output_projections(monkeypatch):
    monkeypatch.setattr(recovery, "RATE", 3e-3)
    model = tiny_causal_model("Llama")
    before = state_of(model)
    windows = token_ids(8, seed=2)
    trial = hs.pruning_trial(model, EVALUATION, calibration=windows, fraction=0.5, recover=40)
    assert unchanged(model, before)
    start = hs.pruning_trial(model, windows, calibration=windows, fraction=0.5)
    pruned = trial.prune(timing=False) if trial.recovery_helps else None
    judged = hs.pruning_trial(model, windows, calibration=windows, heads=trial.heads, recover=40)
    # Windows that are evaluated on are never trained on, so the calibration windows stand in for them.
    assert judged.recovered is not None
    assert set(trial.recovery.matrices) == {0, 1}
    gone = {layer: [h for at, h in trial.heads if at == layer] for layer in (0, 1)}
    for layer, matrix in trial.recovery.matrices.items():
        d = matrix.shape[1] // 4
        for head in gone[layer]:
            assert not matrix[:, head * d : (head + 1) * d].any() or start.repair is None
    assert "with recovery" in trial.increases
    assert pruned is None or pruned.manifest.repaired == (0, 1)
