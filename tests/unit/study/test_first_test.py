"""The first test of the heads with low Haar entropy: its losses, its verdict, and where it does not apply."""

from pathlib import Path

import numpy as np
import pytest

from headscape.models.loading import load_model
from headscape.recorder.gates import switched_off
from headscape.study.analyze import analyze
from headscape.study.stages.context import Context
from headscape.study.stages.finding import Question
from headscape.study.stages.first_test import FirstTest
from headscape.study.stages.result import Result
from studies import small_capture, small_study

MODEL = Path(__file__).parents[3] / "examples" / "tiny_model"


@pytest.fixture(scope="module")
def model():
    return load_model(str(MODEL))


@pytest.fixture(scope="module")
def study(model):
    return analyze(model, "a b c d e f g h " * 60, windows=2, length=32, stages=["first_test"])


def test_the_lowest_tenth_is_switched_off_and_as_many_at_random(model, study):
    from headscape.ablation.objective import objective_for
    from headscape.recorder.inputs import InputReader

    losses = study.results["first_test"][0].arrays["losses"]
    assert losses.shape == (5, 2)
    ranks = study["entropy"].stability.mean_ranks
    count = max(1, round(0.1 * len(ranks)))
    lowest = [study.data.heads[i] for i in np.argsort(ranks, kind="stable")[:count]]
    windows = InputReader(model.model, model.tokenizer, length=32, windows=2).read("a b c d e f g h " * 60)
    objective = objective_for(model, windows)
    with switched_off(model.modules(), lowest):
        expected = objective.evaluate(model.model).losses
    np.testing.assert_allclose(losses[1], expected, rtol=1e-5)
    np.testing.assert_allclose(losses[0], objective.evaluate(model.model).losses, rtol=1e-5)


def test_the_sentence_has_the_measured_increases(study):
    found = study["first_test"]
    sentence = next(finding for finding in study.findings if "a first test" in finding)
    assert sentence.question is Question.little
    assert f"from {found['intact']:.2f} to {found['intact'] + found['lowest']:.2f}" in sentence
    assert f"to {found['intact'] + np.mean(found['random']):.2f}" in sentence
    assert all(f"{value:+.3f}" in sentence.statistics for value in found["random"])


@pytest.mark.parametrize(
    ("lowest", "words"),
    [(0.01, "less than random"), (0.9, "more than random heads: do not"), (0.2, "neither clearly")],
)
def test_random_draws_are_the_yardstick(lowest, words):
    losses = np.array([1.0, 1.0 + lowest, 1.1, 1.2, 1.3])[:, None]
    result = Result({"losses": losses}, {"heads": 3, "loss": "nats per token"})
    context = Context(small_capture(), {})
    assert words in FirstTest().sum_up(context, [result]).findings[0]


def test_without_the_model_it_is_left_out_with_a_word():
    study = small_study(stages=["entropy", "first_test"])
    assert "first_test" not in study
    assert "the model is not at hand" in study.answers[Question.little][0]
