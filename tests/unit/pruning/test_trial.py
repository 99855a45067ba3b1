"""The trial of pruning: what it would remove can be removed, and costs what the smaller model costs."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import headscape as hs
from evaluator_cases import evidence_of, silence, state_of, unchanged, wide_llama
from headscape.ablation.repair import repair
from headscape.ablation.ridge_fit import NO_REPAIR
from headscape.errors import InputError, ModelError
from headscape.pruning.model_card import model_card
from headscape.pruning.plan import removable
from headscape.pruning.trial import PruningTrial
from tiny_models import inputs_of, tiny_causal_model, tiny_model, token_ids

EVALUATION, CALIBRATION = token_ids(8, seed=1), token_ids(12, seed=2)
SCORES = np.array([5.0, 1.0, 7.0, 3.0, 0.0, 6.0, 2.0, 4.0])


def trial_of(model, **options):
    if "heads" not in options:
        options.setdefault("fraction", 0.25)
    return hs.pruning_trial(model, EVALUATION, **{"calibration": CALIBRATION, **options})


def losses_of(model):
    return evidence_of(model, EVALUATION).losses()


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
@pytest.mark.parametrize("repaired", [True, False])
def test_the_smaller_model_costs_what_the_trial_says(family, repaired):
    model = tiny_causal_model(family)
    before = state_of(model)
    trial = trial_of(model, repair=repaired)
    assert unchanged(model, before)
    pruned = trial.prune(timing=False)
    assert unchanged(model, before)
    assert pruned.removed == tuple(sorted(trial.heads))
    wanted = trial.repaired if repaired else trial.gated
    np.testing.assert_allclose(losses_of(pruned.model), wanted, atol=1e-5)
    np.testing.assert_allclose(trial.intact, losses_of(model), atol=1e-6)
    np.testing.assert_allclose(trial.gated, evidence_of(model, EVALUATION).losses(trial.heads), atol=1e-6)
    assert (trial.repaired is None) == (trial.repair is None) == (not repaired)
    assert bool(pruned.manifest.repaired) == (repaired and trial.repair.strength != NO_REPAIR)


def test_repair_is_fitted_on_the_calibration_windows():
    model = tiny_causal_model("Llama")
    trial = trial_of(model)
    wanted = repair(evidence_of(model, CALIBRATION), trial.heads)
    for layer, matrix in wanted.matrices.items():
        torch.testing.assert_close(trial.repair.matrices[layer], matrix)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.74])
@pytest.mark.parametrize("method", ["reconstruction", "validated", "output-norm", "random", SCORES])
def test_what_is_chosen_can_be_cut_out(method, fraction):
    trial = trial_of(tiny_causal_model("Llama"), method=method, fraction=fraction, repair=False)
    assert 0 < len(trial.heads) <= int(fraction * 8)
    for layer in (0, 1):
        asked = [head for at, head in trial.heads if at == layer]
        assert set(removable(asked, 4, 2)) == set(asked)
        assert len(asked) < 4


def test_scores_add_up_over_heads_that_go_together():
    # By layer and group: 5+1, 7+3 and 0+6, 2+4; one of each group: 1+3 and 0+2, the cheapest.
    trial = trial_of(tiny_causal_model("Llama"), method=SCORES, repair=False)
    assert sorted(trial.heads) == [(1, 0), (1, 2)]
    assert trial.method == "own score"


def test_heads_that_are_zero_are_found_and_cost_nothing():
    model = wide_llama()
    silence(model, [(0, 2), (1, 1)])
    trial = trial_of(model, method="reconstruction")
    assert sorted(trial.heads) == [(0, 2), (1, 1)]
    np.testing.assert_allclose(trial.gated, trial.intact, atol=1e-6)
    np.testing.assert_allclose(trial.repaired, trial.intact, atol=1e-4)


def test_random_heads_are_drawn_for_comparison():
    trial = trial_of(tiny_causal_model("Llama"), repair=False)
    assert trial.random.shape == (5, 8)
    band = trial.increases["random heads, without repair"]
    means = (trial.random - trial.intact).mean(axis=1)
    assert (band.estimate, band.low, band.high) == pytest.approx((means.mean(), means.min(), means.max()))
    assert set(trial.increases) == {"without repair", "random heads, without repair"}


def test_findings_compare_with_random_heads_and_with_no_repair():
    def findings(gated, repaired, random):
        losses = [np.full(8, 2.0) + increase for increase in (gated, repaired)]
        draws = np.full((5, 8), 2.0 + random)
        trial = PruningTrial(
            None,
            ((0, 0),),
            "mine",
            8,
            np.full(8, 2.0),
            *losses,
            draws,
            "nats",
            None,
            (6, 8),
            random_repaired=True,
        )
        return " ".join(trial.findings)

    good, bad = findings(0.3, 0.1, 0.2), findings(0.1, 0.3, 0.2)
    assert good.startswith(
        "Without 1 of 8 heads (12%, chosen by mine) the loss of 2 (nats) increases by 0.1 [0.1, 0.1]"
    )
    assert "Repair lowers the loss increase" in good
    assert good.endswith(
        "With repair, as many heads drawn at random cost 0.2 (0.2 to 0.2 in 5 draws) and these 0.1: the choice costs "
        "less."
    )
    assert "increases by 0.3 [0.3, 0.3] with repair" in bad
    assert "Repair raises the loss increase, by 0.2 [0.2, 0.2]" in bad
    assert "does not reliably lower the loss increase, by 0" in findings(0.1, 0.1, 0.2)
    assert findings(0.4, 0.3, 0.2).endswith("the choice costs more.")
    assert findings(0.4, 0.2, 0.2).endswith("the choice costs not clearly less.")


def test_a_repair_is_used_unless_windows_left_out_speak_against_it():
    trial = trial_of(tiny_causal_model("Llama"))
    assert trial.repair.strength != NO_REPAIR
    # What the held-out windows show is told, and decides nothing.
    harmed = dataclasses.replace(trial, repaired=trial.gated + 1.0)
    assert harmed.used == "with repair"
    assert any("Repair raises the loss increase, by 1 " in sentence for sentence in harmed.findings)
    touched = tuple(sorted({layer for layer, _ in trial.heads}))
    assert harmed.prune(timing=False).manifest.repaired == touched
    bare = dataclasses.replace(trial, repair=dataclasses.replace(trial.repair, strength=NO_REPAIR))
    assert bare.used == "without repair"
    assert bare.prune(timing=False).manifest.repaired == ()
    assert any(sentence.startswith("No re-fit") for sentence in bare.findings)


def test_given_heads():
    trial = trial_of(tiny_causal_model("Llama"), heads=[(1, 1), (1, 2)])
    assert trial.heads == ((1, 1), (1, 2))
    assert trial.method == "given heads"


@pytest.mark.parametrize("repaired", [True, False])
def test_given_heads_that_have_to_stay_are_not_part_of_the_trial(repaired):
    trial = trial_of(tiny_causal_model("Llama"), heads=[(0, 0), (1, 3), (0, 2)], repair=repaired)
    assert trial.heads == ((0, 0), (0, 2))
    assert "1 of the heads asked for stay (1.3)" in trial.warnings[-1].message
    pruned = trial.prune(timing=False)
    assert (pruned.removed, pruned.kept_back) == (trial.heads, ((1, 3),))
    wanted = trial.repaired if repaired else trial.gated
    np.testing.assert_allclose(losses_of(pruned.model), wanted, atol=1e-5)


def test_a_model_without_a_loss():
    pixels = inputs_of("ViT", rows=14)["pixel_values"]
    trial = hs.pruning_trial(tiny_model("ViT"), pixels, fraction=0.3)
    assert not trial.intact.any()
    assert len(trial.heads) == 2
    assert trial.windows == (7, 7)


def test_the_summary_and_the_card(tmp_path):
    trial = trial_of(tiny_causal_model("GPT2"), heads=[(0, 1), (1, 2), (1, 3)])
    summary = json.loads(json.dumps(trial.summary(), allow_nan=False))
    assert summary["heads"] == [[0, 1], [1, 2], [1, 3]]
    assert summary["increase"]["with repair"][0] == pytest.approx((trial.repaired - trial.intact).mean())
    assert summary["windows"] == {"calibration": 12, "evaluation": 8}
    pruned = trial.prune()
    card = pruned.card
    assert "# GPT2LMHeadModel, without 3 attention heads" in card
    assert "License of the original weights: not stated" in card
    assert str(pruned.speed) in card
    assert pruned.summary()["speed"]["decoding"][1:] == pytest.approx(pruned.speed.decoding.range)
    hs.save_pruned(pruned, tmp_path / "smaller")
    assert (tmp_path / "smaller" / "README.md").read_text() == card
    assert "| 0 | 1 | 3 of 4 |\n| 1 | 2, 3 | 2 of 4 |" in card
    assert f"| with repair | {trial.increases['with repair']} |" in card
    assert "hs.load_pruned" in card
    assert "AutoTokenizer" not in card  # this model came without one
    assert all(sentence in card for sentence in trial.findings)


@pytest.mark.parametrize(
    ("name", "linked"),
    [
        ("owner/model-135M", True),
        ("/home/me/model", False),
        ("out/model", False),
        ("../model", False),
        ("", False),
    ],
)
def test_the_card_links_to_the_original_only_where_the_hub_has_it(name, linked, tmp_path, monkeypatch):
    (tmp_path / "out" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    model = tiny_causal_model("GPT2")
    model.config._name_or_path = name
    card = model_card(hs.prune(model, [(0, 1)]))
    assert (f"base_model: {name}\n" in card) == linked
    assert ("base_model" in card) == linked


def test_one_window_has_no_interval_but_a_summary():
    trial = hs.pruning_trial(
        tiny_causal_model("GPT2"), EVALUATION[:1], calibration=CALIBRATION, heads=[(0, 1)], repair=False
    )
    assert trial.summary()["increase"]["without repair"][1] is None
    assert "evaluation windows (1)" in trial.warnings[0].message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0}, "fraction must be more than 0 and less than 1, but is 0"),
        ({"fraction": 1}, "more than 0 and less than 1, but is 1"),
        ({"fraction": float("nan")}, "less than 1, but is nan"),
        ({"fraction": 0.1, "heads": [(0, 0)]}, "one of fraction=.* but got fraction and heads"),
        ({"fraction": None}, "one of fraction=.* but got none"),
        (
            {"fraction": 0.2},
            r"0.2 of 8 heads is 1, but a layer loses at least 2 at once: the smallest fraction .* is 0\.25\.",
        ),
        ({"heads": []}, "heads must name at least one"),
        ({"heads": [(0, 0), (0, 1), (0, 2), (0, 3)]}, "all 4 of layer 0 are to go"),
        ({"heads": [(0, 9)]}, r"it has no \(0, 9\)"),
        ({"heads": [(0, 1)]}, "none of the heads asked for can go"),
        ({"method": "nonsense"}, "'nonsense' was asked for"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(InputError, match=message):
        trial_of(tiny_causal_model("Llama"), **options)


def test_the_smallest_fraction_that_is_named_removes_something():
    model = tiny_causal_model("Llama")
    with pytest.raises(InputError, match="smallest fraction") as refused:
        trial_of(model, fraction=0.001)
    named = float(str(refused.value).split()[-1].rstrip("."))
    assert len(trial_of(model, fraction=named, repair=False).heads) == 2


def test_one_window_and_one_head_are_singular():
    trial = hs.pruning_trial(
        tiny_causal_model("GPT2"), EVALUATION[:1], calibration=CALIBRATION[:1], heads=[(0, 1)], repair=False
    )
    assert "on 1 held-out window." in trial.findings[0]
    pruned = trial.prune(timing=False)
    assert pruned.manifest.calibration == "1 window"
    assert "1 of 8 heads was removed, from 1 of 2 layers" in pruned.description
    assert "without 1 attention head\n" in pruned.card
    assert "1 calibration window, evaluated on 1 held-out window." in pruned.card


def test_families_that_cannot_be_cut_are_told_before_anything_long(monkeypatch):
    monkeypatch.setattr("headscape.pruning.trial.chosen_heads", None)
    with pytest.raises(ModelError, match=r"cannot cut heads out of .*headscape ablate"):
        trial_of(tiny_causal_model("Olmo2"))
