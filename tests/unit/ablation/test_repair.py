"""Repair: the ridge solution of every touched layer, and a model that is left as it was."""

import numpy as np
import pytest
import torch

from evaluator_cases import continued, copy_head, evidence_of, state_of, unchanged, wide_llama
from headscape.ablation import layer_pass
from headscape.ablation.moments import left_out
from headscape.ablation.repair import repair
from headscape.ablation.repair_choice import RIDGES, START
from headscape.ablation.ridge_fit import NO_REPAIR, Strength, refitted
from headscape.errors import InputError, ModelError
from headscape.recorder.gates import switched_off
from tiny_models import inputs_of, tiny_causal_model, tiny_model, token_ids

MANY = token_ids(12, length=40)  # 480 tokens for at most 32 activations
RIDGE = 1e-3


def activations(evaluator, layer, off=()):
    """Return (token, head x d) that enter a layer's output projection with heads switched off."""
    found = []
    hook = evaluator.projections[layer].module.register_forward_pre_hook(
        lambda _, arguments: found.append(arguments[0].detach().flatten(0, 1))
    )
    try:
        for batch in evaluator.objective.batches:
            with torch.no_grad(), switched_off(evaluator.modules, off):
                evaluator.model(**batch.arguments)
    finally:
        hook.remove()
    return torch.cat(found).double().numpy()


def ridge_solution(intact, pruned, matrix, kept, bias):
    """Return the weights and the change of the bias: least squares with one more row per unknown weight.

    ``pruned`` has the activations of all heads, those that go too.
    """
    a, residual = pruned[:, kept], intact @ matrix.T - pruned[:, kept] @ matrix[:, kept].T
    weight = np.sqrt(RIDGE * np.mean(np.sum(pruned**2, axis=0)))
    columns = np.hstack([a, np.ones((len(a), 1))]) if bias else a
    penalty = weight * np.eye(len(kept), columns.shape[1])
    rows, wanted = (
        np.vstack([columns, penalty]),
        np.vstack([residual, np.zeros((len(kept), residual.shape[1]))]),
    )
    change = np.linalg.lstsq(rows, wanted)[0]
    return matrix[:, kept] + change[: len(kept)].T, change[len(kept) :].sum(axis=0)


@pytest.mark.parametrize("family", ["Llama", "GPT2", "OPT", "Bert", "ViT"])
def test_one_layer_gets_the_ridge_solution(family):
    model = tiny_model(family)
    inputs = inputs_of(family, rows=12) if family == "ViT" else MANY
    evaluator, off = evidence_of(model, inputs), [(1, 0), (1, 2)]
    projection = evaluator.projections[1]
    kept = projection.columns([1, 3]).tolist()
    matrix = projection.matrix.detach().double().numpy()
    intact = activations(evaluator, 1)
    # Layer 1 is the only one touched, so that what enters it is the same with its heads off.
    wanted, shift = ridge_solution(intact, intact, matrix, kept, projection.bias is not None)
    found = repair(evaluator, off, RIDGE)
    assert set(found.matrices) == {1}
    np.testing.assert_allclose(found.matrices[1].numpy()[:, kept], wanted, atol=2e-4)
    assert not found.matrices[1][:, projection.columns([0, 2])].any()
    assert (1 in found.biases) == (family != "Llama")
    if family != "Llama":
        np.testing.assert_allclose(
            found.biases[1].numpy(), projection.bias.detach().numpy() + shift, atol=2e-4
        )


@pytest.mark.parametrize("target", [0.0, 0.3, 1.0])
def test_a_later_layer_is_fitted_on_what_the_repaired_ones_before_it_give(target):
    model = tiny_causal_model("Llama")
    evaluator, off = evidence_of(model, MANY), [(0, 1), (1, 0), (1, 2)]
    found = repair(evaluator, off, RIDGE, target)
    first = repair(evaluator, off[:1], RIDGE, target)
    torch.testing.assert_close(found.matrices[0], first.matrices[0])
    kept = evaluator.projections[1].columns([1, 3]).tolist()
    matrix = evaluator.projections[1].matrix.detach().double().numpy()
    intact = activations(evaluator, 1)
    with first.applied(evaluator.projections):
        pruned = activations(evaluator, 1, off[:1])
    # The target lies between what the old weights give on the pruned model's activations and the intact outputs.
    between = (1 - target) * pruned + target * intact
    wanted, _ = ridge_solution(between, pruned, matrix, kept, bias=False)
    np.testing.assert_allclose(found.matrices[1].numpy()[:, kept], wanted, atol=2e-4)


def test_a_copy_is_made_up_for_exactly():
    model = wide_llama()
    copy_head(model, 0, source=1, target=3)
    evaluator = evidence_of(model, MANY)
    off = [(0, 3)]
    gated = evaluator.losses(off)
    with repair(evaluator, off, ridge=1e-9).applied(evaluator.projections):
        repaired = evaluator.losses(off)
    assert np.abs(gated - evaluator.losses()).max() > 1e-2
    np.testing.assert_allclose(repaired, evaluator.losses(), atol=1e-4)
    matrix = evaluator.projections[0].matrix.detach()
    # Head 1 takes the output weights of its copy on top of its own.
    found = repair(evaluator, off, ridge=1e-9).matrices[0]
    torch.testing.assert_close(found[:, 8:16], matrix[:, 8:16] + matrix[:, 24:], atol=1e-3, rtol=0)


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
def test_repair_lowers_the_error_of_every_touched_layer(family):
    model = tiny_causal_model(family)
    evaluator, off = evidence_of(model, MANY), [(0, 1), (1, 0), (1, 2)]
    found = repair(evaluator, off, RIDGE, target=1.0)

    def error(layer, matrices, biases):
        projection = evaluator.projections[layer]
        before = intact[layer] @ projection.matrix.detach().double().numpy().T
        bias = projection.bias.detach().double().numpy() if projection.bias is not None else 0.0
        after = pruned[layer] @ matrices.double().numpy().T + biases
        return np.sum((before + bias - after) ** 2)

    intact = {layer: activations(evaluator, layer) for layer in (0, 1)}
    with found.applied(evaluator.projections):
        pruned = {layer: activations(evaluator, layer, off) for layer in (0, 1)}
    for layer in (0, 1):
        projection = evaluator.projections[layer]
        plain = 0.0 if projection.bias is None else projection.bias.detach().double().numpy()
        fitted = found.biases[layer].double().numpy() if layer in found.biases else 0.0
        gated = error(layer, projection.matrix.detach(), plain)
        assert error(layer, found.matrices[layer], fitted) < 0.9 * gated


def test_batches_give_what_one_batch_gives(monkeypatch):
    evaluator, off = evidence_of(tiny_causal_model("GPT2"), MANY), [(0, 1), (1, 0), (1, 2)]
    joined = repair(evaluator, off, RIDGE, target=0.5)
    [batch] = evaluator.objective.batches
    parts = [
        layer_pass.Batch({name: x[rows] for name, x in batch.arguments.items()})
        for rows in (slice(0, 5), slice(5, 6), slice(6, None))
    ]
    monkeypatch.setattr(layer_pass, "_together", lambda batches: parts)
    apart = repair(evaluator, off, RIDGE, target=0.5)
    for layer in (0, 1):
        torch.testing.assert_close(apart.matrices[layer], joined.matrices[layer], atol=1e-4, rtol=0)
        torch.testing.assert_close(apart.biases[layer], joined.biases[layer], atol=1e-4, rtol=0)


def test_padding_is_not_fitted():
    model, off = tiny_causal_model("Llama"), [(0, 1), (1, 0)]
    rows = [MANY[0, :30], MANY[1], MANY[2, :30]]
    apart = repair(evidence_of(model, [row.numpy() for row in rows]), off, RIDGE)
    ids, mask = torch.zeros(3, 40, dtype=torch.long), torch.zeros(3, 40, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    padded = repair(evidence_of(model, {"input_ids": ids, "attention_mask": mask}), off, RIDGE)
    for layer in (0, 1):
        torch.testing.assert_close(padded.matrices[layer], apart.matrices[layer], atol=1e-3, rtol=0)


def test_the_model_is_left_as_it_was():
    model = tiny_causal_model("GPT2").train()
    before = state_of(model)
    evaluator = evidence_of(model, MANY)
    found = repair(evaluator, [(0, 1), (1, 3)], RIDGE)
    assert unchanged(model, before)
    with pytest.raises(ZeroDivisionError, match="on the way"), found.applied(evaluator.projections):
        assert not unchanged(model, before)
        raise ZeroDivisionError("on the way")
    assert unchanged(model, before)
    assert model.training
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_the_model_is_left_as_it_was_when_a_fit_fails(monkeypatch):
    model = tiny_causal_model("GPT2")
    before, evaluator = state_of(model), evidence_of(model, MANY)
    solve, solved = torch.linalg.solve, []

    def fails_in_the_second_layer(*arguments):
        if solved:
            raise ZeroDivisionError("in the second layer")
        solved.append(arguments)
        return solve(*arguments)

    monkeypatch.setattr(torch.linalg, "solve", fails_in_the_second_layer)
    with pytest.raises(ModelError, match="ZeroDivisionError: in the second layer"):
        repair(evaluator, [(0, 1), (1, 3)], RIDGE)
    assert unchanged(model, before)
    assert all(not module._forward_pre_hooks for module in model.modules())
    assert all(not module._forward_hooks for module in model.modules())
    assert model.config._attn_implementation != "headscape"


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
def test_windows_are_judged_by_fits_that_left_their_fold_out(family):
    model = tiny_causal_model(family)
    ids = continued(model, 6)
    evaluator, off = evidence_of(model, ids), [(1, 0), (1, 2)]
    folds, strength = layer_pass.folds_of(6, 3), Strength(0.01, 0.5)

    def decide(layer, moments):
        return [refitted(evaluator.projections[layer], part, [0, 2], strength) for part in left_out(moments)]

    passes = layer_pass.LayerPasses(evaluator)
    found = passes.losses([1], decide, folds, drift=True)
    for fold in range(3):
        others, mine = evidence_of(model, ids[folds != fold]), evidence_of(model, ids[folds == fold])
        with repair(others, off, 0.01, 0.5).applied(mine.projections):
            np.testing.assert_allclose(found[folds == fold], mine.losses(off), atol=1e-5)
    assert passes._last_block.works
    passes._last_block.works = False
    np.testing.assert_allclose(passes.losses([1], decide, folds, drift=True), found, atol=1e-6)


def test_strength_and_target_are_the_best_on_windows_left_out():
    model = tiny_causal_model("Llama")
    evaluator, off = evidence_of(model, continued(model, 8)), [(0, 1), (1, 0), (1, 2)]
    found = repair(evaluator, off)
    tried = found.choice.losses
    assert found.strength == min(tried, key=lambda strength: tried[strength].mean())
    # The neighbors of the best ridge were tried, "no repair" being that of the largest.
    row = [*RIDGES, NO_REPAIR.ridge]
    place = row.index(found.strength.ridge)
    assert {START.ridge, *row[max(0, place - 1) : place + 2]} <= {s.ridge for s in tried}
    again = repair(evaluator, off, found.strength.ridge, found.strength.target)
    torch.testing.assert_close(again.matrices[1], found.matrices[1])


def test_nothing_is_refitted_where_no_window_can_be_left_out():
    evaluator = evidence_of(tiny_causal_model("Llama"), token_ids(1))
    found = repair(evaluator, [(1, 0)])
    assert found.strength == NO_REPAIR
    wanted = evaluator.projections[1].matrix.detach().clone()
    wanted[:, :8] = 0.0
    torch.testing.assert_close(found.matrices[1], wanted)


def test_unknown_heads():
    evaluator = evidence_of(tiny_causal_model("GPT2"))
    with pytest.raises(InputError, match=r"it has no \(0, 9\)"):
        repair(evaluator, [(0, 9)])
