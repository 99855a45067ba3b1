"""What users want of a smaller model - groups, uniform layers, targets, a bound on the loss - is what they get."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscape as hs
from evaluator_cases import evidence_of
from headscape.ablation.greedy import removable_units
from headscape.ablation.layerwise import uniform_quotas
from headscape.ablation.validated_choice import validated_choice
from headscape.errors import InputError
from headscape.models.anatomy import attention_modules, of_stack
from headscape.models.loading import as_model
from headscape.pruning import size_search
from headscape.pruning.expected_savings import expected_savings
from headscape.pruning.removal_order import ScorePrices, removal_order, smallest_step, whole_groups
from headscape.pruning.trial_windows import trial_windows
from pruning_cases import FAMILIES, PLAIN, grouped_llama
from tiny_models import inputs_of, tiny_causal_model, tiny_model, token_ids

EVALUATION, CALIBRATION = token_ids(8, seed=1), token_ids(12, seed=2)


def trial_of(model, **options):
    return hs.pruning_trial(model, EVALUATION, calibration=CALIBRATION, **options)


def scored(modules, seed=0):
    rng = np.random.default_rng(seed)
    return {m.layer: ScorePrices(rng.random(m.n_heads)) for m in modules}


def counts_after(modules, heads):
    """How many heads every group of every layer keeps."""
    kept = []
    for m in modules:
        size = m.n_heads // m.n_kv_heads
        gone = {head for layer, head in heads if layer == m.layer}
        kept.append([sum(g * size + i not in gone for i in range(size)) for g in range(m.n_kv_heads)])
    return kept


def flat(order, steps=None):
    return [pair for step in order[:steps] for pair in step]


@pytest.mark.parametrize(
    "goal", [{"target_kv": 0.1}, {"target_params": 0.1}, {"target_kv": 0.1, "uniform": True}]
)
def test_a_target_out_of_reach_is_refused_before_any_pass_over_the_windows(goal):
    model, passes = grouped_llama(6, 3), []
    model.register_forward_hook(lambda *_: passes.append(1))
    with pytest.raises(InputError, match=r"cannot come down to 0\.1"):
        trial_of(model, **goal)
    assert len(passes) == 1  # the one that finds the layers


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("shape", [(6, 3), (6, 2), (4, 4), (6, 6)])
@pytest.mark.parametrize("kind", ["units", "groups", "uniform", "uniform groups"])
def test_all_orders_end_with_the_same_numbers_of_heads(shape, kind, seed):
    modules = of_stack(attention_modules(grouped_llama(*shape)))
    free = {m.layer: ScorePrices(np.zeros(m.n_heads)) for m in modules}
    ends = [
        counts_after(modules, flat(removal_order(modules, prices, kind)))
        for prices in (free, scored(modules, seed))
    ]
    assert [sorted(kept) for kept in ends[0]] == [sorted(kept) for kept in ends[1]]


@pytest.mark.parametrize("shape", [(6, 3), (6, 2), (4, 4), (6, 1)])
@pytest.mark.parametrize("kind", ["units", "groups", "uniform", "uniform groups"])
def test_every_prefix_of_an_order_can_be_cut_out(shape, kind):
    modules = of_stack(attention_modules(grouped_llama(*shape)))
    if shape[1] == 1 and "groups" in kind:
        with pytest.raises(InputError, match="single key-value group"):
            smallest_step(modules, kind)
        return
    order = removal_order(modules, scored(modules), kind)
    assert order
    assert len(order[0]) >= smallest_step(modules, kind)
    assert len(set(flat(order))) == len(flat(order))
    for steps in range(1, len(order) + 1):
        kept = counts_after(modules, flat(order, steps))
        for groups in kept:
            assert len({n for n in groups if n}) == 1
            assert not kind.endswith("groups") or set(groups) <= {0, shape[0] // shape[1]}
        if kind.startswith("uniform"):
            assert len({tuple(sorted(groups)) for groups in kept}) == 1


def test_uniform_rounds_take_the_cheapest_of_one_shape():
    modules = of_stack(attention_modules(grouped_llama(4, 2)))
    prices = {0: ScorePrices(np.array([0.0, 9, 0, 9])), 1: ScorePrices(np.array([9.0, 0, 9, 0]))}
    # One of each group costs nothing in both layers, a whole group 9.
    assert removal_order(modules, prices, "uniform")[0] == ((0, 0), (0, 2), (1, 1), (1, 3))
    assert len(removal_order(modules, prices, "uniform", 3)) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_expected_savings_are_those_of_the_cut(family):
    model = tiny_model(family)
    modules = of_stack(attention_modules(model))
    heads = flat(removal_order(modules, scored(modules), "groups", 2))
    expected = expected_savings(modules, heads)
    assert expected.to_dict() == hs.prune(model, heads).savings.to_dict()
    assert next(model.parameters()).device.type == "cpu"


@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_removal_loads_plainly_where_the_family_allows(family):
    model = tiny_model(family)
    modules = of_stack(attention_modules(model))
    [heads, *_] = removal_order(modules, scored(modules), "uniform")
    pruned = hs.prune(model, heads)
    assert pruned.kept_back == ()
    assert pruned.manifest.plain == (family in PLAIN)


def test_a_uniform_trial_is_loaded_by_transformers_to_the_last_bit(tmp_path):
    trial = trial_of(tiny_causal_model("Llama"), fraction=0.5, uniform=True)
    pruned = trial.prune(timing=False)
    hs.save_pruned(pruned, tmp_path / "out")
    ids = EVALUATION[:2]
    with torch.no_grad():
        wanted = pruned.model(ids).logits
        assert torch.equal(hs.load_pruned(tmp_path / "out").model(ids).logits, wanted)
        assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path / "out")(ids).logits, wanted)
    assert "same number of heads" in trial.goal


def test_groups_shrink_the_cache():
    trial = trial_of(tiny_causal_model("Llama"), fraction=0.25, groups=True)
    assert len(trial.heads) == 2
    pruned = trial.prune(timing=False)
    assert pruned.savings.cache_bytes_per_token.share == pytest.approx(0.25)
    assert trial.savings.to_dict() == pruned.savings.to_dict()


@pytest.mark.parametrize(("target", "groups"), [(0.9, 1), (0.75, 1), (0.7, 2), (0.5, 2)])
def test_a_smaller_cache_takes_as_few_groups_as_reach_it(target, groups):
    trial = trial_of(tiny_causal_model("Llama"), target_kv=target, repair=False)
    assert len(trial.heads) == 2 * groups
    assert 1 - trial.prune(timing=False).savings.cache_bytes_per_token.share <= target
    assert f"target {target:g}" in trial.goal


def test_fewer_parameters_are_reached_by_what_costs_less_on_windows_set_aside():
    model = tiny_causal_model("Llama")
    along = {"method": "reconstruction", "repair": False}  # sizes are steps of one order
    trial = trial_of(model, target_params=0.93, **along)
    assert 1 - trial.savings.parameters.share <= 0.93
    # 12 calibration windows: 6 choose the heads, 6 compare the kinds.
    chosen, compare = CALIBRATION[::2], evidence_of(model, CALIBRATION[1::2])
    modules = of_stack(attention_modules(model))
    rivals = []
    for groups in (False, True):
        for fraction in (0.25, 0.5, 0.75):
            other = hs.pruning_trial(
                model, EVALUATION, calibration=chosen, fraction=fraction, groups=groups, **along
            ).heads
            if 1 - expected_savings(modules, other).parameters.share <= 0.93:
                rivals.append(compare.losses(other).mean())
                break
    assert compare.losses(trial.heads).mean() == pytest.approx(min(rivals), abs=1e-6)


def test_a_bound_on_the_loss_holds_on_the_windows_set_aside_and_the_next_size_breaks_it():
    model = tiny_causal_model("GPT2")
    along = {"method": "reconstruction", "repair": False}  # sizes are steps of one order
    free = trial_of(model, fraction=0.5, sizes=1, **along)
    compare = evidence_of(model, CALIBRATION[1::2])
    bound = 0.6 * hs.bootstrap(compare.losses(free.heads) - compare.losses()).high
    trial = trial_of(model, max_loss=bound, **along)
    increase = hs.bootstrap(compare.losses(trial.heads) - compare.losses())
    assert 0 < increase.high <= bound
    assert len(trial.heads) < len(free.heads) + 1


def test_the_search_never_looks_at_the_windows_it_is_judged_by(monkeypatch):
    seen = []
    original = size_search.chosen_heads

    def watched(run, goal):
        monkeypatch.setattr(type(run.judge), "losses", _recording(type(run.judge).losses, seen))
        found = original(run, goal)
        seen.append("chosen")
        return found

    monkeypatch.setattr("headscape.pruning.trial.chosen_heads", watched)
    trial = trial_of(tiny_causal_model("GPT2"), max_loss=5.0, repair=False)
    before = seen[: seen.index("chosen")]
    judged = {window.hash() for window in evidence_of(trial.model.model, EVALUATION).windows}
    assert before
    assert not judged & set(before)


def _recording(losses, seen):
    def recorded(self, off=()):
        seen.extend(window.hash() for window in self.windows)
        return losses(self, off)

    return recorded


def test_what_costs_more_than_was_asked_for_is_said(monkeypatch):
    model = tiny_causal_model("GPT2")
    judge = evidence_of(model, EVALUATION)
    worst = max(judge.heads, key=lambda head: judge.losses([head]).mean())
    monkeypatch.setattr("headscape.pruning.trial.chosen_heads", lambda run, goal: ("units", (worst,)))
    trial = trial_of(model, max_loss=1e-9, repair=False)
    assert [notice.name for notice in trial.warnings] == ["over-max-loss"]


def test_models_without_a_cache_say_so():
    pixels = inputs_of("ViT", rows=14)["pixel_values"]
    with pytest.raises(InputError, match="no key-value cache"):
        hs.pruning_trial(tiny_model("ViT"), pixels, target_kv=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_kv": 1.2}, "target_kv must be more than 0 and less than 1, but is 1.2"),
        ({"target_params": 0}, "target_params must be more than 0"),
        ({"max_loss": 0}, "max_loss must be a positive loss increase, but is 0"),
        ({"max_loss": float("nan")}, "max_loss must be a positive"),
        ({"target_kv": 0.5, "max_loss": 0.1}, "but got target_kv and max_loss"),
        ({"heads": [(0, 0)], "groups": True}, "groups and uniform say how heads are chosen"),
        ({"target_kv": 0.1}, r"the key-value cache cannot come down to 0.1: .* it is 0.5 of what it was"),
        ({"target_params": 0.1}, "the parameters cannot come down to 0.1"),
        ({"max_loss": 1e-9}, "no head can go for a loss increase of at most 1e-09"),
        ({"fraction": 0.3, "uniform": True}, r"every layer loses the same, at least 4 at once.* is 0\.5\."),
        ({"fraction": 0.2, "groups": True}, r"at least 2 at once: the smallest fraction .* is 0\.25\."),
        ({"fraction": 0.5, "recover": -1}, "recover must be a whole number from 0"),
        ({"fraction": 0.5, "method": "osscar"}, "osscar.* compare it with headscape ablate"),
        ({"fraction": 0.5, "method": "osscar"}, "prune takes 'validated' .* but the method is 'osscar'"),
        ({"fraction": 0.5, "sizes": 1000}, "sizes must be a whole number from 0 to 50"),
    ],
)
def test_bad_wishes(options, message):
    with pytest.raises(InputError, match=message):
        trial_of(tiny_causal_model("Llama"), **options)


def test_a_search_needs_two_calibration_windows():
    with pytest.raises(InputError, match="at least 2 calibration windows"):
        hs.pruning_trial(tiny_causal_model("GPT2"), EVALUATION, calibration=CALIBRATION[:1], max_loss=0.1)


def test_layers_of_different_sizes_cannot_lose_the_same():
    pruned = hs.prune(tiny_causal_model("GPT2"), [(0, 1)])
    with pytest.raises(InputError, match="layers with the same number of heads, but they have 3, 4"):
        trial_of(pruned.model, fraction=0.5, uniform=True)


def test_the_trade_off_has_sizes_of_both_kinds_and_names_what_nothing_beats():
    model = tiny_causal_model("Llama")
    # The order of "reconstruction" gives the same heads whenever a size is asked for; "validated" chooses anew.
    trial = trial_of(model, fraction=0.25, sizes=3, method="reconstruction")
    curve = trial.curve
    assert {point.kind for point in curve.points} == {"units", "groups"}
    [chosen] = [point for point in curve.points if point.chosen]
    assert chosen.heads == trial.heads
    assert curve.windows == 6
    losses = [point.increase.estimate for point in curve.points]
    assert losses == sorted(losses)
    for point in curve.points:
        cache = point.savings.cache_bytes_per_token.after
        beaten = any(
            other.increase.estimate <= point.increase.estimate
            and other.savings.cache_bytes_per_token.after <= cache
            and other is not point
            for other in curve.points
        )
        assert ("key-value cache" in curve.best_for(point)) == (not beaten)
    assert list(curve.choices) == [chr(ord("A") + i) for i in range(len(curve.choices))]
    for point in curve.points:
        assert point.option.endswith(f"{len(point.heads) / 8:g}")
        again = trial_of(
            model,
            fraction=float(point.option.split()[-1]),
            groups="--groups" in point.option,
            repair=False,
            sizes=1,
            method="reconstruction",
        )
        assert set(again.heads) == set(point.heads)
    timed = trial.timed()
    assert all(point.speed.prefill.before for point in timed.curve.points)
    summary = timed.summary()["curve"]
    assert summary["points"][0]["speed"]["prefill"][1] > 0


def test_windows_that_compare_are_others_than_those_that_calibrate():
    ids = torch.randint(0, 48, (40 * 16,), generator=torch.Generator().manual_seed(0))
    loaded = as_model(tiny_causal_model("GPT2"))
    reading = {"length": 16, "sample": "spread", "seed": 0, "comparing": False}
    found = trial_windows(loaded, ids, None, windows=4, calibration_count=4, **reading)
    assert (len(found.calibrate), len(found.compare), len(found.evaluate)) == (4, 4, 4)
    parts = (found.calibrate, found.compare, found.evaluate)
    assert len({window.hash() for part in parts for window in part}) == 12
    listed = (loaded, EVALUATION, CALIBRATION)
    whole = trial_windows(*listed, windows=None, calibration_count=None, **reading)
    assert (len(whole.calibrate), len(whole.compare)) == (12, 0)
    halved = trial_windows(*listed, windows=None, calibration_count=None, **{**reading, "comparing": True})
    assert (len(halved.calibrate), len(halved.compare)) == (6, 6)


@pytest.mark.parametrize("options", [{"fraction": 0.5}, {"fraction": 0.5, "groups": True}])
def test_validated_chooses_heads_and_repair_together(options):
    model = tiny_causal_model("Llama")
    trial = trial_of(model, method="validated", **options)
    moves = whole_groups if options.get("groups") else removable_units
    wanted = validated_choice(evidence_of(model, CALIBRATION), 4, moves)
    assert trial.heads == wanted.heads
    assert (trial.plan, trial.repair.strength) == (wanted.plan, wanted.repair.strength)
    for layer, matrix in wanted.repair.matrices.items():
        torch.testing.assert_close(trial.repair.matrices[layer], matrix)
    np.testing.assert_allclose(
        evidence_of(trial.prune(timing=False).model, EVALUATION).losses(), trial.repaired, atol=1e-5
    )


@pytest.mark.parametrize(
    "options",
    [{"target_kv": 0.75}, {"target_params": 0.93}, {"max_loss": 5.0}, {"fraction": 0.5, "uniform": True}],
)
def test_validated_reaches_every_goal(options):
    trial = trial_of(grouped_llama(6, 3), method="validated", sizes=2, **options)
    assert trial.prune(timing=False).kept_back == ()
    if "target_kv" in options:
        assert 1 - trial.savings.cache_bytes_per_token.share <= 0.75
    if "target_params" in options:
        assert 1 - trial.savings.parameters.share <= 0.93
    if "max_loss" in options:
        [point] = [point for point in trial.curve.points if point.chosen]
        assert point.increase.high <= 5.0
    # Layers that must stay alike take the heads of the order; else a plan was chosen.
    assert bool(trial.plan) != options.get("uniform", False)
    assert len({(point.kind, point.heads) for point in trial.curve.points}) == len(trial.curve.points) > 2


def test_quotas_of_whole_groups_are_whole_groups():
    modules = of_stack(attention_modules(grouped_llama(6, 2)))
    assert uniform_quotas(modules, 7, whole_groups) == {0: 3, 1: 3}
    assert uniform_quotas(modules, 12, whole_groups) == {0: 3, 1: 3}  # a layer keeps its last group
    assert uniform_quotas(modules, 5, removable_units) == {0: 2, 1: 2}
