"""Rankings: every method gives every head a score, and each score is what its definition says."""

import numpy as np
import pandas as pd
import pytest
import torch

import headscape as hs
from evaluator_cases import evidence_of
from headscape.ablation.rankings import METHODS, HeadRanking, ranking_of, read_scores
from headscape.errors import InputError
from headscape.recorder.capturing import capture
from headscape.recorder.gates import gated, switched_off
from tiny_models import inputs_of, tiny_causal_model, tiny_model, token_ids

IDS = token_ids(3, length=16)
HEADS = tuple((layer, head) for layer in range(2) for head in range(4))


@pytest.fixture(scope="module")
def llama():
    return tiny_causal_model("Llama")


@pytest.fixture(scope="module")
def evaluator(llama):
    return evidence_of(llama, IDS)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ranks_every_head(evaluator, method):
    ranking = ranking_of(evaluator, method)
    assert ranking.heads == HEADS
    assert np.isfinite(ranking.scores).all()
    assert sorted(ranking.order) == list(HEADS)
    frame = ranking.to_frame()
    assert [frame["place"].loc[pair] for pair in ranking.order] == list(range(8))
    assert ranking.first(3) == ranking.order[:3]
    turned = ranking_of(evaluator, f"{method}:reversed")
    np.testing.assert_array_equal(turned.scores, -ranking.scores)
    assert turned.method == f"{method}:reversed"
    if len(set(ranking.scores)) == 8:
        assert turned.order == ranking.order[::-1]


def test_rank_heads_is_the_way_in(llama):
    ranking = hs.rank_heads(llama, IDS, "gradient")
    np.testing.assert_allclose(ranking.scores, ranking_of(evidence_of(llama, IDS), "gradient").scores)
    assert hs.rank_heads(llama, IDS, "random", seed=1).order != hs.rank_heads(llama, IDS, "random").order


def test_the_model_is_left_as_it_was(llama):
    before = {name: x.clone() for name, x in llama.state_dict().items()}
    needed = [parameter.requires_grad for parameter in llama.parameters()]
    for method in ("gradient", "reconstruction", "leave-one-out", "haar"):
        ranking_of(evidence_of(llama, IDS), method)
    assert all(torch.equal(x, before[name]) for name, x in llama.state_dict().items())
    assert [parameter.requires_grad for parameter in llama.parameters()] == needed
    assert all(parameter.grad is None for parameter in llama.parameters())
    assert llama.config._attn_implementation != "headscape"


def test_scores_of_the_users_own_in_every_form(evaluator):
    values = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0])
    index = pd.MultiIndex.from_tuples(HEADS[::-1], names=["layer", "head"])
    forms = {
        "k90": pd.Series(values[::-1], index=index, name="k90"),
        "own score": dict(zip(HEADS, values, strict=True)),
        "by_layer": values,
        "mine": lambda given: values if given is evaluator else None,
    }
    forms["mine"].__name__ = "mine"
    for name, method in forms.items():
        ranking = ranking_of(evaluator, method)
        np.testing.assert_array_equal(ranking.scores, values)
        assert ranking.method == ("own score" if name == "by_layer" else name)
    assert ranking_of(evaluator, values.tolist()).order[:2] == ((0, 1), (0, 3))


def test_a_column_of_a_head_table(tmp_path, evaluator):
    path = tmp_path / "heads.csv"
    table = pd.DataFrame(HEADS, columns=["layer", "head"]).assign(k90=np.arange(8.0)[::-1])
    table.to_csv(path, index=False)
    assert ranking_of(evaluator, read_scores(path, "k90")).order == HEADS[::-1]
    with pytest.raises(
        InputError, match="must have the columns layer, head and mu, but has layer, head, k90"
    ):
        read_scores(path, "mu")
    with pytest.raises(InputError, match=r"none.csv cannot be read"):
        read_scores(tmp_path / "none.csv", "k90")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("nonsense", "a method is one of haar, .*'nonsense' was asked for"),
        ("haar:backwards", "'haar:backwards' was asked for"),
        (3, "a method is a name, a column, a dict or a function, but int was given"),
        ({(0, 0): 1.0}, r"7 of 8 are missing, \(0, 1\) for one"),
        ([1.0, 2.0], r"one number per head, 8 of them, but its shape is \(2,\)"),
        (np.ones((2, 4)), r"8 of them, but its shape is \(2, 4\)"),
        (np.array([np.nan, *range(7)]), "number for every head, but 1 are NaN"),
        (lambda evaluator: None, r"its shape is \(\)"),
    ],
)
def test_bad_scores(llama, method, message):
    with pytest.raises(InputError, match=message):
        hs.rank_heads(llama, IDS, method)


def test_counts_beyond_the_heads():
    ranking = HeadRanking("mine", HEADS, np.arange(8.0))
    with pytest.raises(InputError, match="count must be from 0 to 8 heads, but is 9"):
        ranking.first(9)


def test_gradient_is_the_mean_of_absolute_slopes_window_by_window(evaluator):
    modules, step = evaluator.modules, 0.02
    stencil = {1: 8 / 12, -1: -8 / 12, 2: -1 / 12, -2: 1 / 12}
    slopes = np.zeros((8, 3))
    for i, (layer, head) in enumerate(HEADS):
        for places, weight in stencil.items():
            gate = torch.ones(4)
            gate[head] += places * step
            with gated(modules, {layer: gate}):
                slopes[i] += weight * evaluator.objective.evaluate(evaluator.model).losses / step
    found = ranking_of(evaluator, "gradient").scores
    np.testing.assert_allclose(found, np.abs(slopes).mean(axis=1), rtol=0.01, atol=2e-4)
    # The absolute value comes before the mean: windows of opposite sign do not cancel.
    assert np.abs(found - np.abs(slopes.mean(axis=1))).max() > 0.01


def test_gradient_does_not_depend_on_batches(llama, monkeypatch):
    whole = ranking_of(evidence_of(llama, IDS), "gradient").scores
    monkeypatch.setattr("headscape.ablation.objective._TOKENS_A_BATCH", 16)
    apart = evidence_of(llama, IDS)
    assert len(apart.objective.batches) == 3
    np.testing.assert_allclose(ranking_of(apart, "gradient").scores, whole, rtol=1e-4)


@pytest.mark.parametrize("family", ["Bert", "ViT"])
def test_gradients_of_models_without_a_loss_are_not_flat(family):
    evaluator = evidence_of(tiny_model(family), inputs_of(family, rows=3))
    for method in ("gradient", "reconstruction"):
        assert len(set(ranking_of(evaluator, method).scores)) == 8
    assert (ranking_of(evaluator, "gradient").scores > 1e-4).all()


@pytest.mark.parametrize(
    ("family", "changes"), [("Llama", {}), ("Llama", {"num_key_value_heads": 1}), ("GPT2", {})]
)
def test_output_norm_is_that_of_the_product(family, changes):
    model = tiny_causal_model(family, **changes)
    found = ranking_of(evidence_of(model, IDS), "output-norm").scores.reshape(2, 4)
    for layer in range(2):
        if family == "GPT2":
            attention = model.transformer.h[layer].attn
            w_o, w_v = attention.c_proj.weight.T, attention.c_attn.weight.T[64:]
            groups = 1
        else:
            attention = model.model.layers[layer].self_attn
            w_o, w_v = attention.o_proj.weight, attention.v_proj.weight
            groups = 4 // model.config.num_key_value_heads
        for head in range(4):
            shared = head // groups
            dense = w_o[:, 8 * head : 8 * head + 8] @ w_v[8 * shared : 8 * shared + 8]
            assert found[layer, head] == pytest.approx(torch.linalg.norm(dense).item(), rel=1e-5)


def test_entropy_and_confidence_are_those_of_captured_rows(evaluator):
    captured = capture(evaluator.model, IDS)
    entropies, largest = np.zeros(8), np.zeros(8)
    for window in range(3):
        p = captured.tensor(window, "probs").data
        for h in range(8):
            for i in range(16):
                row = [float(x) for x in p[i, :, h] if x > 0]
                entropies[h] -= sum(x * np.log(x) for x in row) / 48
                largest[h] += max(row) / 48
    np.testing.assert_allclose(ranking_of(evaluator, "attention-entropy").scores, entropies, rtol=1e-4)
    np.testing.assert_allclose(ranking_of(evaluator, "confidence").scores, largest, rtol=1e-5)


def test_haar_is_the_mean_rank_of_the_entropy_study(evaluator):
    study = hs.entropy_study(evaluator.capture, k=256)  # all there are: 16 x 16
    ranks = study.ranks.mean(axis=0)
    np.testing.assert_allclose(ranking_of(evaluator, "haar").scores, ranks)
    within = ranking_of(evaluator, "haar-within-layer")
    places = within.to_frame()["place"].to_numpy().reshape(2, 4)
    for layer in range(2):
        assert (
            np.argsort(places[layer]).tolist()
            == np.argsort(ranks.reshape(2, 4)[layer], kind="stable").tolist()
        )
    # Layers take turns: of the first 2 n heads each layer gives n.
    for n in range(1, 5):
        assert sorted(layer for layer, _ in within.order[: 2 * n]) == [0] * n + [1] * n


def test_a_capture_and_organizations_that_are_given_are_used(llama, evaluator, monkeypatch):
    captured, organized = evaluator.capture, evaluator.organizations
    wanted = {method: ranking_of(evaluator, method).scores for method in ("haar", "tree-redundancy")}

    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr("headscape.ablation.head_evaluator.capture_windows", fail)
    monkeypatch.setattr("headscape.ablation.head_evaluator.organize", fail)
    given = {"capture": captured, "organizations": organized}
    for method, scores in wanted.items():
        np.testing.assert_array_equal(hs.rank_heads(llama, IDS, method, **given).scores, scores)
    with pytest.raises(AssertionError, match="computed again"):
        hs.rank_heads(llama, IDS, "haar")
    with pytest.raises(InputError, match=r"organizations must be one per window \(3\), but there are 2"):
        hs.rank_heads(llama, IDS, "haar", capture=captured, organizations=organized[:2])


def test_a_capture_of_another_model_is_refused(llama):
    other = capture(tiny_causal_model("Llama", num_hidden_layers=3), IDS)
    with pytest.raises(InputError, match=r"must have the 8 heads of the model's stack .* but has 12"):
        hs.rank_heads(llama, IDS, "haar", capture=other)


def test_leave_one_out_is_the_difference_of_losses(evaluator):
    found = ranking_of(evaluator, "leave-one-out").scores
    objective = evaluator.objective
    intact = objective.evaluate(evaluator.model).losses.mean()
    for score, pair in zip(found, HEADS, strict=True):
        with switched_off(evaluator.modules, [pair]):
            assert score == pytest.approx(
                objective.evaluate(evaluator.model).losses.mean() - intact, abs=1e-5
            )


def test_reconstruction_stops_at_the_count(llama):
    whole = ranking_of(evidence_of(llama, IDS), "reconstruction")
    part = hs.rank_heads(llama, IDS, "reconstruction", count=3)
    assert part.first(3) == whole.first(3)
    assert sorted(part.scores)[3:] == [8.0] * 5
    assert sorted(whole.scores) == list(range(8))


def test_an_own_loss_is_what_heads_are_ranked_by(llama):
    def of_the_last_token(output, arguments):
        return output.logits[:, -1, 7]

    found = hs.rank_heads(llama, IDS, "leave-one-out", loss=of_the_last_token).scores
    assert not np.allclose(found, hs.rank_heads(llama, IDS, "leave-one-out").scores, atol=1e-3)
