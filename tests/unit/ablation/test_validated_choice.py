"""Choice of heads and repair by windows left out: its prices, its plans, and what it never does worse than."""

import numpy as np
import pytest
import torch

from evaluator_cases import continued, evidence_of, silence, state_of, unchanged, wide_llama
from headscape.ablation import validated_choice as validated
from headscape.ablation.activations import layer_signals
from headscape.ablation.greedy import removable_units, single_heads
from headscape.ablation.layer_pass import LayerPasses
from headscape.ablation.layerwise import uniform_quotas
from headscape.ablation.obs import BrainSurgeon
from headscape.ablation.output_metric import intact_prices
from headscape.ablation.rankings import ranking_of
from headscape.ablation.repair_choice import START, StrengthChoice
from headscape.ablation.ridge_fit import NO_REPAIR, Strength
from headscape.ablation.rivals import _Layerwise, rival_choice
from headscape.ablation.validated_choice import Plan, _Search, chosen_plan, removal_plans, validated_choice
from tiny_models import tiny_causal_model, token_ids

IDS = token_ids(8, length=30)


def test_the_metric_is_the_second_moment_of_the_gradients():
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    signals, found = layer_signals(evaluator), intact_prices(evaluator).metrics
    for layer, metric in found.items():
        gradients = torch.cat(signals[layer].gradients).double()
        by_token = sum(torch.outer(g, g) for g in gradients)
        torch.testing.assert_close(metric.fisher, by_token)
        activations = torch.cat(signals[layer].activations).double()
        torch.testing.assert_close(metric.moments.gram, activations.T @ activations)


def test_the_activations_of_the_prices_are_those_of_a_pass_of_the_intact_model(monkeypatch):
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    expected = LayerPasses(evaluator).intact([0, 1])
    passes = LayerPasses(evaluator, intact_prices(evaluator).activations)
    monkeypatch.setattr(passes, "forward", lambda *_, **__: pytest.fail("they are known"))
    for layer, [found] in passes.intact([0, 1]).items():
        torch.testing.assert_close(found, expected[layer][0])


@pytest.mark.parametrize("gone", [[1], [0, 2], [1, 2, 3]])
def test_the_price_is_the_weighed_squared_change_after_the_best_refit(gone):
    evaluator = evidence_of(tiny_causal_model("Llama"), token_ids(12, length=40))
    projection, metric = evaluator.projections[1], intact_prices(evaluator).metrics[1]
    x = torch.cat(layer_signals(evaluator)[1].activations).double().numpy()
    weights = projection.matrix.detach().double().numpy()
    kept = projection.columns([head for head in range(4) if head not in gone]).numpy()
    fitted = np.linalg.lstsq(x[:, kept], x @ weights.T)[0]
    change = x @ weights.T - x[:, kept] @ fitted
    wanted = sum(d @ metric.fisher.numpy() @ d for d in change) / len(x)
    surgeon = BrainSurgeon(projection, metric.moments, 1e-10, metric.fisher)
    assert surgeon.price(gone) == pytest.approx(wanted, rel=1e-4)
    assert surgeon.price([]) == 0


def test_the_uniform_plan_is_osscar():
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    published = rival_choice(evaluator, "osscar", 5, damping=0.05)
    search = _Search(evaluator, single_heads, LayerPasses(evaluator))
    plan = Plan(uniform_quotas(evaluator.modules, 5, single_heads))
    weights = search.passes.fit(plan.layers, search.deciding(plan)(Strength(0.05)))
    assert {(layer, head) for layer in search.gone for head in search.gone[layer]} == set(published.heads)
    for layer, (matrix, _) in weights.items():
        torch.testing.assert_close(matrix, published.repair.matrices[layer])


def test_the_best_plan_and_strength_on_windows_left_out_are_taken():
    model = tiny_causal_model("GPT2")
    evaluator, before = evidence_of(model, continued(model, 8)), state_of(model)
    found = validated_choice(evaluator, 4)
    assert found.plan in ("uniform", min(found.plans, key=found.plans.get))
    tried = found.repair.choice.losses
    assert found.repair.strength == min(tried, key=lambda strength: tried[strength].mean())
    assert tried[found.repair.strength].mean() <= found.plans["uniform"]
    assert len(found.heads) == 4
    assert unchanged(model, before)


def test_another_plan_than_the_uniform_one_has_to_win_by_more_than_a_standard_error():
    def found(*losses):
        return StrengthChoice({START: np.array(losses)})

    uniform, lucky = (
        found(3.0, 3.2, 3.1, 3.3),
        found(2.6, 3.3, 3.1, 3.3),
    )  # lower by 0.075, standard error 0.11
    assert chosen_plan({"uniform": uniform, "metric": lucky}) == "uniform"
    better = found(2.9, 3.1, 3.1, 3.2)  # lower by 0.075, standard error 0.025
    assert chosen_plan({"uniform": uniform, "metric": better}) == "metric"
    assert chosen_plan({"metric": lucky, "counts": better}) in ("metric", "counts")
    assert chosen_plan({"uniform": StrengthChoice(), "metric": StrengthChoice()}) == "uniform"


def test_heads_that_do_nothing_go_first_wherever_they_are():
    model = wide_llama()
    silence(model, [(1, head) for head in range(4)])
    evaluator = evidence_of(model, continued(model, 8))
    plans = removal_plans(evaluator, 4, single_heads)
    assert plans["metric"].quotas == plans["counts"].quotas == {0: 0, 1: 4}
    found = validated_choice(evaluator, 4)
    assert sorted(found.heads) == [(1, head) for head in range(4)]
    with found.repair.applied(evaluator.projections):
        losses = evaluator.objective.evaluate(model).losses
    np.testing.assert_allclose(losses, evaluator.losses(), atol=1e-5)


def test_the_plan_of_reconstruction_takes_its_heads():
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    plan = removal_plans(evaluator, 4, single_heads)["reconstruction"]
    order = ranking_of(evaluator, "reconstruction", "reconstruction").order[:4]
    assert plan.heads is not None
    assert sorted((layer, head) for layer in plan.heads for head in plan.heads[layer]) == sorted(order)
    search = _Search(evaluator, single_heads, LayerPasses(evaluator))
    assert sorted(search.fitted(plan, Strength(0.1)).heads) == sorted(order)


def test_halfway_between_two_plans_is_a_number_of_units():
    evaluator = evidence_of(tiny_causal_model("Llama"), IDS)
    plans = removal_plans(evaluator, 6, removable_units)
    for name in ("half metric", "half counts"):
        assert all(quota % 2 == 0 for quota in plans[name].quotas.values())
        assert sum(plans[name].quotas.values()) == sum(plans["uniform"].quotas.values())


def test_a_plan_that_removes_next_to_nothing_does_not_win(monkeypatch):
    model = tiny_causal_model("GPT2")
    evaluator = evidence_of(model, continued(model, 8))
    plans = removal_plans(evaluator, 4, single_heads)
    idle = Plan(dict.fromkeys(plans["uniform"].quotas, 0) | {1: 1})
    monkeypatch.setattr(validated, "removal_plans", lambda *_: {**plans, "idle": idle})
    found = validated_choice(evaluator, 4)
    assert min(found.plans, key=found.plans.get) == "idle"
    assert found.plan != "idle"
    assert len(found.heads) == 4


def test_units_can_be_cut_out_and_a_single_window_repairs_nothing():
    found = validated_choice(evidence_of(tiny_causal_model("Llama"), token_ids(1)), 4, removable_units)
    assert found.repair.strength == NO_REPAIR
    for layer in (0, 1):
        gone = sorted(head for at, head in found.heads if at == layer)
        assert gone in ([], [0, 1], [2, 3], [0, 2], [0, 3], [1, 2], [1, 3])


def test_what_a_layer_cannot_lose_is_asked_of_the_next():
    evaluator, asked = evidence_of(tiny_causal_model("Llama"), IDS), []

    def pick(module, projection, moments, quota, moves, damping):
        asked.append(quota)
        return [0]

    found = _Layerwise(evaluator, 4, single_heads, pick, plain=True).choice(0.1)
    assert asked == [2, 3]
    assert sorted(found.heads) == [(0, 0), (1, 0)]
