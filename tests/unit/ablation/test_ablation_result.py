"""What an ablation study says of curves that are made up: areas, verdicts, intervals, files."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscape.ablation.ablation_result import AblationStudy
from headscape.ablation.curves import Curve, is_random
from headscape.analysis.intervals import bootstrap
from headscape.errors import FileFormatError, HeadscapeError, InputError
from headscape.notices import Notice

COUNTS, HEADS, WINDOWS = (2, 5, 10), 20, 12


def curve(*increases, noise=0.0, seed=0, windows=WINDOWS, accuracy=None):
    """One row of increases by count per draw, on an intact loss of 2."""
    rng = np.random.default_rng(seed)
    increases = np.asarray(increases, dtype=np.float64)
    losses = 2.0 + increases[:, :, None] + noise * rng.standard_normal((*increases.shape, windows))
    orders = np.stack([rng.permutation(HEADS)[:10] for _ in increases])
    return Curve(losses, np.stack([orders // 4, orders % 4], axis=-1), accuracy)


def study_of(curves, **options):
    given_values = {
        "counts": COUNTS,
        "intact": np.full(WINDOWS, 2.0),
        "n_heads": HEADS,
        "loss": "nats per token",
    }
    return AblationStudy(curves, **{**given_values, **options})


RANDOM = curve(*([0.1 * f, 0.3 * f, 1.0 * f] for f in np.linspace(0.8, 1.2, 10)), noise=0.05)


@pytest.fixture(scope="module")
def study():
    return study_of(
        {
            "good": curve([0.01, 0.05, 0.2], noise=0.02, seed=1),
            "bad": curve([0.5, 1.0, 3.0], noise=0.1, seed=2),
            "like": curve([0.1, 0.3, 1.0], noise=0.05, seed=3),
            "random": RANDOM,
        }
    )


def test_verdicts(study):
    words = {name: verdict.word for name, verdict in study.verdicts.items()}
    assert words == {
        "good": "better than random",
        "bad": "worse than random",
        "like": "no better than random",
    }
    good, bad, like = study.verdicts.values()
    assert (good.beaten, bad.beaten, good.draws) == (10, 0, 10)
    assert good.difference.high < 0 < bad.difference.low
    assert 0 in like.difference
    assert "good: better than random (area under the curve -0.3" in str(good)
    assert "it beats 10 of 10 random orders" in str(good)


def test_a_ranking_that_beats_few_draws_by_luck_is_no_better():
    # Better than the mean of two draws that differ by more than that.
    random = curve([0.1, 0.2, 0.4], [0.5, 1.0, 2.0])
    found = study_of({"mine": curve([0.2, 0.4, 0.8]), "random": random}).verdicts["mine"]
    assert found.difference.estimate < 0
    assert (found.word, found.beaten) == ("no better than random", 1)


def test_the_difference_is_that_of_the_areas_paired_over_windows():
    # Windows differ by far more than the methods do, but the methods agree on every window.
    levels = np.linspace(0, 5, WINDOWS)
    mine, other = curve([0.1, 0.3, 1.0]), curve([0.2, 0.4, 1.1], [0.2, 0.4, 1.1])
    shifted = [Curve(c.losses + levels, c.orders) for c in (mine, other)]
    found = study_of({"mine": shifted[0], "random": shifted[1]}).verdicts["mine"].difference
    # An increase of 0.1 less at every count, and of 0.05 on average before the first.
    assert found.estimate == pytest.approx(-0.1 * (0.8 + 0.1))
    assert found.high - found.low < 1e-12


def test_areas_by_hand():
    study = study_of({"mine": curve([0.1, 0.4, 1.0])})
    by_hand = (0.1 * 2 / 2 + (0.1 + 0.4) / 2 * 3 + (0.4 + 1.0) / 2 * 5) / 10
    areas = study.areas("mine")
    assert areas.shape == (1, WINDOWS)
    np.testing.assert_allclose(areas, by_hand)
    constant = study_of({"mine": curve([0.4])}, counts=(7,))
    np.testing.assert_allclose(constant.areas("mine"), 0.2)


def test_repaired_rankings_are_compared_with_repaired_random_orders():
    cheap = Curve((RANDOM.losses - 2) / 10 + 2, RANDOM.orders)
    mine = curve([0.05, 0.15, 0.5])
    curves = {"mine": mine, "mine+repair": mine, "random": RANDOM}
    alone = study_of(curves).verdicts
    assert alone["mine+repair"].word == "better than random"
    both = study_of({**curves, "random+repair": cheap}).verdicts
    assert set(both) == {"mine", "mine+repair"}
    assert both["mine"].word == "better than random"
    assert both["mine+repair"].word == "worse than random+repair"
    assert study_of({"mine": mine, "random+repair": cheap}).verdicts == {}
    assert is_random("random+repair")


def test_intervals_are_over_windows_for_rankings_and_over_draws_for_random_orders(study):
    increases = study.increase("good")[0, 1]
    assert study.interval("good", 5) == bootstrap(increases)
    means = study.increase("random")[:, 1].mean(axis=1)
    band = study.interval("random", 5)
    assert band.estimate == pytest.approx(means.mean())
    assert (band.low, band.high) == pytest.approx(tuple(np.quantile(means, [0.05, 0.95])))
    assert band.level == pytest.approx(0.9)


def test_ratios_are_paired_over_windows():
    levels = np.linspace(1, 9, WINDOWS)  # the same factor on every window, which differ ninefold
    base = curve([1.0, 1.0, 1.0])
    curves = {
        name: Curve(2.0 + factor * levels * (base.losses - 2.0), base.orders)
        for name, factor in (("half", 0.5), ("whole", 1.0))
    }
    found = study_of(curves).ratio("half", "whole", 5)
    np.testing.assert_allclose([found.estimate, found.low, found.high], 0.5)
    noisy = study_of({"good": curve([0.1, 0.1, 0.1], noise=0.05), "whole": curves["whole"]})
    wide = noisy.ratio("good", "whole", 5)
    assert wide.low < wide.estimate < wide.high


def test_heads_to_spare():
    curves = {
        "some": curve([0.05, 0.09, 0.3]),
        "none": curve([0.2, 0.01, 0.01]),  # what lies behind a count that costs too much does not help
        "all": curve([0.0, -0.1, 0.09]),
        "unsure": curve([0.05, 0.09, 0.3], noise=0.2),
    }
    study = study_of(curves)
    found = study.spare(0.05)
    assert (found["some"], found["none"], found["all"]) == ((5, 5), (0, 0), (10, 10))
    likely, surely = found["unsure"]
    assert surely < likely
    assert study.spare(0.2)["some"] == (10, 10)
    assert study_of(curves, relative=False).spare(0.05)["some"] == (2, 2)
    assert study.findings[-1].startswith("Of 20 heads, ")
    assert "less than 5 % higher loss: 10 (50 %) with all, 5 (25 %) with some" in study.findings[-1]


def test_the_first_finding_names_the_best_at_a_tenth_of_the_heads(study):
    assert study.findings[0].startswith(
        "With 2 of 20 heads off (10 %) the loss of 2 (nats per token) increases by"
    )
    assert "with good, the best over all counts (smallest area); like " in study.findings[0]
    assert len(study.findings) == 5


def test_the_frame(study):
    frame = study.to_frame()
    assert frame.shape == (12, 7)
    row = frame[(frame["method"] == "good") & (frame["count"] == 5)].iloc[0]
    assert row["share"] == 0.25
    assert row["loss"] == pytest.approx(2.0 + row["increase"])
    assert row["low"] < row["increase"] < row["high"]
    rich = study_of(
        {"random": Curve(RANDOM.losses, RANDOM.orders, np.full_like(RANDOM.losses, 0.25))},
        perplexity=True,
        intact_accuracy=np.full(WINDOWS, 0.5),
    )
    first = rich.to_frame().iloc[0]
    # The mean over draws of exp(mean loss over windows), as a language model's perplexity is told.
    assert first["perplexity"] == pytest.approx(np.exp(RANDOM.losses[:, 0].mean(axis=-1)).mean())
    assert first["accuracy"] == 0.25
    assert rich.summary()["intact_accuracy"] == 0.5
    assert rich.summary()["intact_perplexity"] == pytest.approx(np.exp(2.0))


def test_json_knows_no_nan():
    one_window = study_of(
        {"mine": curve([0.1, 0.3, 1.0], windows=1), "random": curve([0.1] * 3, [0.2] * 3, windows=1)},
        intact=np.array([2.0]),
    )
    assert np.isnan(one_window.interval("mine", 2).low)
    text = json.dumps(one_window.summary(), allow_nan=False)
    assert json.loads(text)["curves"][0]["low"] is None


@settings(max_examples=6)  # each writes and reads a folder
@given(
    draws=st.integers(1, 3),
    windows=st.integers(1, 4),
    counts=st.sets(st.integers(1, 20), min_size=1, max_size=4),
    accuracy=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_saved_and_loaded_is_the_same(tmp_path_factory, draws, windows, counts, accuracy, seed):
    rng = np.random.default_rng(seed)
    numbers = tuple(sorted(counts))
    shape = (draws, len(numbers), windows)
    orders = np.stack([rng.permutation(20) for _ in range(draws)])[:, : max(numbers)]
    pairs = np.stack([orders // 4, orders % 4], axis=-1)
    right = rng.random(shape) if accuracy else None
    study = study_of(
        {name: Curve(rng.random(shape), pairs, right) for name in ("mine:reversed+repair", "<b> ö/..")},
        counts=numbers,
        intact=rng.random(windows),
        intact_accuracy=rng.random(windows) if accuracy else None,
        perplexity=bool(seed % 2),
        warnings=(Notice("few-windows", "careful"),),
        parameters={"seed": seed, "model": {"name": "x", "revision": None}},
        input_hash="abc",
    )
    folder = tmp_path_factory.mktemp("study")
    study.save(folder)
    found = AblationStudy.load(folder)
    assert found.attributes() == study.attributes()
    assert found.warnings == study.warnings
    assert found.arrays().keys() == study.arrays().keys()
    for name, array in study.arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], array)
    pd.testing.assert_frame_equal(pd.read_csv(folder / "curves.csv"), study.to_frame())


def test_the_last_study_of_a_folder_is_loaded(tmp_path, study):
    study.save(tmp_path)
    study_of({"mine": RANDOM}).save(tmp_path)
    assert AblationStudy.load(tmp_path).methods == ("mine",)
    study.save(tmp_path)
    assert AblationStudy.load(tmp_path).methods == study.methods


def test_warnings_of_older_files_are_read():
    study = study_of({"mine": RANDOM})
    old = AblationStudy.from_arrays(study.arrays(), {**study.attributes(), "warnings": ["careful"]})
    assert [notice.message for notice in old.warnings] == ["careful"]


def test_folders_without_a_study(tmp_path, study):
    with pytest.raises(HeadscapeError, match="is not a headscape folder"):
        AblationStudy.load(tmp_path / "none")
    study.save(tmp_path)
    (tmp_path / "summary.json").unlink()
    with pytest.raises(FileFormatError, match=r"holds no finished study.*Run the same command again"):
        AblationStudy.load(tmp_path)


def test_unknown_methods_and_counts(study):
    with pytest.raises(InputError, match="method must be one of good, bad, like, random, but is 'best'"):
        study.interval("best", 2)
    with pytest.raises(InputError, match="count must be one of 2, 5, 10, but is 3"):
        study.ratio("good", "bad", 3)


def test_without_random_orders_there_are_no_verdicts():
    study = study_of({"mine": curve([0.1, 0.3, 1.0])})
    assert study.verdicts == {}
    assert len(study.findings) == 2
    assert repr(study) == "AblationStudy(mine; 3 counts up to 10 of 20 heads, 12 windows)"


def test_three_windows_are_too_few_for_a_verdict():
    curves = {"good": curve([0.0, 0.0, 0.0], windows=3), "random": curve([1, 2, 3], [1, 2, 3], windows=3)}
    verdict = study_of(curves, intact=np.full(3, 2.0)).verdicts["good"]
    assert verdict.word == "not judged against random"
    assert "nan" not in str(verdict)


@pytest.mark.parametrize(
    ("default", "other", "said"),
    [
        ([0.01, 0.05, 0.2], [0.02, 0.1, 0.4], "is the best choice here"),
        (
            [0.01, 0.05, 0.4],
            [0.02, 0.1, 0.2],
            "is not the best choice here: it costs more with 10 heads (0.4",
        ),
        (
            [0.02, 0.1, 0.2],
            [0.02, 0.1, 0.4],
            "none costs clearly less at any count; it costs less with 10 heads (0.2",
        ),
    ],
)
@pytest.mark.parametrize("ours", ["validated", "reconstruction+repair"])
def test_says_whether_our_way_is_the_best_choice(ours, default, other, said):
    noise = {"noise": 0.002}
    curves = {
        ours: curve(default, seed=1, **noise),
        "osscar": curve(other, seed=2, **noise),
        "slimgpt": curve([0.5, 0.9, 1.5], seed=3, **noise),
        "random": RANDOM,
    }
    [sentence] = [found for found in study_of(curves).findings if re.search("choice.* here", found)]
    assert sentence.startswith(ours)
    assert said in sentence
    assert ("the default of prune" in sentence) == (ours == "validated")
    assert "slimgpt" not in sentence
    # Without another method there is nothing to say, nor of the published ones alone.
    for some in ([ours, "random"], ["osscar", "slimgpt", "random"]):
        assert " here" not in " ".join(study_of({name: curves[name] for name in some}).findings)
