"""The ablation study on tiny models: what it measures, what it refuses, and how it goes on."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

import headscape as hs
from evaluator_cases import continued, evidence_of, state_of, unchanged
from headscape.ablation.ablation_study import curve_labels
from headscape.ablation.head_evaluator import HeadEvaluator
from headscape.ablation.repair import repair
from headscape.errors import InputError, StorageError
from headscape.recorder.gates import switched_off
from letters import Letters
from tiny_models import BIDIRECTIONAL, inputs_of, tiny_causal_model, tiny_model, token_ids

EVALUATION, CALIBRATION = token_ids(7, seed=1), token_ids(6, seed=2)
HEADS = [(layer, head) for layer in range(2) for head in range(4)]
SCORES = np.array([5.0, 1.0, 7.0, 3.0, 0.0, 6.0, 2.0, 4.0])
ORDER = [(1, 0), (0, 1), (1, 2), (0, 3), (1, 3), (0, 0), (1, 1), (0, 2)]


@pytest.fixture(scope="module")
def llama():
    return tiny_causal_model("Llama")


def study_of(model, methods, counts, **options):
    return hs.ablation_study(model, EVALUATION, methods, counts, **{"calibration": CALIBRATION, **options})


@pytest.fixture
def evaluations(monkeypatch):
    """The sets of heads that were switched off to be evaluated, in their order."""
    seen, evaluate = [], HeadEvaluator.evaluate

    def counting(self, off=()):
        seen.append(tuple(off))
        return evaluate(self, off)

    monkeypatch.setattr(HeadEvaluator, "evaluate", counting)
    return seen


def test_losses_are_those_of_the_model_with_the_first_heads_off(llama):
    before = state_of(llama)
    study = study_of(llama, {"mine": SCORES}, [1, 3, 8])
    evaluator = evidence_of(llama, EVALUATION)
    assert study.counts == (1, 3, 8)
    assert [tuple(pair) for pair in study.curves["mine"].orders[0].tolist()] == ORDER
    np.testing.assert_allclose(study.intact, evaluator.objective.evaluate(llama).losses, rtol=1e-5)
    for place, count in enumerate(study.counts):
        with switched_off(evaluator.modules, ORDER[:count]):
            wanted = evaluator.objective.evaluate(llama).losses
        np.testing.assert_allclose(study.curves["mine"].losses[0, place], wanted, rtol=1e-6)
    assert (study.n_heads, study.perplexity, study.loss) == (8, True, "nats per token")
    assert unchanged(llama, before)


def test_repaired_losses_are_those_with_projections_fitted_on_the_calibration_windows(llama):
    before = state_of(llama)
    # What the model is sure of: random tokens are not predicted worse without heads, and no repair is chosen.
    sure = continued(llama, 12)
    study = study_of(llama, {"mine": SCORES, "mine+repair": SCORES}, [3], calibration=sure)
    judge, calibrated = evidence_of(llama, EVALUATION), evidence_of(llama, sure)
    judge.losses()
    with repair(calibrated, ORDER[:3]).applied(judge.projections):
        wanted = judge.losses(ORDER[:3])
    np.testing.assert_allclose(study.curves["mine+repair"].losses[0, 0], wanted, rtol=1e-6)
    assert not np.allclose(study.curves["mine"].losses[0, 0], wanted, rtol=1e-3)
    assert unchanged(llama, before)


def test_rankings_see_the_calibration_windows_only(llama):
    seen = []

    def spy(evaluator):
        seen.append([w.arguments["input_ids"][0].tolist() for w in evaluator.windows])
        return SCORES

    study_of(llama, {"spy": spy}, [1])
    assert seen == [CALIBRATION.tolist()]


def test_random_orders_are_a_band_of_draws_that_the_seed_decides(llama):
    first, again, other = (study_of(llama, ["random"], [2, 4], draws=5, seed=s) for s in (0, 0, 1))
    assert first.curves["random"].losses.shape == (5, 2, 7)
    assert len({tuple(map(tuple, order.tolist())) for order in first.curves["random"].orders}) == 5
    np.testing.assert_array_equal(first.curves["random"].orders, again.curves["random"].orders)
    assert not np.array_equal(first.curves["random"].orders, other.curves["random"].orders)


def test_counts(llama):
    found = study_of(llama, {"mine": SCORES}, ["25%", 5, "5", "50%"])
    assert found.counts == (2, 4, 5)
    assert study_of(llama, {"mine": SCORES}, None).counts == (1, 2, 4)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([2, 9], "counts must be from 1 to the 8 heads of the model, but 9 was asked for"),
        ([0], "but 0 was asked for"),
        (["120%"], "but 10 was asked for"),
        ([], "but none was asked for"),
        (["many"], "counts must be numbers or shares such as '10%', but one is 'many'"),
        (["x%"], "but one is 'x%'"),
        (["inf%"], "but one is 'inf%'"),
        ([None], "but one is None"),
        ([2.5], "but one is 2.5"),
    ],
)
def test_bad_counts(llama, counts, message):
    with pytest.raises(InputError, match=message):
        study_of(llama, {"mine": SCORES}, counts)


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        (["nonsense"], {}, "a method is one of haar.*'nonsense' was asked for"),
        ({"mine": SCORES, "x": "nonsense"}, {}, "'nonsense' was asked for"),
        ([], {}, "expected at least one method of haar"),
        ("haar", {}, "methods must be a list of names or a dict, but is the text 'haar'"),
        (["random:reversed"], {}, "random:reversed is random"),
        ({"random": SCORES}, {}, "'random' names random orders"),
        ([SCORES, -SCORES], {}, "two methods are called 'own score': give a dict with a name for each"),
        (["random"], {"draws": 1}, "draws must be a whole number from 2 to 10000, but is 1"),
        (["random+repair"], {"draws": 1}, "draws must be a whole number from 2"),
    ],
)
def test_bad_methods_are_refused_before_a_model_is_loaded(methods, options, message):
    with pytest.raises(InputError, match=message):
        hs.ablation_study("no such model", "text", methods, **options)


def test_names_of_curves():
    mine = np.arange(3.0)
    assert list(curve_labels(["haar", "random"], repair=False)) == ["haar", "random"]
    assert list(curve_labels(["haar", "haar+repair"], repair=False)) == ["haar", "haar+repair"]
    assert curve_labels(["haar", "haar+repair"], repair=True) == {"haar+repair": "haar"}
    assert curve_labels({"a": mine, "b+repair": "haar:reversed"}, repair=False) == {
        "a": mine,
        "b+repair": "haar:reversed",
    }


def test_repair_puts_itself_behind_every_method(llama):
    study = study_of(llama, ["output-norm", "random"], [2], repair=True, draws=2)
    assert study.methods == ("output-norm+repair", "random+repair")
    assert list(study.verdicts) == ["output-norm+repair"]


def test_evaluating_on_what_was_calibrated_on_is_warned_of(llama, caplog):
    study = hs.ablation_study(llama, EVALUATION, {"mine": SCORES}, [1], calibration=EVALUATION[:3])
    [warning] = study.warnings
    assert warning.message.startswith("3 of 7 evaluation windows are calibration windows too")
    assert "3 of 7 evaluation windows" in caplog.text
    assert study_of(llama, {"mine": SCORES}, [1]).warnings == ()


def test_text_that_is_too_short_names_the_half(llama):
    with pytest.raises(InputError, match=r"the first half of the text .* has 6 tokens, but length .* is 30"):
        hs.ablation_study(llama, "a few letters", {"mine": SCORES}, [1], length=30, tokenizer=Letters())


def test_without_calibration_the_first_half_calibrates(llama):
    rows = torch.cat([CALIBRATION, EVALUATION[:6]])
    halves = hs.ablation_study(llama, rows, ["gradient"], [2])
    given = hs.ablation_study(llama, EVALUATION[:6], ["gradient"], [2], calibration=CALIBRATION)
    np.testing.assert_array_equal(halves.curves["gradient"].losses, given.curves["gradient"].losses)


def test_counts_and_methods_can_be_added(llama, tmp_path, evaluations):
    study_of(llama, ["output-norm"], [2, 4], out=tmp_path)
    assert [len(off) for off in evaluations] == [2, 4]
    evaluations.clear()
    study = study_of(llama, ["output-norm", "random"], [2, 3, 4], draws=2, out=tmp_path)
    assert [len(off) for off in evaluations] == [3, 2, 3, 4, 2, 3, 4]
    evaluations.clear()
    again = study_of(llama, ["output-norm", "random"], [2, 3, 4], draws=2, out=tmp_path)
    assert evaluations == []
    fresh = study_of(llama, ["output-norm", "random"], [2, 3, 4], draws=2)
    for found in (study, again, hs.AblationStudy.load(tmp_path)):
        for name, curve in fresh.curves.items():
            np.testing.assert_array_equal(found.curves[name].losses, curve.losses)
    assert json.loads((tmp_path / "summary.json").read_text())["counts"] == [2, 3, 4]
    assert len(pd.read_csv(tmp_path / "curves.csv")) == 6


@pytest.mark.parametrize("finished", [0, 1, 4, 7])
def test_a_study_that_was_killed_goes_on(llama, tmp_path, monkeypatch, finished):
    options = {"methods": ["output-norm", "reconstruction+repair", "random"], "counts": [2, 4], "draws": 2}
    whole = study_of(llama, **options)
    evaluate, done = HeadEvaluator.evaluate, []

    def killed(self, off=()):
        if len(done) == finished:
            raise KeyboardInterrupt
        done.append(off)
        return evaluate(self, off)

    monkeypatch.setattr(HeadEvaluator, "evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        study_of(llama, **options, out=tmp_path)
    with pytest.raises(hs.HeadscapeError, match="holds no finished study"):
        hs.AblationStudy.load(tmp_path)

    def counted(self, off=()):
        done.append(off)
        return evaluate(self, off)

    monkeypatch.setattr(HeadEvaluator, "evaluate", counted)
    found = study_of(llama, **options, out=tmp_path)
    assert len(done) == 8  # nothing was evaluated twice
    for name, curve in whole.curves.items():
        np.testing.assert_array_equal(found.curves[name].losses, curve.losses)
        np.testing.assert_array_equal(found.curves[name].orders, curve.orders)


def test_a_study_stopped_from_its_progress_leaves_the_model_as_it_was(llama):
    before = state_of(llama)

    def stop(what, done, total):
        if "repairing" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study_of(llama, ["output-norm+repair"], [4], progress=stop)
    assert unchanged(llama, before)
    assert llama.config._attn_implementation != "headscape"


def test_progress_grows_over_all_curves(llama):
    told = []
    methods = ["gradient", "random", "reconstruction+repair"]
    study_of(
        llama, methods, [2, 4], draws=2, progress=lambda what, done, total: told.append((what, done / total))
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 0.1
    assert 0.8 < shares[-1] <= 1
    assert {what.split(":")[0] for what, _ in told} >= set(methods)


def test_a_score_of_the_users_own_that_changed_is_not_taken_from_the_folder(llama, tmp_path, evaluations):
    first = study_of(llama, {"mine": SCORES}, [2], out=tmp_path)
    other = study_of(llama, {"mine": -SCORES}, [2], out=tmp_path)
    assert [set(off) for off in evaluations] == [set(ORDER[:2]), set(ORDER[-2:])]
    assert other.curves["mine"].orders[0].tolist() == [list(pair) for pair in ORDER[:-3:-1]]
    assert not np.array_equal(first.curves["mine"].losses, other.curves["mine"].losses)
    study_of(llama, {"mine": SCORES}, [2], out=tmp_path)
    assert len(evaluations) == 2


def test_a_name_that_means_another_method_now_is_not_taken_from_the_folder(llama, tmp_path):
    study_of(llama, {"mine": "output-norm"}, [2], out=tmp_path)
    found = study_of(llama, {"mine": "output-norm:reversed"}, [2], out=tmp_path)
    wanted = study_of(llama, {"mine": "output-norm:reversed"}, [2])
    np.testing.assert_array_equal(found.curves["mine"].orders, wanted.curves["mine"].orders)
    np.testing.assert_array_equal(found.curves["mine"].losses, wanted.curves["mine"].losses)


def test_another_study_does_not_go_into_the_same_folder(llama, tmp_path):
    study_of(llama, {"mine": SCORES}, [2], out=tmp_path)
    with pytest.raises(StorageError, match="started with"):
        study_of(llama, {"mine": SCORES}, [2], out=tmp_path, seed=1)
    with pytest.raises(StorageError, match="started with"):
        hs.ablation_study(
            llama,
            EVALUATION,
            {"mine": SCORES},
            [2],
            out=tmp_path,
            calibration=CALIBRATION[:5],
        )


def test_a_classifier_has_accuracies():
    config = transformers.BertConfig(**BIDIRECTIONAL["Bert"], num_labels=3)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).eval()
    labels = torch.arange(7) % 3
    study = hs.ablation_study(
        model,
        {"input_ids": EVALUATION, "labels": labels},
        {"mine": SCORES, "random": "random"},
        [4],
        draws=3,
        calibration={"input_ids": CALIBRATION, "labels": torch.arange(6) % 3},
    )
    with torch.no_grad():
        right = model(EVALUATION).logits.argmax(dim=-1) == labels
    assert study.intact_accuracy.tolist() == right.double().tolist()
    assert study.curves["random"].accuracy.shape == (3, 1, 7)
    assert set(np.unique(study.curves["mine"].accuracy)) <= {0.0, 1.0}
    assert "accuracy" in study.to_frame()


def test_models_without_a_loss_are_judged_by_their_output():
    study = hs.ablation_study(
        tiny_model("ViT"), inputs_of("ViT", rows=12)["pixel_values"], {"mine": SCORES}, [1, 4]
    )
    assert study.relative is False
    assert not study.intact.any()
    assert (study.increase("mine")[0, 1] > study.increase("mine")[0, 0]).all()
    assert "change of the output" in study.findings[-1]


def test_another_stack():
    study = hs.ablation_study(tiny_model("T5"), inputs_of("T5", rows=8), ["gradient"], [2], stack="cross")
    assert (study.increase("gradient") > 0).all()
    with pytest.raises(InputError, match="stack must be one of"):
        hs.ablation_study(tiny_model("T5"), inputs_of("T5", rows=8), ["gradient"], [2], stack="middle")
