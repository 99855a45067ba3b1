"""Experiments: verdicts, evidence that comes back from disk, and the measures that decide."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headscape.analysis.intervals import Interval
from headscape.energy.mutual_coherence import mutual_coherence
from headscape.errors import FileFormatError, InputError
from headscape.study.reproduction.brief_training import briefly_trained
from headscape.study.reproduction.costs import expected_seconds
from headscape.study.reproduction.experiment import Evidence, Observation, Verdict, judged, judged_sign
from headscape.study.reproduction.experiments import EXPERIMENTS, chosen_experiments
from headscape.study.reproduction.geometry import CLUSTERED, CONTINUOUS, best_groups
from headscape.study.reproduction.head_experiments import variation
from headscape.study.reproduction.median_interval import median_interval
from headscape.study.reproduction.networks import ROLES
from headscape.study.reproduction.random_images import drawn_images, random_images
from headscape.study.reproduction.rank_correlation import rank_correlation
from headscape.study.reproduction.sparsity import geometric_ratio
from headscape.study.reproduction.work_times import WorkTimes
from headscape.study.stages.result import Result
from headscape.tensor.store import Store


def observed(*verdicts):
    return Evidence.of([Observation("network", "data", "found", verdict) for verdict in verdicts])


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((Verdict.agrees, Verdict.agrees), Verdict.agrees),
        ((Verdict.disagrees,), Verdict.disagrees),
        ((Verdict.agrees, Verdict.disagrees), Verdict.partly),
        ((Verdict.untested, Verdict.disagrees), Verdict.disagrees),
        ((Verdict.undecided, Verdict.agrees), Verdict.agrees),
        ((Verdict.undecided, Verdict.untested), Verdict.undecided),
        ((Verdict.untested,), Verdict.untested),
    ],
)
def test_the_verdict_is_that_of_the_networks_on_which_it_was_tested(verdicts, expected):
    assert observed(*verdicts).verdict == expected


def test_an_untrained_network_is_a_control_and_does_not_decide():
    trained = Observation("network", "data", "found", Verdict.disagrees)
    control = Observation("random weights", "data", "found", Verdict.agrees, control=True)
    assert Evidence.of([trained, control]).verdict == Verdict.disagrees
    assert Evidence.of([control]).verdict == Verdict.agrees


def test_a_test_between_its_bounds_agrees_in_part():
    assert judged(True, True) == Verdict.agrees
    assert judged(False) == Verdict.disagrees
    assert judged(False, False) == Verdict.partly


def test_a_sign_is_undecided_if_the_interval_holds_zero():
    assert judged_sign(Interval(0.3, 0.1, 0.5), 1) == Verdict.agrees
    assert judged_sign(Interval(0.3, 0.1, 0.5), -1) == Verdict.disagrees
    assert judged_sign(Interval(0.3, -0.1, 0.5), 1) == Verdict.undecided
    assert judged_sign(Interval(0.3, float("nan"), float("nan")), 1) == Verdict.undecided


def test_evidence_comes_back_from_a_store(tmp_path):
    table = pd.DataFrame({"head": ["1.0", "2.3"], "count": [6, 5], "value": [0.5, np.nan]})
    found = Evidence((Observation("n", "d", "f", Verdict.partly),), {"t": table}, {"p": b"\x89PNG\x00"})
    with Store.create(tmp_path, "reproduction", parameters={}, input_hash="") as store:
        with store.writing("experiment-x") as part:
            found.to_result().write(part)
        again = Evidence.from_result(Result.read(store.read("experiment-x")))
    assert again.observations == found.observations
    pd.testing.assert_frame_equal(again.tables["t"], table)
    assert again.pictures == found.pictures


def test_experiments_have_names_of_their_own_and_known_networks():
    names = [one.name for one in EXPERIMENTS]
    assert len(set(names)) == len(names) == 21
    assert {role for one in EXPERIMENTS for role in one.networks} <= set(ROLES)
    assert all(one.claim.endswith(".") and one.paper and one.place for one in EXPERIMENTS)


def test_experiments_are_chosen_by_name_in_their_own_order():
    assert [one.name for one in chosen_experiments(["table-1", "figure-1", "table-1"])] == [
        "figure-1",
        "table-1",
    ]
    assert chosen_experiments(["all"]) == EXPERIMENTS
    with pytest.raises(InputError, match=r"table-9.*--list"):
        chosen_experiments(["table-9"])
    with pytest.raises(InputError, match="none was given"):
        chosen_experiments([])


def test_what_experiments_share_is_counted_once(tmp_path):
    single = [expected_seconds([one]) for one in EXPERIMENTS]
    together = expected_seconds(EXPERIMENTS)
    assert max(single) < together < sum(single)
    assert together < 3600
    (tmp_path / "networks" / "language-capture").mkdir(parents=True)
    (tmp_path / "parts" / "experiment-table-1").mkdir(parents=True)
    assert expected_seconds(EXPERIMENTS, tmp_path) < together
    assert expected_seconds(chosen_experiments(["table-1"]), tmp_path) == 0


def test_times_add_up_over_runs_and_damage_is_named(tmp_path):
    path = tmp_path / "times.json"
    for _ in range(2):
        with WorkTimes(path).timed("part"):
            sum(range(1000))
    assert list(WorkTimes(path).read()) == ["part"]
    path.write_text('{"part": 3}')
    with pytest.raises(FileFormatError, match="damaged"):
        WorkTimes(path).read()


def test_interrupted_training_resumes_to_the_same_weights(tmp_path):
    pytest.importorskip("transformers")
    text = "the cat sat on the mat and the dog ran to the cat . " * 60
    sizes = {"layers": 1, "width": 16, "length": 8, "steps": 8}

    def interrupt(_what, done, _total):
        if done == 5:
            raise KeyboardInterrupt

    for name in ("whole", "twice"):
        (tmp_path / name).mkdir()
    whole = briefly_trained(tmp_path / "whole", text, **sizes)
    with pytest.raises(KeyboardInterrupt):
        briefly_trained(tmp_path / "twice", text, **sizes, progress=interrupt)
    steps = []
    twice = briefly_trained(
        tmp_path / "twice", text, **sizes, progress=lambda _what, done, _total: steps.append(done)
    )
    assert steps == [4, 5, 6, 7]
    ours, theirs = twice.model().model.state_dict(), whole.model().model.state_dict()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert not list(tmp_path.rglob("*.pt"))


def test_groups_are_counted_where_there_are_some():
    rng = np.random.default_rng(0)
    centers = np.repeat([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], 8, axis=0)
    points = centers + rng.normal(0, 0.3, centers.shape)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    groups, silhouette = best_groups(distances)
    assert groups == 3
    assert silhouette > 0.9


def test_a_continuum_is_not_taken_for_clusters():
    line = np.abs(np.arange(128.0)[:, None] - np.arange(128.0))
    assert CONTINUOUS < best_groups(line)[1] < CLUSTERED
    square = np.random.default_rng(0).random((128, 2))
    assert best_groups(np.linalg.norm(square[:, None] - square, axis=-1))[1] < CONTINUOUS


def test_the_ratio_of_geometric_means_is_covered_by_its_interval():
    rng = np.random.default_rng(0)
    pairs = [(3 * rng.lognormal(0, 0.2, 5), rng.lognormal(0, 0.5, 5)) for _ in range(400)]
    assert 0.92 <= np.mean([3 in geometric_ratio(*pair) for pair in pairs]) <= 0.98
    assert geometric_ratio(np.array([2.0, 8.0]), np.array([1.0, 1.0])).estimate == pytest.approx(4)
    assert not geometric_ratio(np.ones(3), np.ones(5)).has_bounds


def test_variation_counts_steps_along_both_axes():
    ramp = np.add.outer(np.arange(5.0), 2 * np.arange(5.0))
    assert variation(ramp) == pytest.approx(1.5)


def test_drawn_images_are_the_same_for_the_same_seed():
    first, again, other = drawn_images(2, 16, 1), drawn_images(2, 16, 1), drawn_images(2, 16, 2)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_images_of_a_folder_are_drawn_at_random_with_their_labels(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(6):
            (tmp_path / label / f"{number}.png").write_bytes(b"")
    first, again, other = (random_images(tmp_path, 5, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert len(first) == 5
    assert {row["label"] for row in random_images(tmp_path, 12, 0)} == {"cat", "dog"}


def test_the_interval_of_a_rank_correlation_covers_it():
    rng = np.random.default_rng(0)
    pairs = [rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 24).T for _ in range(400)]
    # Spearman's correlation of a normal pair with correlation 0.6.
    true = 6 / np.pi * np.arcsin(0.3)
    found = [rank_correlation(x, y, draws=9).interval for x, y in pairs]
    assert 0.92 <= np.mean([true in one for one in found]) <= 0.98
    assert rank_correlation(range(12), range(12)).p < 0.01
    assert rank_correlation([1.0] * 12, range(12)).p == 1
    x, y = pairs[0]
    assert found[0].estimate == pytest.approx(stats.spearmanr(x, y).statistic)
    few = stats.permutation_test(
        (x[:5],), lambda z: stats.spearmanr(z, y[:5]).statistic, permutation_type="pairings"
    )
    assert rank_correlation(x[:5], y[:5]).p == pytest.approx(few.pvalue)


def test_mutual_coherence_is_the_largest_cosine():
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(20, 6))
    slow = max(
        abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)
        for i, a in enumerate(keys)
        for j, b in enumerate(keys)
        if i != j
    )
    assert mutual_coherence(keys) == pytest.approx(slow)
    assert mutual_coherence(3 * keys) == pytest.approx(slow)
    assert mutual_coherence(np.eye(4)) == 0
    assert mutual_coherence(np.vstack([keys, -2 * keys[:1]])) == pytest.approx(1)


def test_mutual_coherence_refuses_a_zero_key():
    with pytest.raises(InputError, match="must not be zero"):
        mutual_coherence([[1.0, 0.0], [0.0, 0.0]])


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    found = [median_interval(rng.exponential(size=24)) for _ in range(600)]
    covered = np.mean([one.low <= np.log(2) <= one.high for one in found])
    assert 0.94 <= covered < 0.99
    assert np.isnan(median_interval([1.0, 2.0, 3.0]).low)
