"""Models in which the right answer is known: heads that are exactly 0, and heads that are exact copies."""

import numpy as np
import pytest
import torch

import headscape as hs
from evaluator_cases import copy_head, evidence_of, silence, wide_llama
from headscape.ablation.rankings import ranking_of
from headscape.ablation.repair import repair
from headscape.ablation.scores.reconstruction import reconstruction_prices
from tiny_models import tiny_causal_model, token_ids

ZERO = [(0, 2), (1, 1), (1, 3)]
COPIES = [(1, 0), (1, 2)]
CALIBRATION, EVALUATION = token_ids(12, seed=1, length=40), token_ids(8, seed=2, length=40)


@pytest.fixture(scope="module")
def silent():
    model = wide_llama()
    silence(model, ZERO)
    return evidence_of(model, CALIBRATION)


@pytest.fixture(scope="module")
def twins():
    model = wide_llama()
    copy_head(model, 1, source=0, target=2)
    return evidence_of(model, CALIBRATION)


@pytest.mark.parametrize("method", ["gradient", "reconstruction", "leave-one-out", "output-norm"])
def test_heads_that_are_zero_go_first(silent, method):
    # Those that cost nothing go before all others; "leave-one-out" may find others that even lower the loss.
    ranking = ranking_of(silent, method)
    if method == "leave-one-out":
        scores = ranking.to_frame()["score"]
        assert all(scores.loc[pair] == 0.0 for pair in ZERO)
        assert np.count_nonzero(scores == 0.0) == 3
    else:
        assert sorted(ranking.first(3)) == ZERO


def test_heads_whose_output_weights_are_zero_go_first():
    model = tiny_causal_model("GPT2")
    with torch.no_grad():
        model.transformer.h[0].attn.c_proj.weight[8:16] = 0.0
        model.transformer.h[1].attn.c_proj.weight[24:] = 0.0
    evaluator = evidence_of(model, CALIBRATION)
    for method in ("gradient", "reconstruction", "output-norm"):
        assert sorted(ranking_of(evaluator, method).first(2)) == [(0, 1), (1, 3)]
    assert evaluator.losses([(0, 1), (1, 3)]).tolist() == evaluator.losses().tolist()


def test_one_of_two_copies_costs_nothing_once_its_twin_takes_over(twins):
    prices = reconstruction_prices(twins)
    alone = {pair: prices[pair[0]].price([pair[1]]) for pair in twins.heads}
    others = min(price for pair, price in alone.items() if pair not in COPIES)
    assert all(alone[pair] < 1e-3 * others for pair in COPIES)
    assert prices[1].price([0, 2]) > 0.1 * others
    first, second, *_ = ranking_of(twins, "reconstruction").order
    # With one of them gone the other costs what both do, and is not the next.
    assert first in COPIES
    assert second not in COPIES


def test_the_tree_puts_copies_together(twins):
    assert ranking_of(twins, "tree-redundancy").first(1)[0] in COPIES


def test_other_methods_do_not_see_that_copies_stand_in_for_each_other(twins):
    for method in ("gradient", "leave-one-out"):
        assert ranking_of(twins, method).first(1)[0] not in COPIES


@pytest.mark.parametrize("gone", COPIES)
def test_repair_makes_up_for_a_copy_and_nothing_else_does(twins, gone):
    judge = evidence_of(twins.model, EVALUATION)
    intact, gated = judge.losses(), judge.losses([gone])
    with repair(twins, [gone], ridge=1e-3).applied(judge.projections):
        repaired = judge.losses([gone])
    assert np.abs(repaired - intact).max() < 1e-2
    with repair(twins, [gone], ridge=1e-8).applied(judge.projections):
        repaired = judge.losses([gone])
    assert np.abs(repaired - intact).max() < 1e-4
    assert np.abs(gated - intact).max() > 0.05


@pytest.fixture(scope="module")
def study():
    """Three pairs of copies and two heads of nothing in four layers; the model is sure of its own continuations."""
    model = wide_llama(num_hidden_layers=4)
    for layer in range(3):
        copy_head(model, layer, source=0, target=1)
    silence(model, [(3, 0), (3, 3)])
    with torch.no_grad():
        # Random tokens would be as badly predicted without heads: let the model continue them as it likes.
        rows = [token_ids(1, seed=s, length=2) for s in range(28)]
        rows = model.generate(torch.cat(rows), max_new_tokens=30, do_sample=False, eos_token_id=None)
    return hs.ablation_study(
        model,
        rows[:14].numpy(),
        ["reconstruction", "gradient:reversed", "random"],
        [2, 5],
        repair=True,
        calibration=rows[14:].numpy(),
    )


def test_the_study_finds_that_reconstruction_with_repair_is_better_than_random(study):
    verdict = study.verdicts["reconstruction+repair"]
    assert verdict.word == "better than random+repair"
    assert verdict.beaten == verdict.draws == 10
    assert study.interval("reconstruction+repair", 5).estimate < 0.1 * study.interval("random+repair", 5).low
    removed = {tuple(pair) for pair in study.curves["reconstruction+repair"].orders[0].tolist()}
    assert {(3, 0), (3, 3)} < removed
    assert all(len(removed & {(layer, 0), (layer, 1)}) == 1 for layer in range(3))


def test_the_study_finds_that_the_wrong_end_is_worse_than_random(study):
    assert study.verdicts["gradient:reversed+repair"].word == "worse than random+repair"
